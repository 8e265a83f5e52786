"""Words of the shapes world: what can be drawn, how it is said, and which combinations training never sees.

Pure Python, no dependency: the data generator, the tokenizer, the trainer and the evaluation all read it.
"""

import itertools
import random

SHAPES = ("circle", "square", "triangle", "star")
COLOURS = {
    "red": (220, 30, 30),
    "orange": (255, 140, 0),
    "yellow": (250, 220, 30),
    "green": (30, 160, 60),
    "cyan": (40, 210, 220),
    "blue": (40, 70, 220),
    "purple": (140, 50, 180),
    "pink": (255, 130, 190),
}
GROUNDS = {
    "black": (15, 15, 15),
    "white": (245, 245, 245),
    "gray": (125, 125, 125),
    "brown": (95, 60, 30),
    "navy": (15, 20, 75),
    "beige": (225, 205, 165),
}
# Radius in picture widths; every drawing adds up to SIZE_JITTER.
SIZES = {"small": 0.19, "": 0.235, "big": 0.28}
SIZE_JITTER = 0.006
MOVES = ("still", "left", "right", "up", "down", "growing")
TURNING = "turning"  # is drawn only where it is asked for, so that a circle never turns
DIRECTIONS = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}
# Where the centre of a shape stands in a picture: (x, y) offsets from the middle, in units of the free space.
PLACES = {"": None, "on the left": (-1, None), "on the right": (1, None), "at the top": (None, -1), "at the bottom": (None, 1)}

IMAGE_FORMS = (
    "a {s}{c} {k}{p} on a {g} background",
    "{s}{c} {k}{p} on {g}",
    "a picture of a {s}{c} {k}{p} on a {g} background",
    "{s}{c} {k}{p}, {g} background",
)
MOVE_FORMS = (
    "a {s}{c} {k} moving {m} on a {g} background",
    "a {s}{c} {k} moves {m} on a {g} background",
    "{s}{c} {k} moving {m}, {g} background",
    "a video of a {s}{c} {k} moving {m} on a {g} background",
)
STILL_FORMS = (
    "a {s}{c} {k} standing still on a {g} background",
    "a still {s}{c} {k} on a {g} background",
    "a video of a still {s}{c} {k} on a {g} background",
)
GROW_FORMS = (
    "a {c} {k} growing on a {g} background",
    "a growing {c} {k} on a {g} background",
    "a video of a {c} {k} growing on a {g} background",
)
TURN_FORMS = (
    "a {s}{c} {k} turning on a {g} background",
    "a turning {s}{c} {k} on a {g} background",
    "{s}{c} {k} turning, {g} background",
    "a video of a turning {s}{c} {k} on a {g} background",
)
# The first shape stands on the left, the second on the right, whether the words say so or not.
TWO_FORMS = (
    "a {c} {k} on the left and a {c2} {k2} on the right on a {g} background",
    "a {c} {k} and a {c2} {k2} on a {g} background",
    "{c} {k} on the left, {c2} {k2} on the right, {g} background",
    "{c} {k} and {c2} {k2} on {g}",
)
PUSH_FORMS = (
    "a pushed {s}{c} {k} on a {g} background",
    "pushing a {s}{c} {k} on a {g} background",
)
KINDS = ("image", "two", "clip", "push")
PICTURES = ("image", "two")  # kinds of one frame


def held_out(shape, colour, ground):
    """True for the 24 of the 192 triples that no training sample shows, whatever its size, place or motion.

    A Latin pattern: each ground misses each shape once, each colour is missed by three grounds, so every word is seen
    with every other word and only the triples are new.
    """
    s, c, g = SHAPES.index(shape), list(COLOURS).index(colour), list(GROUNDS).index(ground)
    return (2 * s + 3 * g + (s + g) // 3) % 8 == c


def forms(kind, move):
    if kind == "image":
        return IMAGE_FORMS
    if kind == "two":
        return TWO_FORMS
    if kind == "push":
        return PUSH_FORMS
    return {"still": STILL_FORMS, "growing": GROW_FORMS, TURNING: TURN_FORMS}.get(move, MOVE_FORMS)


def can_move(shape, move):
    """A turning circle looks like a still one, so no caption says it."""
    return not (shape == "circle" and move == TURNING)


def parts(a):
    """What stands in a sample: [(shape, colour)], from left to right."""
    return [(a["shape"], a["colour"])] + ([a["second"]] if a["kind"] == "two" else [])


def sample_attributes(rng, kind, novel=False, move=None):
    """One random combination: dict(kind, shape, colour, ground, size, place, move). A clip has this `move`, or one of
    MOVES.

    `novel` picks a held-out triple. Two shapes have a `second` (shape, colour) of another colour, whose triple is held
    out exactly when the first one's is.
    """
    while True:
        a = dict(
            kind=kind,
            shape=rng.choice(SHAPES),
            colour=rng.choice(list(COLOURS)),
            ground=rng.choice(list(GROUNDS)),
            size=rng.choice(list(SIZES)),
            place=rng.choice(list(PLACES)) if kind == "image" and rng.random() < 0.6 else "",
            move=(move or rng.choice(MOVES)) if kind == "clip" else "still",
        )
        if a["move"] == "growing":
            a["size"] = ""  # the size changes, so no caption names it
        if kind == "two":
            a.update(size="", second=(rng.choice(SHAPES), rng.choice(list(COLOURS))))
            if a["second"][1] == a["colour"]:
                continue
        if can_move(a["shape"], a["move"]) and all(held_out(*part, a["ground"]) == novel for part in parts(a)):
            return a


def caption(a, rng=random, form=None):
    """The attributes in plain words."""
    choices = forms(a["kind"], a["move"])
    text = choices[form % len(choices)] if form is not None else rng.choice(choices)
    size = a["size"] + " " if a["size"] else ""
    place = " " + a["place"] if a["place"] else ""
    k2, c2 = parts(a)[-1]
    return text.format(s=size, c=a["colour"], k=a["shape"], p=place, g=a["ground"], m=a["move"], k2=k2, c2=c2)


def all_captions():
    """Every caption that can be said, of two shapes those with one second shape: the corpus of the tokenizer."""
    for kind in KINDS:
        for move in (*MOVES, TURNING) if kind == "clip" else ("still",):
            places = PLACES if kind == "image" else ("",)
            sizes = ("",) if move == "growing" or kind == "two" else SIZES
            choices = itertools.product(range(len(forms(kind, move))), SHAPES, COLOURS, GROUNDS, sizes, places)
            for form, shape, colour, ground, size, place in choices:
                if can_move(shape, move):
                    a = dict(kind=kind, shape=shape, colour=colour, ground=ground, size=size, place=place, move=move)
                    yield caption(dict(a, second=(shape, colour)), form=form)


if __name__ == "__main__":
    triples = [(s, c, g) for s in SHAPES for c in COLOURS for g in GROUNDS if held_out(s, c, g)]
    print(len(triples), "held-out triples")
    for k in range(3):
        for v in (SHAPES, COLOURS, GROUNDS)[k]:
            print(v, sum(t[k] == v for t in triples), end="  ")
        print()
    print(len(set(all_captions())), "captions")
    rng = random.Random(1)
    for kind in KINDS:
        for _ in range(4):
            print(kind, "|", caption(sample_attributes(rng, kind), rng))
