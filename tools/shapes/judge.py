"""Says what a picture or clip shows: background, colour, shape, place, motion. numpy only, no model.

A picture is uint8 [height, width, 3]; a clip is a sequence of them. The shape is the unit template that correlates best
with the soft mask over a small search of scales and shifts. Templates are blurred as lightly as the mask is, so a soft
outline costs nothing by itself, but a rounded star is a circle and is called one.
"""

import math

import numpy as np

from captions import COLOURS, GROUNDS, SHAPES

STILL_LIMIT = 0.08  # widths: a shorter path of the centroid is no motion
GROW_LIMIT = 1.4  # ratio of the last area to the first
_SCALES = (0.9, 0.95, 1.0, 1.05, 1.1)
_SQUARE_HALF = 0.88


def _ring(radii, count, drop=0.0):
    angle = [2 * math.pi * k / count for k in range(count)]
    return [(radii[k % len(radii)] * math.sin(a), drop - radii[k % len(radii)] * math.cos(a)) for k, a in enumerate(angle)]


_POLYGONS = {
    "square": [(-_SQUARE_HALF, -_SQUARE_HALF), (_SQUARE_HALF, -_SQUARE_HALF), (_SQUARE_HALF, _SQUARE_HALF), (-_SQUARE_HALF, _SQUARE_HALF)],
    "triangle": _ring([1.2], 3),  # centred on its centroid, as the mask is
    "star": _ring([1.2, 0.56], 10),
}


def _polygon_area(points):
    return abs(sum(ax * by - bx * ay for (ax, ay), (bx, by) in zip(points, points[1:] + points[:1]))) / 2


_AREAS = {"circle": math.pi, **{k: _polygon_area(p) for k, p in _POLYGONS.items()}}


def _inside(points, x, y):
    inside = np.zeros(x.shape, bool)
    for (ax, ay), (bx, by) in zip(points, points[1:] + points[:1]):
        if ay != by:
            inside ^= ((ay > y) != (by > y)) & (x < (bx - ax) * (y - ay) / (by - ay) + ax)
    return inside


def _template(shape, cx, cy, radius, height, width):
    """Coverage of each pixel, 4 x 4 samples a pixel; cx, cy and radius in pixels."""
    over = 4
    xs = ((np.arange(width * over) + 0.5) / over - cx) / radius
    ys = ((np.arange(height * over) + 0.5) / over - cy) / radius
    x, y = np.meshgrid(xs, ys)
    hit = x * x + y * y < 1 if shape == "circle" else _inside(_POLYGONS[shape], x, y)
    return hit.reshape(height, over, width, over).mean((1, 3))


def _blur(mask):
    """[1 2 1] in both directions."""
    for axis in (0, 1):
        padded = np.pad(mask, [(1, 1) if a == axis else (0, 0) for a in (0, 1)], mode="edge")
        n = mask.shape[axis]
        take = lambda s: np.take(padded, range(s, s + n), axis)
        mask = (take(0) + 2 * take(1) + take(2)) / 4
    return mask


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
    seen = dict(ground=_nearest(GROUNDS, ground), colour=None, shape=None, area=0.0, x=0.5, y=0.5, fit=0.0, clear=0.0)
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
    soft, fits = _blur(mask), {}
    for shape in SHAPES:
        radius = math.sqrt(total / _AREAS[shape])
        fits[shape] = max(_correlation(soft, _blur(_template(shape, cx, cy, radius * s, height, width))) for s in _SCALES)
    order = sorted(fits, key=fits.get, reverse=True)
    seen.update(shape=order[0], fit=fits[order[0]], clear=fits[order[0]] - fits[order[1]])
    return seen


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
    """Of two uint8 arrays."""
    error = float(((np.asarray(a, np.float64) - np.asarray(b, np.float64)) ** 2).mean())
    return 99.0 if error == 0 else 10 * math.log10(255**2 / error)
