"""Scores a shapes checkpoint on captions whose shape, colour and background were never trained together.

    python evaluate.py --checkpoint ../../models/shapes              the PyTorch pipeline, one request after another
    python evaluate.py --checkpoint ../../models/shapes --batched    the same mathematics in batches: 20 times faster
    python evaluate.py --server http://127.0.0.1:8000                an mstar server over HTTP, no torch needed
    python evaluate.py --mstar ../../build/release/bin/mstar         the same, with a server of its own

Modes: t2i (text to image), two (the same, of two shapes), t2v (text to video), turn (the same, of turning shapes),
i2v (image to video), push (image and actions to video).
The same cases, seeds and settings go to every back end. `--noise-dir` makes the starting noise equal too: one raw
float32 file per case, [channels, latent frames, height / 16, width / 16], written on first use. A server receives it as
base64 in the field named by `--noise-field`.
With `--require` the program exits with 1 unless every named score is reached, for example t2i.shape=0.95,t2v.move=0.9;
`--require shipped` asks for what models/shapes is known to reach even over few cases.
"""

import argparse
import base64
import collections
import io
import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile
import urllib.request

import numpy as np
from PIL import Image

import captions
import judge
import world
from local_server import LocalServer

# Of each mode: the kind of its captions and the motion of its clips, where that is always the same.
MODES = {
    "t2i": ("image", None),
    "two": ("two", None),
    "t2v": ("clip", None),
    "turn": ("clip", captions.TURNING),
    "i2v": ("clip", None),
    "push": ("push", None),
}
CHANNELS = 16
# What 32 cases a mode of the shipped model reach with room for chance; `make test` holds a server to it.
SHIPPED = (
    "t2i.colour=0.95,t2i.ground=0.95,t2i.shape=0.8,t2i.place=0.9,t2i.fit=0.99,t2v.shape=0.8,t2v.move=0.9,t2v.fit=0.987,"
    "i2v.shape=0.75,i2v.first_luma_db=33,i2v.move=0.9,push.first_luma_db=33,push.pushed_right=0.85,"
    "two.colour=0.9,two.each_shape=0.8,turn.shape=0.75,turn.move=0.75"
)


def arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--checkpoint", type=pathlib.Path)
    p.add_argument("--batched", action="store_true")
    p.add_argument("--server")
    p.add_argument("--mstar", type=pathlib.Path, help="the program: serves the checkpoint (or its default) while this runs")
    p.add_argument("--model", help="the name to send to the server")
    p.add_argument("--modes", default="t2i,two,t2v,turn,i2v,push", help="of: " + ", ".join(MODES))
    p.add_argument("--count", type=int, default=200)
    p.add_argument("--size", type=int, default=64)
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--guidance", type=float, default=4.0)
    p.add_argument("--seed", type=int, default=2026)
    p.add_argument("--noise-dir", type=pathlib.Path)
    p.add_argument("--noise-field", default="noise")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--sheets", type=pathlib.Path, help="folder for contact sheets")
    p.add_argument("--out", type=pathlib.Path, help="scores and every finding as JSON")
    p.add_argument("--require", default="")
    return p.parse_args()


def make_cases(mode, a):
    """The held-out cases of one mode: dicts of prompt, attributes, seed, drawn frames, actions, noise."""
    cases = []
    rng = random.Random(f"{a.seed} {mode}")
    kind, move = MODES[mode]
    for index in range(a.count):
        attributes = captions.sample_attributes(rng, kind, novel=True, move=move)
        prompt = captions.caption(attributes, rng)
        seed = rng.randrange(2**31)
        drawn, actions = world.sample(attributes, seed, a.size)
        case = dict(mode=mode, index=index, prompt=prompt, attributes=attributes, seed=seed, drawn=drawn, actions=actions, noise=None)
        if a.noise_dir:
            case["noise"] = read_noise(a, case)
        cases.append(case)
    return cases


