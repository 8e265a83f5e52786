"""Tests of the words, the drawing and the judge: python -m unittest shapes_test (numpy and pillow, no torch)."""

import random
import unittest

import numpy as np

import captions
import judge
import world

SIZE = 64


def samples(kind, count, novel=False, move=None):
    rng = random.Random(f"{kind} {novel}")
    for index in range(count):
        a = captions.sample_attributes(rng, kind, novel, move)
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
                for part in captions.parts(a):
                    self.assertEqual(captions.held_out(*part, a["ground"]), novel)

    def test_no_circle_turns(self):
        self.assertFalse([text for text in captions.all_captions() if "turning" in text and "circle" in text])
        rng = random.Random(5)
        turning = [captions.sample_attributes(rng, "clip", move=captions.TURNING) for _ in range(60)]
        self.assertEqual({a["shape"] for a in turning}, set(captions.SHAPES) - {"circle"})

    def test_caption_of_two_names_the_left_one_first(self):
        rng = random.Random(6)
        for _ in range(100):
            a = captions.sample_attributes(rng, "two")
            left, right = (f"{colour} {shape}" for shape, colour in captions.parts(a))
            text = captions.caption(a, rng)
            self.assertLess(text.index(left), text.rindex(right), text)

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


    def test_two_stand_in_their_halves(self):
        rng = random.Random(5)
        for _ in range(50):
            for (x, y, r), half in zip(world.halves(rng), (0, 0.5)):
                self.assertTrue(half <= x - 1.2 * r and x + 1.2 * r <= half + 0.5 and 0 <= y - 1.2 * r and y + 1.2 * r <= 1)

    def test_turned_shape_covers_what_the_upright_one_does_at_its_symmetry(self):
        for shape, times in world.SYMMETRY.items():
            upright, turned, halfway = (
                world.coverage(shape, 32, 32, 20, SIZE, SIZE, angle=share * 2 * np.pi / times) for share in (0, 1, 0.5)
            )
            self.assertLess(abs(upright - turned).mean(), 0.002)
            self.assertGreater(abs(upright - halfway).mean(), 0.02)


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

    def test_measures_turning(self):
        for a, frames, _ in samples("clip", 12, move=captions.TURNING):
            seen = judge.judge_clip(frames)
            self.assertEqual((seen["move"], seen["shape"]), (captions.TURNING, a["shape"]))
            self.assertAlmostEqual(seen["turn"], 45, delta=3)
            self.assertAlmostEqual(judge.turn_of(frames[::-1], a["shape"]), -45, delta=3)
            self.assertGreater(judge.fit_of(frames[-1], a["shape"], turned=True), 0.99)
            self.assertLess(judge.fit_of(frames[-1], a["shape"]), 0.99)

    def test_names_both_of_two(self):
        for a, frames, _ in samples("two", 32):
            for seen, part in zip(judge.judge_two(frames[0]), captions.parts(a), strict=True):
                self.assertEqual((seen["shape"], seen["colour"], seen["ground"]), (*part, a["ground"]))

    def test_fit_is_the_frame_s(self):
        for a, frames, _ in samples("image", 4):
            for turned in (False, True):
                fits = judge.judge_frame(frames[0], turned)["fits"]
                self.assertEqual(fits, {shape: judge.fit_of(frames[0], shape, turned) for shape in captions.SHAPES})
            self.assertEqual(judge.fit_of(np.full((SIZE, SIZE, 3), 200, np.uint8), a["shape"]), 0.0)

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
