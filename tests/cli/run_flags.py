#!/usr/bin/env python3
"""Flags of the mstar program: bad values end with 2 and name the flag, good ones take effect.

    run_flags.py MSTAR_PROGRAM
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(TESTS / "clients"))
from tiny_server import CHECKPOINT, byte_tokenizer  # noqa: E402

DRAWS = TESTS / "golden/cosmos3/checkpoints/nano"
WRITES = pathlib.Path()  # a model of text, made below
PROGRAM = "mstar"


def run(*words, **environment):
    done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=50,
                          env=os.environ | environment)
    return done.returncode, done.stdout, done.stderr


def setUpModule():
    global WRITES
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    WRITES = pathlib.Path(folder.name) / "writes"
    shutil.copytree(CHECKPOINT, WRITES)
    (WRITES / "tokenizer.json").write_text(json.dumps(byte_tokenizer()))


class Flags(unittest.TestCase):
    def refused(self, flag, *words, **environment):
        status, _, error = run(*words, **environment)
        self.assertEqual(status, 2, error)
        self.assertIn(flag, error)

    def test_bad_values_name_the_flag(self):
        for flag, values in {
            "--max-image-pixels": ["x", "", "-1", "0", "255", "1.5", "1e6", "99999999999999999999"],
            "--max-video-frames": ["x", "0", "-3", "2.0", "99999999999999999999"],
            "--max-video-mb": ["x", "0", "-1", "9999999"],
            "--dtype": ["x", "float16", "BF16", "int8", "float32 "],
            "--kv-cache-dtype": ["x", "int8"],
            "--quantization": ["x", "int4"],
            "--max-model-len": ["x", "1", "-5"],
            "--threads": ["x", "-1"],
            "--memory-gb": ["x", "0", "-1", "nan"],
        }.items():
            for value in values:
                with self.subTest(flag=flag, value=value):
                    self.refused(flag, "inspect", DRAWS, f"{flag}={value}")
        for flag in ("--image-store-mb", "--image-store-count", "--image-store-seconds", "--port"):
            with self.subTest(flag=flag):
                self.refused(flag, "serve", WRITES, f"{flag}=x")

    def test_flags_come_from_the_environment_too(self):
        self.refused("--dtype", "inspect", DRAWS, MSTAR_DTYPE="half")
        self.refused("--max-image-pixels", "inspect", DRAWS, MSTAR_MAX_IMAGE_PIXELS="many")

    def test_a_missing_value_names_the_flag(self):
        self.refused("--dtype", "inspect", DRAWS, "--dtype")

    def test_unknown_flags_are_told_the_nearest(self):
        self.refused("--max-image-pixels", "inspect", DRAWS, "--max-image-pixel", "300")

    def test_good_values_are_taken(self):
        for words in (["--max-image-pixels", "65536"], ["--max-video-frames", "9"], ["--max-video-mb", "1"],
                      ["--dtype", "float32"], ["--dtype", "f32"], ["--dtype", "bfloat16"], ["--dtype", "bf16"],
                      ["--dtype", "auto"], ["--dtype=f32", "--kv-cache-dtype=bf16"]):
            with self.subTest(words=words):
                status, _, error = run("inspect", DRAWS, *words)
                self.assertEqual(status, 0, error)

    def test_caps_hold(self):
        picture = ["run", DRAWS, "a cat", "--output", "image", "--height", "64", "--width", "64",
                   "--num-inference-steps", "1"]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "a.png"
            self.refused("--max-image-pixels", *picture, "--out", path, "--max-image-pixels", "1024")
            self.assertFalse(path.exists())
            status, _, error = run(*picture, "--out", path, "--max-image-pixels", "4096")
            self.assertEqual(status, 0, error)
            self.assertTrue(path.read_bytes().startswith(b"\x89PNG"))
            film = ["run", DRAWS, "a cat", "--output", "video", "--out", path, "--num-inference-steps", "1",
                    "--height", "64", "--width", "64", "--num-frames", "9"]
            self.refused("--max-video-frames", *film, "--max-video-frames", "5")

    def test_caps_of_media_are_refused_by_models_of_text(self):
        self.refused("max_image_pixels", "check", WRITES, "--max-image-pixels", "65536")

    def test_schemas_are_read_from_files(self):
        with tempfile.TemporaryDirectory() as folder:
            schema = pathlib.Path(folder) / "schema.json"
            schema.write_text("{")
            self.refused("schema.json", "run", WRITES, "x", "--json-schema", schema)
            schema.write_text(json.dumps({"type": "string", "pattern": "a"}))
            self.refused("--json-schema", "run", WRITES, "x", "--json-schema", schema,
                         "--response-format", '{"type":"text"}')
            self.refused("none.json", "run", WRITES, "x", "--json-schema", pathlib.Path(folder) / "none.json")
            schema.write_text(json.dumps({"type": "string", "pattern": "a"}))
            self.refused("json_schema.schema.pattern", "run", WRITES, "x", "--json-schema", schema)
            self.refused("--json-schema", "run", DRAWS, "x", "--output", "image", "--json-schema", schema)
            schema.write_text(json.dumps({"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3}))
            status, answer, error = run("run", WRITES, "x", "--json-schema", schema, "--max-tokens", "100")
            self.assertEqual(status, 0, error)
            self.assertLessEqual(set(json.loads(answer)), {"a", "b"})


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
