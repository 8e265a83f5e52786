"""Says what a picture or clip shows: background, colour, shape, place, motion, turning. numpy only, no model.

A picture is uint8 [height, width, 3]; a clip is a sequence of them. The shape is the unit template that correlates best
with the soft mask, over a small search of scales. Both are blurred a little, so that a soft outline costs nothing by
itself; a rounded star is a circle and is called one.
"""

import math

import numpy as np

import world
from captions import COLOURS, GROUNDS, SHAPES, TURNING

STILL_LIMIT = 0.08  # widths: a shorter path of the centroid is no motion
GROW_LIMIT = 1.4  # ratio of the last area to the first
TURN_LIMIT = 20  # degrees over the clip: less is no turning
# Where a corner of the upright shape stands, seen from its centroid; angles grow clockwise from the right.
CORNER = {"square": -math.pi / 4, "triangle": -math.pi / 2, "star": -math.pi / 2}
SCALES = (0.9, 0.95, 1.0, 1.05, 1.1)


def _soft_template(shape, cx, cy, radius, height, width, angle):
    """Coverage of the shape whose centroid is at cx, cy."""
    top = cy - world.centroid_drop(shape) * radius
    return world.soften(world.soften(world.coverage(shape, cx, top, radius, height, width, over=2, angle=angle)))


def _correlation(a, b):
    a, b = a - a.mean(), b - b.mean()
    return float((a * b).sum() / max(1e-9, math.sqrt((a * a).sum() * (b * b).sum())))


def _nearest(palette, rgb):
    return min(palette, key=lambda name: sum((float(a) - b) ** 2 for a, b in zip(rgb, palette[name])))


def _stand_out(image):
    """What differs from the ground: (ground, mask 0..1, weight of the pixels in it); mask is None when nothing does."""
    height, width = image.shape[:2]
    border = np.concatenate([image[:2].reshape(-1, 3), image[-2:].reshape(-1, 3), image[:, :2].reshape(-1, 3), image[:, -2:].reshape(-1, 3)])
    ground = np.median(border, 0)
    distance = np.sqrt(((image - ground) ** 2).sum(2))
    top = np.sort(distance.ravel())[-max(8, height * width // 50) :]
    peak = float(np.median(top))
    mask = np.clip(distance / max(peak, 1e-3), 0, 1)
    if (mask > 0.5).sum() < height * width / 100 or peak < 32:
        return ground, None, None
    return ground, mask, mask * (mask > 0.25)


def _centroid(weight):
    height, width = weight.shape
    xs, ys, total = np.arange(width) + 0.5, np.arange(height) + 0.5, weight.sum()
    return float((weight.sum(0) * xs).sum() / total), float((weight.sum(1) * ys).sum() / total)


def _angle(weight, cx, cy, shape):
    """How far the shape is turned, in radians below its symmetry: the phase of the moment that its corners make."""
    times = world.SYMMETRY.get(shape)
    if times is None:
        return 0.0
    height, width = weight.shape
    z = (np.arange(width) + 0.5 - cx)[None, :] + 1j * (np.arange(height) + 0.5 - cy)[:, None]
    moment = (weight * (z / max(height, width)) ** times).sum()
    return (float(np.angle(moment)) / times - CORNER[shape]) % (2 * math.pi / times)


def _fit(mask, weight, shape, turned):
    """Best correlation of the mask with this shape over a few scales, upright or `turned` as its corners are."""
    (height, width), (cx, cy) = mask.shape, _centroid(weight)
    radius = math.sqrt(weight.sum() / world.unit_area(shape))
    angle = _angle(weight, cx, cy, shape) if turned else 0.0
    soft = world.soften(mask)
    return max(_correlation(soft, _soft_template(shape, cx, cy, radius * s, height, width, angle)) for s in SCALES)


def judge_frame(picture, turned=False):
    """dict(ground, colour, shape, area, x, y, fit, clear). colour and shape are None when nothing stands out.

    Shapes stand upright, or with `turned` at whatever angle they seem to have."""
    image = np.asarray(picture, np.float64)
    height, width = image.shape[:2]
    ground, mask, weight = _stand_out(image)
    seen = dict(ground=_nearest(GROUNDS, ground), colour=None, shape=None, area=0.0, x=0.5, y=0.5, fit=0.0, clear=0.0, fits={})
    if mask is None:
        return seen
    core = image[mask > 0.8]
    seen["colour"] = _nearest(COLOURS, np.median(core, 0))
    total, (cx, cy) = weight.sum(), _centroid(weight)
    seen.update(area=float(total) / (height * width), x=cx / width, y=cy / height)
    fits = {shape: _fit(mask, weight, shape, turned) for shape in SHAPES}
    order = sorted(fits, key=fits.get, reverse=True)
    seen.update(shape=order[0], fit=fits[order[0]], clear=fits[order[0]] - fits[order[1]], fits=fits)
    return seen


def judge_two(picture):
    """The findings of the left and of the right half, each about its own shape."""
    middle = len(picture[0]) // 2
    return [judge_frame(half) for half in (picture[:, :middle], picture[:, middle:])]


def fit_of(picture, shape, turned=False):
    """Best correlation of the picture's mask with this shape, 1 for a perfect drawing, 0 where nothing stands out."""
    _, mask, weight = _stand_out(np.asarray(picture, np.float64))
    return 0.0 if mask is None else _fit(mask, weight, shape, turned)


def turn_of(clip, shape):
    """Degrees by which this shape turns from the first to the last frame, clockwise; followed from frame to frame, for
    one picture tells an angle only up to the shape's symmetry. 0 when it is lost."""
    symmetry, angles = 2 * math.pi / world.SYMMETRY.get(shape, 1), []
    for picture in clip:
        _, mask, weight = _stand_out(np.asarray(picture, np.float64))
        if mask is None:
            return 0.0
        angles.append(_angle(weight, *_centroid(weight), shape))
    steps = [(b - a + symmetry / 2) % symmetry - symmetry / 2 for a, b in zip(angles, angles[1:])]
    return math.degrees(sum(steps))


def judge_clip(clip):
    """The middle frame's findings, and the motion from the first to the last frame."""
    first, middle, last = (judge_frame(clip[i]) for i in (0, len(clip) // 2, -1))
    seen = dict(middle)
    dx, dy = last["x"] - first["x"], last["y"] - first["y"]
    seen.update(dx=dx, dy=dy, growth=last["area"] / max(first["area"], 1e-6), shapes=[s["shape"] for s in (first, middle, last)])
    if max(abs(dx), abs(dy)) >= STILL_LIMIT:
        seen["move"] = ("left" if dx < 0 else "right") if abs(dx) > abs(dy) else ("up" if dy < 0 else "down")
    elif seen["growth"] > GROW_LIMIT:
        seen["move"] = "growing"
    else:
        turned = judge_frame(clip[len(clip) // 2], turned=True)
        seen["turn"] = turn_of(clip, turned["shape"])
        seen["move"] = TURNING if abs(seen["turn"]) > TURN_LIMIT else "still"
        if seen["move"] == TURNING:
            seen.update(turned)
    return seen


def look(frames, two=False):
    """The findings of a picture (one frame) or clip: one dict, or with `two` those of the left and the right shape."""
    if two:
        return judge_two(frames[0])
    return [judge_clip(frames) if len(frames) > 1 else judge_frame(frames[0])]


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
