"""The shapes world without torch: geometry of the shapes, paths of motion, and a plain drawing of single samples.

Positions and radii are in picture widths, x to the right and y down. `data.py` draws the same things in batches.
"""

import math
import random

import numpy as np

import captions

FRAMES = 9
FPS = 8.0
SOFT_PIXELS = 2.0  # width of the ramp at an outline: half of what an autoencoder gets wrong is harder edges than that
PUSH_SCALE = 0.03  # widths per frame of an action component of 1
PUSH_DOMAIN = 4  # the published id of planar pushing
PUSH_DIMS = 2
SQUARE_HALF = 0.88
TURN = math.radians(45) / (FRAMES - 1)  # a frame, clockwise: a turning square ends on its corner
TWO_RADIUS = 0.198  # of each of two shapes, which stand in the middles of the halves
SYMMETRY = {"square": 4, "triangle": 3, "star": 5}  # equal positions in a full turn


def _ring(radii, count, drop=0.0):
    turns = [2 * math.pi * k / count for k in range(count)]
    return [(radii[k % len(radii)] * math.sin(a), drop - radii[k % len(radii)] * math.cos(a)) for k, a in enumerate(turns)]


# Unit shapes; a circle of radius 1 is the fourth. The star is fat, the triangle hangs TRIANGLE_DROP below its centroid.
TRIANGLE_DROP = 0.2
POLYGONS = {
    "square": [(-SQUARE_HALF, -SQUARE_HALF), (SQUARE_HALF, -SQUARE_HALF), (SQUARE_HALF, SQUARE_HALF), (-SQUARE_HALF, SQUARE_HALF)],
    "triangle": _ring([1.2], 3, TRIANGLE_DROP),
    "star": _ring([1.2, 0.56], 10),
}


def unit_area(shape):
    if shape == "circle":
        return math.pi
    points = POLYGONS[shape]
    return abs(sum(ax * by - bx * ay for (ax, ay), (bx, by) in zip(points, points[1:] + points[:1]))) / 2


def _inside(points, x, y):
    inside = np.zeros(x.shape, bool)
    for (ax, ay), (bx, by) in zip(points, points[1:] + points[:1]):
        if ay != by:
            inside ^= ((ay > y) != (by > y)) & (x < (bx - ax) * (y - ay) / (by - ay) + ax)
    return inside


def centroid_drop(shape):
    """How far the centroid of the unit shape lies below its centre."""
    return TRIANGLE_DROP if shape == "triangle" else 0.0


def unturn(shape, x, y, cos, sin):
    """Where points of the shape turned clockwise about its centroid lie on the upright shape; arrays or tensors."""
    drop = centroid_drop(shape)
    return cos * x + sin * (y - drop), cos * (y - drop) - sin * x + drop


def coverage(shape, cx, cy, radius, height, width, over=4, angle=0.0):
    """Share of each pixel that the shape covers, over x over samples a pixel; cx, cy and radius in pixels."""
    x = ((np.arange(width * over) + 0.5) / over - cx) / radius
    y = ((np.arange(height * over) + 0.5) / over - cy) / radius
    x, y = np.meshgrid(x, y)
    if angle:
        x, y = unturn(shape, x, y, math.cos(angle), math.sin(angle))
    hit = x * x + y * y < 1 if shape == "circle" else _inside(POLYGONS[shape], x, y)
    return hit.reshape(height, over, width, over).mean((1, 3))


def soften(mask):
    """[1 2 1] in both directions: a one-pixel ramp becomes about SOFT_PIXELS wide."""
    for axis in (0, 1):
        padded = np.pad(mask, [(1, 1) if a == axis else (0, 0) for a in (0, 1)], mode="edge")
        a, b, c = (np.take(padded, range(s, s + mask.shape[axis]), axis) for s in (0, 1, 2))
        mask = (a + 2 * b + c) / 4
    return mask


def draw(pieces, ground, size):
    """uint8 [size, size, 3] of pieces (shape, colour, x, y, radius, angle) on a ground."""
    image = np.array(captions.GROUNDS[ground], np.float64)
    for shape, colour, x, y, radius, angle in pieces:
        cover = soften(coverage(shape, x * size, y * size, radius * size, size, size, angle=angle))[..., None]
        image = cover * np.array(captions.COLOURS[colour]) + (1 - cover) * image
    return np.rint(image).astype(np.uint8)