def read_noise(a, case):
    shape = (CHANNELS, 1 + (len(case["drawn"]) - 1) // 4, a.size // 16, a.size // 16)
    path = a.noise_dir / f"{case['mode']}_{case['index']:04d}.f32"
    if not path.exists():
        a.noise_dir.mkdir(parents=True, exist_ok=True)
        np.random.default_rng(case["seed"]).standard_normal(shape, np.float32).astype("<f4").tofile(path)
    return np.fromfile(path, "<f4").reshape(shape)


def guidance_of(mode, a):
    return 1.0 if mode == "push" else a.guidance


# ------------------------------------------------------------------------------------------------------ back ends


class PipelineBackend:
    """diffusers' own pipeline class on the published folder."""

    def __init__(self, a):
        import torch
        from diffusers import Cosmos3OmniPipeline

        torch.set_num_threads(a.threads)
        self.a, self.torch = a, torch
        self.pipe = Cosmos3OmniPipeline.from_pretrained(a.checkpoint, torch_dtype=torch.float32)
        self.pipe.set_progress_bar_config(disable=True)

    def generate(self, cases):
        return [self._one(c) for c in cases]

    def _one(self, case):
        a, torch = self.a, self.torch
        noise = None if case["noise"] is None else torch.from_numpy(case["noise"])[None]
        common = dict(prompt=case["prompt"], negative_prompt="", num_inference_steps=a.steps, fps=world.FPS, output_type="np")
        common.update(guidance_scale=guidance_of(case["mode"], a), generator=torch.Generator().manual_seed(case["seed"]))
        common.update(use_system_prompt=False, add_resolution_template=False, add_duration_template=False)
        first = Image.fromarray(case["drawn"][0]) if case["mode"] in ("i2v", "push") else None
        if noise is not None and first is not None:
            clip = torch.from_numpy(case["drawn"][:1]).permute(3, 0, 1, 2)[None].float() / 127.5 - 1
            noise[:, :, :1] = self.pipe._encode_video(clip)
        if case["mode"] == "push":
            frames = self._push(case, first, noise, common)
        else:
            size = dict(num_frames=len(case["drawn"]), height=a.size, width=a.size)
            frames = self.pipe(image=first, latents=noise, **size, **common).video
        return np.rint(np.clip(np.asarray(frames), 0, 1) * 255).astype(np.uint8)

    def _push(self, case, first, noise, common):
        """The pipeline knows action requests at 256 pixels and above, with a JSON caption. Ours are small and bare."""
        from diffusers.pipelines.cosmos.pipeline_cosmos3_omni import CosmosActionCondition

        torch, pipe, size = self.torch, self.pipe, self.a.size
        tokenize, conditioning = pipe.tokenize_prompt, pipe._prepare_action_video_conditioning

        def small_canvas(clip, tier, frames, device, dtype):
            x = pipe.video_processor.preprocess_video(clip).to(device=device, dtype=dtype)
            return x.expand(-1, -1, frames, -1, -1), torch.tensor([size, size, size, size], dtype=torch.float32), size, size

        def bare_text(*args, action_mode=None, **kwargs):
            return tokenize(*args, **kwargs)

        pipe.tokenize_prompt, pipe._prepare_action_video_conditioning = bare_text, small_canvas
        try:
            condition = CosmosActionCondition(
                mode="forward_dynamics",
                chunk_size=world.FRAMES - 1,
                domain_name="pusht",
                resolution_tier=256,
                raw_actions=torch.tensor(case["actions"]),
                image=first,
            )
            return pipe(action=condition, latents=noise, **common).video
        finally:
            pipe.tokenize_prompt, pipe._prepare_action_video_conditioning = tokenize, conditioning


class BatchedBackend:
    """The trainer's batched forward on the same folder; `python dit.py` shows that it equals the class."""

    def __init__(self, a):
        import tokenizers
        import torch

        import dit
        import tok
        import vae

        torch.set_num_threads(a.threads)
        torch.set_grad_enabled(False)
        self.a, self.torch, self.dit, self.tok, self.vae = a, torch, dit, tok, vae
        vae.use_fast_layers()
        mean, std = vae.read_latent_statistics(a.checkpoint)
        self.mean, self.std = (torch.tensor(v).view(1, -1, 1, 1, 1) for v in (mean, std))
        self.autoencoder = vae.build(a.checkpoint).eval()
        self.model = dit.build().eval()
        self.model.load_state_dict(vae.read_state(a.checkpoint, "transformer"))
        self.tokenizer = tokenizers.Tokenizer.from_file(str(a.checkpoint / "text_tokenizer/tokenizer.json"))

    def generate(self, cases):
        out = []
        for start in range(0, len(cases), 25):
            out += self._batch(cases[start : start + 25])
        return out

    def _batch(self, cases):
        a, torch, dit = self.a, self.torch, self.dit
        mode, frames, grid = cases[0]["mode"], len(cases[0]["drawn"]), a.size // 32
        rope = dit.Rope(self.model, 40, 1 + (frames - 1) // 4, grid, grid, world.FPS, world.FRAMES - 1 if mode == "push" else 0)
        ids, lengths = dit.pad([self.tok.wrap(self.tokenizer, c["prompt"]) for c in cases])
        shape = (1, CHANNELS, 1 + (frames - 1) // 4, a.size // 16, a.size // 16)
        noise = torch.cat(
            [
                torch.randn(shape, generator=torch.Generator().manual_seed(c["seed"]))
                if c["noise"] is None
                else torch.from_numpy(c["noise"])[None]
                for c in cases
            ]
        )
        first = actions = None
        if mode in ("i2v", "push"):
            drawn = torch.from_numpy(np.stack([c["drawn"][:1] for c in cases])).permute(0, 4, 1, 2, 3).float() / 127.5 - 1
            first = (self.vae.encode(self.autoencoder, drawn)[0] - self.mean) / self.std
        if mode == "push":
            actions = torch.tensor([c["actions"] for c in cases])
            actions = torch.nn.functional.pad(actions, (0, dit.CONFIG["action_dim"] - world.PUSH_DIMS))
        empty = self.tok.wrap(self.tokenizer, "")
        x = dit.generate(
            self.model, ids, lengths, empty, noise, rope, first, actions, world.PUSH_DOMAIN, a.steps, guidance_of(mode, a)
        )
        x = x * self.std + self.mean
        y = torch.cat([self.vae.decode(self.autoencoder, part) for part in x.split(8)]).clamp(-1, 1)
        return list(((y / 2 + 0.5) * 255).round().to(torch.uint8).permute(0, 2, 3, 4, 1).numpy())


class ServerBackend:
    """An mstar server: pictures as PNG, clips as mp4 that ffmpeg unpacks."""

    def __init__(self, a):
        self.a = a

    def generate(self, cases):
        return [self._one(c) for c in cases]

    def _one(self, case):
        a, clip = self.a, len(case["drawn"]) > 1
        body = dict(prompt=case["prompt"], size=f"{a.size}x{a.size}", seed=case["seed"], num_inference_steps=a.steps)
        # The pipeline guides every step; mstar's default for pictures leaves the last ones alone.
        body.update(guidance_scale=guidance_of(case["mode"], a), guidance_interval=[0, 1000], response_format="b64_json")
        if a.model:
            body["model"] = a.model
        if clip:
            body.update(num_frames=len(case["drawn"]), fps=world.FPS)
        if case["mode"] in ("i2v", "push"):
            png = io.BytesIO()
            Image.fromarray(case["drawn"][0]).save(png, "PNG")
            body["image"] = "data:image/png;base64," + base64.b64encode(png.getvalue()).decode()
        if case["mode"] == "push":
            body.update(action_mode="forward_dynamics", action_chunk_size=world.FRAMES - 1, domain_name="pusht")
            body.update(raw_action_dim=world.PUSH_DIMS, action=case["actions"])
        if case["noise"] is not None:
            body[a.noise_field] = base64.b64encode(case["noise"].tobytes()).decode()
        reply = self._post("/v1/videos/generations" if clip else "/v1/images/generations", body)
        data = base64.b64decode(reply["data"][0]["b64_json"])
        if not clip:
            return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))[None]
        return self._unpack(data, len(case["drawn"]))

    def _post(self, path, body):
        request = urllib.request.Request(self.a.server.rstrip("/") + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=300) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as error:
            raise SystemExit(f"{path}: {error.code} {error.read().decode(errors='replace')}") from None

    def _unpack(self, data, frames):
        size = self.a.size
        with tempfile.NamedTemporaryFile(suffix=".mp4") as f:
            f.write(data)
            f.flush()
            command = ["ffmpeg", "-v", "error", "-i", f.name, "-vsync", "0", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
            raw = subprocess.run(command, check=True, capture_output=True).stdout
        clip = np.frombuffer(raw, np.uint8).reshape(-1, size, size, 3)
        if len(clip) != frames:
            raise SystemExit(f"the server returned {len(clip)} frames, expected {frames}")
        return clip


# -------------------------------------------------------------------------------------------------------- scoring


def score_one(case, frames):
    """Findings of one result: what is right, and distances."""
    a, out, asked = case["attributes"], {}, captions.parts(case["attributes"])
    found = judge.look(frames, two=case["mode"] == "two")
    seen = found[0]
    for index, key in enumerate(("shape", "colour")):
        out[key] = [f[key] for f in found] == [part[index] for part in asked]
    out["ground"] = all(f["ground"] == a["ground"] for f in found)
    if case["mode"] == "two":
        out["fit"] = float(np.mean([f["fits"].get(shape, 0.0) for f, (shape, _) in zip(found, asked)]))
        out["each_shape"] = float(np.mean([f["shape"] == shape for f, (shape, _) in zip(found, asked)]))
    else:
        # How well the outlines fit the asked shape over all frames: falls long before a name is wrong.
        turned = a["move"] == captions.TURNING
        out["fit"] = float(np.mean([judge.fit_of(frame, a["shape"], turned) for frame in frames]))
    if len(frames) == 1:
        out["colour_and_shape"] = out["shape"] and out["colour"]
    if a["place"]:
        out["place"] = judge.place_of(seen, a["place"])
    if case["mode"] in ("t2v", "i2v", "turn"):
        out["move"] = seen["move"] == a["move"]
    if case["mode"] == "turn":
        out["turn_error"] = abs(judge.turn_of(frames, a["shape"]) - math.degrees(world.TURN * (len(frames) - 1)))
    if case["mode"] in ("i2v", "push"):
        out["first_db"] = judge.psnr(frames[0], case["drawn"][0])
        # An mp4 halves the resolution of colour; only the brightness of its frames can be held against the picture.
        out["first_luma_db"] = judge.psnr(judge.luma(frames[0]), judge.luma(case["drawn"][0]))
    if case["mode"] == "push":
        goal = [sum(row[i] for row in case["actions"]) * world.PUSH_SCALE for i in (0, 1)]
        error = math.hypot(seen["dx"] - goal[0], seen["dy"] - goal[1])
        out.update(path_error=error, pushed_right=error < 0.06)
    return out, found


def mean_scores(findings):
    values = collections.defaultdict(list)
    for found in findings:
        for key, value in found.items():
            values[key].append(float(value))
    return {key: round(sum(v) / len(v), 4) for key, v in values.items()}


def save_sheet(results, path):
    """Up to 48 pictures or 12 clips."""
    rows = [np.concatenate(list(r), 1) for r in results[: 48 if len(results[0]) == 1 else 12]]
    if len(results[0]) == 1:
        rows = [np.concatenate(rows[i : i + 12], 1) for i in range(0, len(rows) - len(rows) % 12 or len(rows), 12)]
    width = min(r.shape[1] for r in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet = Image.fromarray(np.concatenate([r[:, :width] for r in rows]))
    sheet.resize((sheet.width * 2, sheet.height * 2), 0).save(path)


def missed(scores, require):
    """The requirements that are not reached, in words."""
    out = []
    for item in filter(None, (SHIPPED if require == "shipped" else require).split(",")):
        name, limit = item.split("=")
        mode, key = name.split(".")
        value = scores.get(mode, {}).get(key)
        if value is None or value < float(limit):
            out.append(f"{name} is {value}, required {limit}")
    return out


def main():
    a = arguments()
    if a.mstar:
        with LocalServer(a.mstar, a.checkpoint) as a.server:
            failures = score(a, ServerBackend(a))
    elif bool(a.server) == bool(a.checkpoint):
        raise SystemExit("give --checkpoint FOLDER, --server URL or --mstar PROGRAM")
    else:
        failures = score(a, ServerBackend(a) if a.server else BatchedBackend(a) if a.batched else PipelineBackend(a))
    for line in failures:
        print("FAILED", line)
    sys.exit(1 if failures else 0)


def score(a, backend):
    """Scores every mode, prints and saves what was asked for; gives the requirements that were missed."""
    scores, record = {}, []
    for mode in a.modes.split(","):
        cases = make_cases(mode, a)
        results = backend.generate(cases)
        findings = []
        for case, frames in zip(cases, results):
            found, seen = score_one(case, frames)
            findings.append(found)
            record.append(dict(mode=mode, prompt=case["prompt"], seed=case["seed"], found=found, seen=seen))
        scores[mode] = dict(n=len(cases), **mean_scores(findings))
        print(mode, json.dumps(scores[mode]), flush=True)
        if a.sheets:
            save_sheet(results, a.sheets / f"{mode}.png")
    if a.out:
        a.out.write_text(json.dumps(dict(scores=scores, cases=record), indent=1, default=float) + "\n")
    return missed(scores, a.require)


if __name__ == "__main__":
    main()
