"""Draws the shapes world: pictures, clips and pushed clips of one coloured shape, from signed distances, anti-aliased.

Nothing is stored: every batch is a function of its generator, so training can draw new samples all the time.
Pixels are float, -1..1, [batch, 3, frames, size, size]. Positions and radii are in picture widths.
"""

import math
import random

import torch

import captions

SHAPES = list(captions.SHAPES)
COLOUR_RGB = torch.tensor(list(captions.COLOURS.values())) / 127.5 - 1
GROUND_RGB = torch.tensor(list(captions.GROUNDS.values())) / 127.5 - 1
FRAMES = 9
FPS = 8.0
PUSH_SCALE = 0.05  # widths per frame of an action component of 1
PUSH_DOMAIN = 4  # the published id of planar pushing
PUSH_DIMS = 2


def _ring(radii, count, phase=0.0, drop=0.0):
    angle = [2 * math.pi * k / count + phase for k in range(count)]
    return [(radii[k % len(radii)] * math.sin(a), drop - radii[k % len(radii)] * math.cos(a)) for k, a in enumerate(angle)]


# Unit shapes: their radius is about 1. The star is fat and the triangle hangs a little lower than its centroid.
TRIANGLE = _ring([1.2], 3, drop=0.2)
STAR = _ring([1.2, 0.56], 10)
SQUARE_HALF = 0.88


def polygon_distance(x, y, points):
    """Signed distance to a polygon, negative inside."""
    nearest, sign = torch.full_like(x, 1e9), torch.ones_like(x)
    for (ax, ay), (bx, by) in zip(points, points[-1:] + points[:-1]):
        ex, ey, wx, wy = bx - ax, by - ay, x - ax, y - ay
        t = ((wx * ex + wy * ey) / (ex * ex + ey * ey)).clamp(0, 1)
        nearest = torch.minimum(nearest, (wx - t * ex) ** 2 + (wy - t * ey) ** 2)
        above, below, left = y >= ay, y < by, ex * wy > ey * wx
        sign = torch.where((above & below & left) | (~above & ~below & ~left), -sign, sign)
    return sign * nearest.sqrt()


def unit_distance(shape, x, y):
    """Signed distance to the unit shape with this index."""
    if SHAPES[shape] == "circle":
        return (x * x + y * y).sqrt() - 1
    if SHAPES[shape] == "square":
        return torch.maximum(x.abs(), y.abs()) - SQUARE_HALF
    return polygon_distance(x, y, TRIANGLE if SHAPES[shape] == "triangle" else STAR)


def draw(shape, cx, cy, radius, fg, bg, size):
    """shape [B] indices, cx, cy, radius [B, F], fg, bg [B, 3] -> [B, 3, F, size, size]."""
    batch, frames = cx.shape
    grid = (torch.arange(size) + 0.5) / size
    out = torch.empty(batch, 3, frames, size, size)
    for k in range(len(SHAPES)):
        rows = (shape == k).nonzero().flatten()
        if not len(rows):
            continue
        r = radius[rows].view(-1, frames, 1, 1)
        x = (grid.view(1, 1, 1, -1) - cx[rows].view(-1, frames, 1, 1)) / r
        y = (grid.view(1, 1, -1, 1) - cy[rows].view(-1, frames, 1, 1)) / r
        x, y = (t.contiguous() for t in torch.broadcast_tensors(x, y))
        cover = (0.5 - unit_distance(k, x, y) * r * size).clamp(0, 1).unsqueeze(1)
        out[rows] = bg[rows].view(-1, 3, 1, 1, 1).lerp(fg[rows].view(-1, 3, 1, 1, 1), cover)
    return out