def _push_actions(rng, frames):
    """A hand that pushes one way and then another: [frames - 1, 2] in -1..1."""
    switch = rng.choice((frames - 1, (frames - 1) // 2, rng.randint(2, frames - 3)))
    rows, heading = [], (0.0, 0.0)
    for i in range(frames - 1):
        if i in (0, switch):
            angle, speed = rng.uniform(0, 2 * math.pi), rng.choice((0.0, rng.uniform(0.4, 1.0), rng.uniform(0.6, 1.0)))
            heading = (speed * math.cos(angle), speed * math.sin(angle))
        rows.append(heading)
    return rows


def trajectory(a, rng, frames, wide):
    """Centres and radii over the frames, and the actions of a push (else None), for the attributes `a`.

    Where no word names the place, a shape or the middle of its path stands in the middle tenth of the free space, or
    anywhere when `wide`: what the words leave open is what a small model blurs, so they leave little open.
    """
    radius = captions.SIZES[a["size"]] + captions.SIZE_JITTER * rng.random()
    radii = [radius] * frames
    reach = 1.2 * radius  # of the farthest corner
    path, actions = [(0.0, 0.0)] * frames, None
    if a["kind"] == "push":
        actions = _push_actions(rng, frames)
        path = [(0.0, 0.0)]
        for dx, dy in actions:
            path.append((path[-1][0] + PUSH_SCALE * dx, path[-1][1] + PUSH_SCALE * dy))
    elif frames > 1 and a["move"] == "growing":
        radii = [radius * (0.8 + 0.4 * f / (frames - 1)) for f in range(frames)]
        reach *= 1.2
    elif a["move"] == captions.TURNING:
        reach *= 1.2  # the corner of a triangle, which turns about its centroid
    elif frames > 1 and a["move"] != "still":
        dx, dy = captions.DIRECTIONS[a["move"]]
        speed = min(rng.uniform(0.025, 0.027), (1 - 2 * reach) / (frames - 1))
        path = [(dx * speed * f, dy * speed * f) for f in range(frames)]
    place = captions.PLACES[a["place"]] or (None, None)
    centre = []
    for axis in (0, 1):
        low, high = min(p[axis] for p in path), max(p[axis] for p in path)
        if high - low > 1 - 2 * reach and actions:  # too long a push for the picture: a shorter one
            scale = (1 - 2 * reach) / (high - low)
            path = [tuple(v * scale if i == axis else v for i, v in enumerate(p)) for p in path]
            actions = [tuple(v * scale if i == axis else v for i, v in enumerate(row)) for row in actions]
            low, high = low * scale, high * scale
        first, last = reach - low, 1 - reach - high
        where = rng.random()
        if place[axis] is not None:
            where = 0.1 * where if place[axis] < 0 else 1 - 0.1 * where
        elif not wide:
            where = 0.45 + 0.1 * where
        centre.append(first + (last - first) * where)
    return [(x + centre[0], y + centre[1]) for x, y in path], radii, actions


def angles(a, frames):
    """How far the shape is turned in each frame, in radians."""
    return [TURN * f if a["move"] == captions.TURNING else 0.0 for f in range(frames)]


def halves(rng):
    """Centres (x, y) and radius of two shapes, each within its half of the picture."""
    jitter = lambda most: most * (2 * rng.random() - 1)
    return [(x + jitter(0.004), 0.5 + jitter(0.03), TWO_RADIUS + captions.SIZE_JITTER * rng.random()) for x in (0.25, 0.75)]


def layout(a, rng, frames, wide):
    """What moves where: for each of `captions.parts` its [(x, y)], radii and angles over the frames; and the actions."""
    if a["kind"] == "two":
        return [([(x, y)] * frames, [r] * frames, [0.0] * frames) for x, y, r in halves(rng)], None
    path, radii, actions = trajectory(a, rng, frames, wide or a["kind"] == "push")
    return [(path, radii, angles(a, frames))], actions


def sample(a, seed, size):
    """One drawn sample of the attributes: frames uint8 [frames, size, size, 3] and actions (a list, or None)."""
    frames = 1 if a["kind"] in captions.PICTURES else FRAMES
    places, actions = layout(a, random.Random(seed), frames, wide=False)
    pictures = []
    for f in range(frames):
        pieces = [(*part, *path[f], radii[f], turned[f]) for part, (path, radii, turned) in zip(captions.parts(a), places)]
        pictures.append(draw(pieces, a["ground"], size))
    return np.stack(pictures), actions
