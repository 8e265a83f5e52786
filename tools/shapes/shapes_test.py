"""Tests of the words, the drawing and the judge: python -m unittest shapes_test (numpy and pillow, no torch)."""

import random
import unittest

import numpy as np

import captions
import judge
import world

SIZE = 64


def samples(kind, count, novel=False):
    rng = random.Random(f"{kind} {novel}")
    for index in range(count):
        a = captions.sample_attributes(rng, kind, novel)
        yield a, *world.sample(a, index, SIZE)


class Words(unittest.TestCase):
    def test_held_out_triples_leave_every_pair_in_training(self):
        triples = [(s, c, g) for s in captions.SHAPES for c in captions.COLOURS for g in captions.GROUNDS]
        novel = {t for t in triples if captions.held_out(*t)}
        self.assertEqual(len(novel), 24)
        for i, j in ((0, 1), (0, 2), (1, 2)):
            pairs = {(t[i], t[j]) for t in triples}
            self.assertEqual(pairs, {(t[i], t[j]) for t in triples if t not in novel})

    def test_training_never_draws_a_held_out_triple(self):
        rng = random.Random(1)
        for novel in (False, True):
            for _ in range(300):
                a = captions.sample_attributes(rng, rng.choice(captions.KINDS), novel)
                self.assertEqual(captions.held_out(a["shape"], a["colour"], a["ground"]), novel)

    def test_caption_names_every_attribute(self):
        rng = random.Random(2)
        for _ in range(200):
            a = captions.sample_attributes(rng, "image")
            text = captions.caption(a, rng)
            for key in ("shape", "colour", "ground", "size", "place"):
                self.assertIn(a[key], text)


class World(unittest.TestCase):
    def test_paths_stay_inside(self):
        rng = random.Random(3)
        for _ in range(300):
            a = captions.sample_attributes(rng, rng.choice(("clip", "push")))
            path, radii, _ = world.trajectory(a, rng, world.FRAMES, wide=True)
            for (x, y), r in zip(path, radii):
                self.assertTrue(r <= x <= 1 - r and r <= y <= 1 - r, (a, x, y, r))

    def test_actions_add_up_to_the_path(self):
        rng = random.Random(4)
        for _ in range(50):
            a = captions.sample_attributes(rng, "push")
            path, _, actions = world.trajectory(a, rng, world.FRAMES, wide=True)
            for axis in (0, 1):
                moved = sum(row[axis] for row in actions) * world.PUSH_SCALE
                self.assertAlmostEqual(moved, path[-1][axis] - path[0][axis])
                self.assertLessEqual(max(abs(row[axis]) for row in actions), 1)


class Judge(unittest.TestCase):
    def test_names_what_is_drawn(self):
        for a, frames, _ in samples("image", 48):
            seen = judge.judge_frame(frames[0])
            for key in ("shape", "colour", "ground"):
                self.assertEqual(seen[key], a[key], a)
            if a["place"]:
                self.assertTrue(judge.place_of(seen, a["place"]), a)

    def test_names_motion(self):
        for a, frames, _ in samples("clip", 24):
            seen = judge.judge_clip(frames)
            self.assertEqual((seen["move"], seen["shape"]), (a["move"], a["shape"]))

    def test_is_not_flattered(self):
        rng = np.random.default_rng(0)
        noise = rng.integers(0, 256, (SIZE, SIZE, 3), np.uint8)
        empty = np.full((SIZE, SIZE, 3), 200, np.uint8)
        self.assertIsNone(judge.judge_frame(empty)["shape"])
        self.assertLess(judge.judge_frame(noise)["fit"], 0.5)

    def test_psnr(self):
        a = np.zeros((4, 4, 3), np.uint8)
        self.assertEqual(judge.psnr(a, a), 99.0)
        self.assertAlmostEqual(judge.psnr(a, a + 255), 0.0)


if __name__ == "__main__":
    unittest.main()