def _push_actions(rng, frames):
    """A hand that pushes one way and then another: [frames - 1, 2] in -1..1."""
    steps, switch = frames - 1, rng.choice((frames - 1, (frames - 1) // 2, rng.randint(2, frames - 3)))
    rows, heading = [], (0.0, 0.0)
    for i in range(steps):
        if i in (0, switch):
            angle, speed = rng.uniform(0, 2 * math.pi), rng.choice((0.0, rng.uniform(0.4, 1.0), rng.uniform(0.6, 1.0)))
            heading = (speed * math.cos(angle), speed * math.sin(angle))
        rows.append(heading)
    return rows


def trajectory(a, rng, frames, wide):
    """Centres and radii over the frames, and the actions of a push (else None), for the attributes `a`.

    Where no word names the place, a shape or the middle of its path stands in the middle half of the free space, or
    anywhere when `wide`: half the freedom leaves more of a small model for the outlines.
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
        radii = [radius * (0.75 + 0.5 * f / (frames - 1)) for f in range(frames)]
        reach *= 1.25
    elif frames > 1 and a["move"] != "still":
        dx, dy = captions.DIRECTIONS[a["move"]]
        speed = min(rng.uniform(0.03, 0.042), (1 - 2 * reach) / (frames - 1))
        path = [(dx * speed * f, dy * speed * f) for f in range(frames)]
    centre = []
    place = captions.PLACES[a["place"]] or (None, None)
    for axis in (0, 1):
        low, high = min(p[axis] for p in path), max(p[axis] for p in path)
        if high - low > 1 - 2 * reach and actions:  # too long a push for the picture: a shorter one
            scale = (1 - 2 * reach) / (high - low)
            path = [tuple(v * scale if i == axis else v for i, v in enumerate(p)) for p in path]
            actions = [tuple(v * scale if i == axis else v for i, v in enumerate(row)) for row in actions]
            low, high = low * scale, high * scale
        first, last = reach - low, 1 - reach - high
        where = rng.random() if place[axis] is None else 0.2 * rng.random() if place[axis] < 0 else 1 - 0.2 * rng.random()
        if place[axis] is None and not wide:
            where = 0.25 + 0.5 * where
        centre.append(first + (last - first) * where)
    return [(x + centre[0], y + centre[1]) for x, y in path], radii, actions


def render(attributes, seed, frames, size, free=0.0, wide=False):
    """Pixels [B, 3, frames, size, size] and actions [B, frames - 1, 2] (zeros where nothing pushes).

    `free` is the share of samples in arbitrary colours, which teaches the autoencoder pictures that users bring.
    """
    rng = random.Random(seed)
    batch = len(attributes)
    paths, radii = torch.empty(batch, frames, 2), torch.empty(batch, frames)
    actions = torch.zeros(batch, max(frames - 1, 1), PUSH_DIMS)
    fg, bg = torch.empty(batch, 3), torch.empty(batch, 3)
    for b, a in enumerate(attributes):
        path, radius, pushes = trajectory(a, rng, frames, wide or a["kind"] == "push")
        paths[b], radii[b] = torch.tensor(path), torch.tensor(radius)
        if pushes is not None:
            actions[b] = torch.tensor(pushes)
        fg[b] = COLOUR_RGB[list(captions.COLOURS).index(a["colour"])]
        bg[b] = GROUND_RGB[list(captions.GROUNDS).index(a["ground"])]
        if rng.random() < free:
            fg[b], bg[b] = (torch.tensor([rng.uniform(-1, 1) for _ in range(3)]) for _ in range(2))
    shape = torch.tensor([SHAPES.index(a["shape"]) for a in attributes])
    return draw(shape, paths[..., 0], paths[..., 1], radii, fg, bg, size), actions


def batch(kind, count, seed, size, frames=None, free=0.0, novel=False, wide=False):
    """A random batch of one kind: (pixels, actions, attributes)."""
    rng = random.Random(seed)
    attributes = [captions.sample_attributes(rng, kind, novel) for _ in range(count)]
    frames = frames or (1 if kind == "image" else FRAMES)
    pixels, actions = render(attributes, rng.random(), frames, size, free, wide)
    return pixels, actions, attributes


def sheet(pixels, path, columns=8, zoom=2):
    """[N, 3, F, H, W] -> a contact sheet; a clip takes one row."""
    from PIL import Image

    count, _, frames, height, width = pixels.shape
    x = ((pixels / 2 + 0.5).clamp(0, 1) * 255).round().to(torch.uint8).permute(0, 2, 3, 4, 1).flatten(0, 1)
    columns = frames if frames > 1 else columns
    rows = -(-len(x) // columns)
    canvas = torch.full((rows * (height + 2), columns * (width + 2), 3), 255, dtype=torch.uint8)
    for i, picture in enumerate(x):
        r, c = divmod(i, columns)
        canvas[r * (height + 2) : r * (height + 2) + height, c * (width + 2) : c * (width + 2) + width] = picture
    picture = Image.fromarray(canvas.numpy())
    picture.resize((picture.width * zoom, picture.height * zoom), 0).save(path)
