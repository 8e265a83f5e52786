"""The first minute: a picture, a clip, a continued picture and an action rollout over HTTP, and a contact sheet of them.

    python3 tools/demo.py [--mstar build/release/bin/mstar] [--out out]

Starts a server with the model of this repository on a free port, speaks to it as any client would, and stops it.
Needs ffmpeg and pillow, which `make demo` installs.
"""

import argparse
import base64
import json
import pathlib
import subprocess
import sys
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools/shapes"))

import numpy as np  # noqa: E402
from PIL import Image, ImageDraw  # noqa: E402

import judge  # noqa: E402
from local_server import LocalServer  # noqa: E402

ZOOM = 2
PICTURE = "a big red star on a white background"
CLIP = "a yellow circle moving right on a navy background"
CONTINUED = "a big red star moving left on a white background"
PUSHED = "a pushed big red star on a white background"
# Eight pushes: right, then down.
ACTIONS = [[0.8, 0.0]] * 4 + [[0.0, 0.8]] * 4


class Client:
    def __init__(self, url):
        self.url = url

    def call(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=300) as reply:
                return reply.read()
        except urllib.error.HTTPError as error:
            raise SystemExit(f"demo: {path}: {error.code} {error.read().decode(errors='replace')}") from None

    def picture(self, prompt, **parameters):
        """PNG bytes."""
        reply = json.loads(self.call("/v1/images/generations", dict(parameters, prompt=prompt)))
        return base64.b64decode(reply["data"][0]["b64_json"])

    def video(self, what, prompt, **parameters):
        """MP4 bytes, by a job whose progress is shown."""
        job = json.loads(self.call("/v1/videos", dict(parameters, prompt=prompt)))
        while job["status"] in ("queued", "in_progress"):
            show(what, job.get("progress", 0))
            time.sleep(0.05)
            job = json.loads(self.call(f"/v1/videos/{job['id']}"))
        if job["status"] != "completed":
            raise SystemExit(f"demo: {what}: {job['status']}: {job.get('error')}")
        show(what, 100)
        return self.call(f"/v1/videos/{job['id']}/content")


def show(what, percent, seconds=None):
    bar = "#" * (percent // 5)
    end = "" if seconds is None else f"  {seconds:.2f} s\n"
    if sys.stdout.isatty() or seconds is not None:
        print(f"\r  {what:<22} [{bar:<20}] {percent:3d} %", end=end, flush=True)


def frames_of(mp4):
    """uint8 [frames, height, width, 3]."""
    probe = ["ffprobe", "-v", "error", "-select_streams", "v", "-show_entries", "stream=width,height", "-of", "csv=p=0", str(mp4)]
    width, height = map(int, subprocess.run(probe, check=True, capture_output=True, text=True).stdout.strip().split(","))
    unpack = ["ffmpeg", "-v", "error", "-i", str(mp4), "-vsync", "0", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    raw = subprocess.run(unpack, check=True, capture_output=True).stdout
    return np.frombuffer(raw, np.uint8).reshape(-1, height, width, 3)


def data_uri(png):
    return "data:image/png;base64," + base64.b64encode(png).decode()


def findings(frames):
    seen = judge.judge_clip(frames) if len(frames) > 1 else judge.judge_frame(frames[0])
    motion = f", {seen['move']}" if "move" in seen else ""
    return f"seen: {seen['colour']} {seen['shape']} on {seen['ground']}{motion}"


def save_sheet(rows, path):
    """`rows`: (caption, frames). One row each, the caption above it."""
    gap, line = 4, 16
    side = rows[0][1].shape[1] * ZOOM
    columns = max(len(frames) for _, frames in rows)
    sheet = Image.new("RGB", (columns * (side + gap) + gap, len(rows) * (side + line + gap) + gap), "white")
    draw = ImageDraw.Draw(sheet)
    for row, (caption, frames) in enumerate(rows):
        top = gap + row * (side + line + gap)
        draw.text((gap, top), caption, fill="black")
        for column, frame in enumerate(frames):
            sheet.paste(Image.fromarray(frame).resize((side, side), Image.NEAREST), (gap + column * (side + gap), top + line))
    sheet.save(path)


def run(client, out):
    rows = []

    def keep(what, prompt, name, make):
        start = time.monotonic()
        show(what, 0)
        data = make()
        path = out / name
        path.write_bytes(data)
        frames = frames_of(path) if name.endswith(".mp4") else np.asarray(Image.open(path).convert("RGB"))[None]
        show(what, 100, time.monotonic() - start)
        print(f"    {prompt}\n    {findings(frames)}  ->  {path}")
        rows.append((f"{what}: {prompt}", frames))
        return data

    picture = keep("1. a picture", PICTURE, "picture.png", lambda: client.picture(PICTURE, seed=1))
    keep("2. a clip", CLIP, "clip.mp4", lambda: client.video("2. a clip", CLIP, seed=2))
    first = data_uri(picture)
    keep("3. the picture goes on", CONTINUED, "continued.mp4", lambda: client.video("3. the picture goes on", CONTINUED, seed=3, image=first))
    push = dict(action_mode="forward_dynamics", action=ACTIONS, image=first, seed=4)
    keep("4. pushed by actions", PUSHED, "pushed.mp4", lambda: client.video("4. pushed by actions", PUSHED, **push))
    return rows


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--mstar", type=pathlib.Path, default=ROOT / "build/release/bin/mstar")
    p.add_argument("--out", type=pathlib.Path, default=ROOT / "out")
    a = p.parse_args()
    a.out.mkdir(parents=True, exist_ok=True)
    print("The model in models/shapes (a Cosmos3 of 14 MB), asked over HTTP:\n")
    with LocalServer(a.mstar) as url:
        rows = run(Client(url), a.out)
    save_sheet(rows, a.out / "demo.png")
    print(f"\nAll of it on one sheet: {(a.out / 'demo.png').resolve()}")


if __name__ == "__main__":
    main()
