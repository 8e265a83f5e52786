"""Says what a picture or clip shows: background, colour, shape, place, motion. numpy only, no model.

A picture is uint8 [height, width, 3]; a clip is a sequence of them. The shape is the unit template that correlates best
with the soft mask, over a small search of scales. Both are blurred a little, so that a soft outline costs nothing by
itself; a rounded star is a circle and is called one.
"""

import math

import numpy as np

import world
from captions import COLOURS, GROUNDS, SHAPES

STILL_LIMIT = 0.08  # widths: a shorter path of the centroid is no motion
GROW_LIMIT = 1.4  # ratio of the last area to the first
SCALES = (0.9, 0.95, 1.0, 1.05, 1.1)


def _soft_template(shape, cx, cy, radius, height, width):
    """Coverage of the shape whose centroid is at cx, cy."""
    drop = world.TRIANGLE_DROP * radius if shape == "triangle" else 0.0
    return world.soften(world.soften(world.coverage(shape, cx, cy - drop, radius, height, width, over=2)))


def _correlation(a, b):
    a, b = a - a.mean(), b - b.mean()
    return float((a * b).sum() / max(1e-9, math.sqrt((a * a).sum() * (b * b).sum())))


def _nearest(palette, rgb):
    return min(palette, key=lambda name: sum((float(a) - b) ** 2 for a, b in zip(rgb, palette[name])))


def judge_frame(picture):
    """dict(ground, colour, shape, area, x, y, fit, clear). colour and shape are None when nothing stands out."""
    image = np.asarray(picture, np.float64)
    height, width = image.shape[:2]
    border = np.concatenate([image[:2].reshape(-1, 3), image[-2:].reshape(-1, 3), image[:, :2].reshape(-1, 3), image[:, -2:].reshape(-1, 3)])
    ground = np.median(border, 0)
    distance = np.sqrt(((image - ground) ** 2).sum(2))
    top = np.sort(distance.ravel())[-max(8, height * width // 50) :]
    peak = float(np.median(top))
    seen = dict(ground=_nearest(GROUNDS, ground), colour=None, shape=None, area=0.0, x=0.5, y=0.5, fit=0.0, clear=0.0, fits={})
    mask = np.clip(distance / max(peak, 1e-3), 0, 1)
    hard = mask > 0.5
    if hard.sum() < height * width / 100 or peak < 32:
        return seen
    core = image[mask > 0.8]
    seen["colour"] = _nearest(COLOURS, np.median(core, 0))
    weight = mask * (mask > 0.25)
    ys, xs = np.arange(height) + 0.5, np.arange(width) + 0.5
    total = weight.sum()
    cx, cy = float((weight.sum(0) * xs).sum() / total), float((weight.sum(1) * ys).sum() / total)
    seen.update(area=float(total) / (height * width), x=cx / width, y=cy / height)
    soft, fits = world.soften(mask), {}
    for shape in SHAPES:
        radius = math.sqrt(total / world.unit_area(shape))
        fits[shape] = max(_correlation(soft, _soft_template(shape, cx, cy, radius * s, height, width)) for s in SCALES)
    order = sorted(fits, key=fits.get, reverse=True)
    seen.update(shape=order[0], fit=fits[order[0]], clear=fits[order[0]] - fits[order[1]], fits=fits)
    return seen


def fit_of(picture, shape):
    """Best correlation of the picture's mask with this shape, 1 for a perfect drawing, 0 where nothing stands out."""
    return judge_frame(picture)["fits"].get(shape, 0.0)


def judge_clip(clip):
    """The middle frame's findings, and the motion from the first to the last frame."""
    first, middle, last = (judge_frame(clip[i]) for i in (0, len(clip) // 2, -1))
    seen = dict(middle)
    dx, dy = last["x"] - first["x"], last["y"] - first["y"]
    seen.update(dx=dx, dy=dy, growth=last["area"] / max(first["area"], 1e-6), shapes=[s["shape"] for s in (first, middle, last)])
    if max(abs(dx), abs(dy)) >= STILL_LIMIT:
        seen["move"] = ("left" if dx < 0 else "right") if abs(dx) > abs(dy) else ("up" if dy < 0 else "down")
    else:
        seen["move"] = "growing" if seen["growth"] > GROW_LIMIT else "still"
    return seen


def place_of(seen, place):
    """Whether the shape stands where the words say."""
    axis, side = {"on the left": ("x", -1), "on the right": ("x", 1), "at the top": ("y", -1), "at the bottom": ("y", 1)}[place]
    return (seen[axis] - 0.5) * side > 0.03


def psnr(a, b):
    """Of two arrays in 0..255."""
    error = float(((np.asarray(a, np.float64) - np.asarray(b, np.float64)) ** 2).mean())
    return 99.0 if error == 0 else 10 * math.log10(255**2 / error)


def luma(picture):
    """Brightness of a uint8 picture, 0..255."""
    return np.asarray(picture, np.float64) @ np.array([0.299, 0.587, 0.114])
