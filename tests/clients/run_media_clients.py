#!/usr/bin/env python3
"""The OpenAI client against a running server of a model that draws: images, their events, and videos as jobs.

    mstar serve models/shapes --port 8000 &
    python3 tests/clients/run_media_clients.py http://127.0.0.1:8000
"""
import base64
import io
import struct
import sys
import unittest
import warnings
import zlib

URL = "http://127.0.0.1:8000"

try:
    import openai
except ImportError:
    openai = None


def png(width, height):
    """A grey picture."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + b"\x80" * width) * height
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@unittest.skipIf(openai is None, "no openai package")
class OpenAi(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("ignore", DeprecationWarning)
        self.client = openai.OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0)
        self.model = self.client.models.list().data[0].id

    def draw(self, **fields):
        steps = dict(num_inference_steps=2) | fields.pop("extra_body", {})
        request = dict(model=self.model, prompt="a red star", size="64x64", extra_body=steps) | fields
        return self.client.images.generate(**request)

    def film(self, **fields):
        steps = dict(num_inference_steps=2, fps=8)
        request = dict(model=self.model, prompt="a green ring", seconds="1", size="64x64", extra_body=steps) | fields
        return self.client.videos.create(**request)

    def test_images_have_seeds_of_their_own(self):
        two = self.draw(n=2, extra_body={"seed": 3})
        self.assertEqual(len(two.data), 2)
        self.assertTrue(base64.b64decode(two.data[0].b64_json).startswith(b"\x89PNG"))
        self.assertEqual(self.draw(extra_body={"seed": 4}).data[0].b64_json, two.data[1].b64_json)

    def test_events(self):
        kinds = [event.type for event in self.draw(stream=True, output_format="jpeg")]
        self.assertEqual(kinds, ["image_generation.progress"] * 2 + ["image_generation.completed"])

    def test_a_video_job(self):
        video = self.client.videos.poll(self.film().id, poll_interval_ms=50)
        self.assertEqual((video.status, video.progress), ("completed", 100))
        self.assertIn(video.id, [one.id for one in self.client.videos.list().data])
        self.assertEqual(self.client.videos.download_content(video.id).content[4:8], b"ftyp")
        self.assertTrue(self.client.videos.delete(video.id).deleted)
        with self.assertRaises(openai.NotFoundError):
            self.client.videos.retrieve(video.id)

    def test_a_video_from_an_image(self):
        picture = ("start.png", io.BytesIO(png(40, 30)), "image/png")
        video = self.client.videos.poll(self.film(input_reference=picture).id, poll_interval_ms=50)
        self.assertEqual(video.status, "completed")

    def test_errors(self):
        for fields, param in [({"size": "big"}, "size"), ({"extra_body": {"no_such_field": 1}}, "no_such_field")]:
            with self.assertRaises(openai.BadRequestError) as caught:
                self.draw(**fields)
            self.assertEqual(caught.exception.body["param"], param)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        URL = sys.argv.pop(1).rstrip("/")
    unittest.main()
