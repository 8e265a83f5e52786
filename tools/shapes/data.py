"""Batches of the shapes world in torch: pictures, clips and pushed clips, from signed distances, anti-aliased.

Nothing is stored: every batch is a function of its seed, so training can draw new samples all the time.
Pixels are float, -1..1, [batch, 3, frames, size, size]. Geometry and paths are those of `world.py`.
"""

import random

import torch

import captions
import world
from world import FPS, FRAMES, PUSH_DIMS, PUSH_DOMAIN, PUSH_SCALE  # noqa: F401  (read by the trainers as data.X)

SHAPES = list(captions.SHAPES)
COLOUR_RGB = torch.tensor(list(captions.COLOURS.values())) / 127.5 - 1
GROUND_RGB = torch.tensor(list(captions.GROUNDS.values())) / 127.5 - 1


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
        return torch.maximum(x.abs(), y.abs()) - world.SQUARE_HALF
    return polygon_distance(x, y, world.POLYGONS[SHAPES[shape]])


def covers(shape, cx, cy, radius, angle, size):
    """Share of each pixel that a shape covers: shape [B] indices, cx, cy, radius, angle [B, F] -> [B, 1, F, size, size]."""
    batch, frames = cx.shape
    grid = (torch.arange(size) + 0.5) / size
    out = torch.empty(batch, 1, frames, size, size)
    for k, name in enumerate(SHAPES):
        rows = (shape == k).nonzero().flatten()
        if not len(rows):
            continue
        r, turn = (t[rows].view(-1, frames, 1, 1) for t in (radius, angle))
        x = (grid.view(1, 1, 1, -1) - cx[rows].view(-1, frames, 1, 1)) / r
        y = (grid.view(1, 1, -1, 1) - cy[rows].view(-1, frames, 1, 1)) / r
        if turn.any():
            x, y = world.unturn(name, x, y, turn.cos(), turn.sin())
        x, y = (t.contiguous() for t in torch.broadcast_tensors(x, y))
        out[rows, 0] = (0.5 - unit_distance(k, x, y) * r * size / world.SOFT_PIXELS).clamp(0, 1)
    return out


def render(attributes, seed, frames, size, free=0.0, wide=False):
    """Pixels [B, 3, frames, size, size] and actions [B, frames - 1, 2] (zeros where nothing pushes).

    `free` is the share of samples in arbitrary colours, which teaches the autoencoder pictures that users bring.
    """
    rng = random.Random(seed)
    colour = lambda rgb, own: torch.tensor([rng.uniform(-1, 1) for _ in range(3)]) if own else rgb
    actions = torch.zeros(len(attributes), max(frames - 1, 1), PUSH_DIMS)
    grounds, pieces = [], []  # a piece: row of the batch, shape, colour, [4, frames] of x, y, radius, angle
    for b, a in enumerate(attributes):
        places, pushes = world.layout(a, rng, frames, wide)
        if pushes is not None:
            actions[b] = torch.tensor(pushes)
        own = rng.random() < free
        grounds.append(colour(GROUND_RGB[list(captions.GROUNDS).index(a["ground"])], own))
        for (shape, name), (path, radii, turned) in zip(captions.parts(a), places):
            rgb = colour(COLOUR_RGB[list(captions.COLOURS).index(name)], own)
            pieces.append((b, SHAPES.index(shape), rgb, torch.tensor([*zip(*path), radii, turned])))
    cover = covers(torch.tensor([p[1] for p in pieces]), *torch.stack([p[3] for p in pieces], 1), size)
    pixels = torch.stack(grounds).view(-1, 3, 1, 1, 1).repeat(1, 1, frames, size, size)
    seen = set()
    first = [i for i, p in enumerate(pieces) if not (p[0] in seen or seen.add(p[0]))]
    for layer in (first, sorted(set(range(len(pieces))) - set(first))):
        rows = [pieces[i][0] for i in layer]
        if rows:
            pixels[rows] = pixels[rows].lerp(torch.stack([pieces[i][2] for i in layer]).view(-1, 3, 1, 1, 1), cover[layer])
    return pixels, actions


def batch(kind, count, seed, size, frames=None, free=0.0, novel=False, wide=False, move=None):
    """A random batch of one kind: (pixels, actions, attributes)."""
    rng = random.Random(seed)
    attributes = [captions.sample_attributes(rng, kind, novel, move) for _ in range(count)]
    frames = frames or (1 if kind in captions.PICTURES else FRAMES)
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
