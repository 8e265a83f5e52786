"""Trains the transformer on the latents of a frozen encoder; run again to go on where it stopped.

    python train_dit.py RUN --minutes 120 --vae RUN/vae.pt [--decoder RUN/decoder.pt] [--init FOLDER] [--threads 1]

RUN/dit.pt holds model, average, optimisers, step, minutes, pool and latent statistics; RUN/dit.jsonl the curve.
Flow matching: v = noise - x0. The pool of latents is renewed all the time, captions and noise are drawn afresh.
`--decoder` names a better decoder of the same latents (train_vae.py --decoder-only), read again before each judgement.
"""

import argparse
import collections
import json
import math
import pathlib
import random
import resource
import time

import torch

import captions
import data
import dit
import judge
import tok
import vae
from muon import Muon

SIZE = 64
LATENT = SIZE // 16
LONGEST = 32
WIDE = 0.25  # share of the clips whose shape stands anywhere
VARIANTS = 2  # drawings of one caption in a group of the pool
# What is trained: the kind of sample and the motion of a clip (None: any), its share of the steps, groups in the pool,
# captions a step, noise draws a drawing, groups renewed a step.
PLAN = {
    "image": dict(kind="image", move=None, share=0.30, pool=768, captions=24, draws=3, renew=2),
    "two": dict(kind="two", move=None, share=0.18, pool=512, captions=24, draws=3, renew=2),
    "clip": dict(kind="clip", move=None, share=0.26, pool=256, captions=12, draws=2, renew=1),
    "turn": dict(kind="clip", move=captions.TURNING, share=0.15, pool=160, captions=12, draws=2, renew=1),
    "push": dict(kind="push", move=None, share=0.11, pool=128, captions=8, draws=2, renew=1),
}
# What is judged while training: the row of PLAN, and whether the first frame is given.
MODES = {"t2i": ("image", False), "two": ("two", False), "t2v": ("clip", False), "i2v": ("clip", True), "turn": ("turn", False), "push": ("push", True)}


def loss_weight(a):
    """Of a sample with these attributes: a pink star on beige moves its latents by a third of what a red one on white
    does, and is as much of a star."""
    ground = captions.GROUNDS[a["ground"]]
    contrast = [math.dist(captions.COLOURS[colour], ground) / 255 for _, colour in captions.parts(a)]
    return sum(min(2.0, max(0.7, 0.8 / c)) for c in contrast) / len(contrast)


def arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("run", type=pathlib.Path)
    p.add_argument("--minutes", type=float, required=True, help="of processor time, each thread's: other work does not eat them")
    p.add_argument("--vae", required=True, help=".pt or published folder with the frozen encoder")
    p.add_argument("--decoder", type=pathlib.Path)
    p.add_argument("--init", type=pathlib.Path, help="published folder to start from")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--muon", type=float, default=0.01)
    p.add_argument("--adam", type=float, default=2e-3)
    p.add_argument("--text-every", type=int, default=3, help="train the text tower every n steps")
    p.add_argument("--refill", action="store_true", help="the encoder changed: draw the pool and its statistics anew")
    p.add_argument("--judge-every", type=float, default=20, help="minutes")
    p.add_argument("--bf16", action="store_true", help="bf16 products: for machines that have them in hardware")
    p.add_argument("--seed", type=int, default=3)
    return p.parse_args()


class Pool:
    """Groups of latents by row of PLAN: attributes, latents [VARIANTS, 16, T, 4, 4] and actions [VARIANTS, 8, action_dim]."""

    def __init__(self, autoencoder, seed):
        self.autoencoder, self.seed, self.drawn = autoencoder, seed, 0
        self.groups, self.next = {k: [] for k in PLAN}, dict.fromkeys(PLAN, 0)
        self.mean = self.std = None

    @torch.no_grad()
    def draw(self, name, count):
        """`count` new groups with raw latents."""
        self.drawn += 1
        rng = random.Random(self.seed * 1_000_000 + self.drawn)
        kind = PLAN[name]["kind"]
        attributes = [captions.sample_attributes(rng, kind, move=PLAN[name]["move"]) for _ in range(count)]
        each = [a for a in attributes for _ in range(VARIANTS)]
        # Images that users bring do not stand in the middle: some clips stand anywhere, and always keep their first frame.
        wide = kind == "clip" and rng.random() < WIDE
        pixels, push = data.render(each, rng.random(), 1 if kind in captions.PICTURES else data.FRAMES, SIZE, wide=wide)
        latents = torch.cat([vae.encode(self.autoencoder, x)[0] for x in pixels.split(16)])
        actions = torch.nn.functional.pad(push, (0, dit.CONFIG["action_dim"] - data.PUSH_DIMS))
        return [
            (dict(a, wide=wide), latents[i * VARIANTS : (i + 1) * VARIANTS], actions[i * VARIANTS : (i + 1) * VARIANTS])
            for i, a in enumerate(attributes)
        ]

    def fill(self):
        self.groups = {k: [] for k in PLAN}
        for name, plan in PLAN.items():
            while len(self.groups[name]) < plan["pool"]:
                self.groups[name] += self.draw(name, min(16, plan["pool"] - len(self.groups[name])))
        pictures, clips = (torch.cat([g[1] for g in self.groups[k]]) for k in ("image", "clip"))
        # Rounded before training, so that the published config and the training agree.
        mean = (pictures.mean((0, 2, 3, 4)) + clips.mean((0, 2, 3, 4))) / 2
        spread = lambda x: (x - mean.view(1, -1, 1, 1, 1)).pow(2).mean((0, 2, 3, 4))
        std = ((spread(pictures) + spread(clips)) / 2).sqrt()
        self.mean, self.std = (torch.tensor([round(v, 4) for v in t.tolist()]) for t in (mean, std))

    def normalize(self, latents):
        return (latents - self.mean.view(1, -1, 1, 1, 1)) / self.std.view(1, -1, 1, 1, 1)

    def raw(self, latents):
        return latents * self.std.view(1, -1, 1, 1, 1) + self.mean.view(1, -1, 1, 1, 1)

    def renew(self, name):
        for group in self.draw(name, PLAN[name]["renew"]):
            self.groups[name][self.next[name]] = group
            self.next[name] = (self.next[name] + 1) % PLAN[name]["pool"]

    def state_dict(self):
        return dict(groups=self.groups, next=self.next, drawn=self.drawn, mean=self.mean, std=self.std)

    def load_state_dict(self, state):
        self.groups, self.next, self.drawn = state["groups"], state["next"], state["drawn"]
        self.mean, self.std = state["mean"], state["std"]


class Trainer:
    def __init__(self, a):
        self.a, self.file = a, a.run / "dit.pt"
        a.run.mkdir(parents=True, exist_ok=True)
        vae.use_fast_layers()
        self.autoencoder = vae.build(a.vae).eval().requires_grad_(False)
        self.pool = Pool(self.autoencoder, a.seed)
        self.tokenizer = tok.train()
        self.ids = {}
        self.model = dit.build()
        if a.init and not self.file.exists():
            old = json.loads((a.init / "text_tokenizer/vocab.json").read_text())
            added = json.loads((a.init / "text_tokenizer/tokenizer_config.json").read_text())["added_tokens_decoder"]
            old.update({v["content"]: int(k) for k, v in added.items()})
            state = vae.read_state(a.init, "transformer")
            print("not in the start:", dit.adopt(self.model, state, old, self.tokenizer.get_vocab()), flush=True)
        # Nothing reads the last layer's text output, lm_head or the action output in these modes.
        self.named = [(n, p) for n, p in self.model.named_parameters() if "lm_head" not in n and "action_proj_out" not in n]
        matrices = [(n, p) for n, p in self.named if n.startswith("layers.") and p.ndim == 2]
        ids = {id(p) for _, p in matrices}
        self.muon = Muon([p for _, p in matrices], a.muon, weight_decay=0.05)
        self.adam = torch.optim.AdamW([p for _, p in self.named if id(p) not in ids], lr=a.adam, betas=(0.9, 0.98), weight_decay=0.0)
        self.ema = {n: p.detach().clone() for n, p in self.model.named_parameters()}
        self.step, self.minutes = 0, 0.0
        if self.file.exists():
            self.resume()
        if a.refill or not self.pool.groups["image"]:
            self.pool.fill()
            self.save()
        picture = dit.Rope(self.model, LONGEST, 1, LATENT // 2, LATENT // 2, data.FPS)
        clip = dit.Rope(self.model, LONGEST, 3, LATENT // 2, LATENT // 2, data.FPS)
        push = dit.Rope(self.model, LONGEST, 3, LATENT // 2, LATENT // 2, data.FPS, data.FRAMES - 1)
        self.rope = {"image": picture, "two": picture, "clip": clip, "turn": clip, "push": push}

    def resume(self):
        s = torch.load(self.file, map_location="cpu", weights_only=True)
        self.model.load_state_dict(s["model"], strict=False)
        self.ema = s["ema"]
        self.muon.load_state_dict(s["muon"])
        self.adam.load_state_dict(s["adam"])
        self.pool.load_state_dict(s["pool"])
        self.step, self.minutes = s["step"], s["minutes"]

    def save(self):
        state = dict(model=self.model.state_dict(), ema=self.ema, muon=self.muon.state_dict(), adam=self.adam.state_dict())
        state.update(pool=self.pool.state_dict(), step=self.step, minutes=self.minutes)
        torch.save(state, self.file.with_suffix(".new"))
        self.file.with_suffix(".new").replace(self.file)

    def encode_text(self, text):
        if text not in self.ids:
            self.ids[text] = tok.wrap(self.tokenizer, text)
        return self.ids[text]

    def rates(self, spent):
        f = min(1.0, (self.step + 1) / 50) * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * min(1.0, spent))))
        self.muon.lr = self.a.muon * f
        for group in self.adam.param_groups:
            group["lr"] = self.a.adam * f

    def batch(self, name, rng):
        """Ids and lengths [captions]; latents, actions, whether it stands anywhere and weights [captions * VARIANTS * draws]."""
        plan = PLAN[name]
        picked = rng.sample(self.pool.groups[name], plan["captions"])
        texts = ["" if rng.random() < 0.1 else captions.caption(g[0], rng) for g in picked]
        ids, lengths = dit.pad([self.encode_text(t) for t in texts])
        latents = self.pool.normalize(torch.cat([g[1] for g in picked])).repeat_interleave(plan["draws"], 0)
        actions = torch.cat([g[2] for g in picked]).repeat_interleave(plan["draws"], 0) if plan["kind"] == "push" else None
        wide, weight = (
            torch.tensor(v).repeat_interleave(plan["draws"] * VARIANTS, 0)
            for v in ([g[0]["wide"] for g in picked], [loss_weight(g[0]) for g in picked])
        )
        return ids, lengths, latents, actions, wide, weight / weight.mean()

    def loss(self, name, rng, train_text):
        ids, lengths, x0, actions, wide, weight = self.batch(name, rng)
        kind = PLAN[name]["kind"]
        bf16 = torch.autocast("cpu", torch.bfloat16, enabled=self.a.bf16)
        with bf16, torch.set_grad_enabled(train_text):
            kv = dit.text_pass(self.model, ids, self.rope[name])
        share = VARIANTS * PLAN[name]["draws"]
        kv = [(k.repeat_interleave(share, 0), v.repeat_interleave(share, 0)) for k, v in kv]
        count, _, frames = x0.shape[:3]
        sigma = torch.sigmoid(torch.randn(count) * 1.2 + 0.4)
        sigma = torch.where(torch.rand(count) < 0.15, torch.rand(count), sigma).clamp(0.001, 0.999)
        clean = torch.zeros(count, frames, dtype=torch.bool)
        if kind == "clip":  # text to video; image to video; two clean latent frames: video to video
            u = torch.rand(count)
            clean[:, 0], clean[:, 1] = (u < 0.3) | wide, u < 0.05
        elif kind == "push":
            clean[:, 0] = True
        noise = torch.randn_like(x0)
        s, c = sigma.view(-1, 1, 1, 1, 1), clean.view(count, 1, frames, 1, 1)
        xt = torch.where(c, x0, (1 - s) * x0 + s * noise)
        with bf16:
            v = dit.velocity(self.model, kv, lengths.repeat_interleave(share), xt, sigma, clean, self.rope[name], actions, data.PUSH_DOMAIN)
        error = (v - (noise - x0)).pow(2) * ~c * weight.view(-1, 1, 1, 1, 1)
        return error.sum() / ((~clean).sum() * error[0, :, 0].numel())

    def train_step(self, spent):
        seed = self.a.seed * 10_000_000 + self.step
        rng = random.Random(seed)
        torch.manual_seed(seed)
        self.rates(spent)
        name = rng.choices(list(PLAN), [p["share"] for p in PLAN.values()])[0]
        self.pool.renew(name)
        loss = self.loss(name, rng, self.step % self.a.text_every == 0)
        self.model.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.adam.step()
        self.muon.step()
        self.step += 1
        decay = min(0.998, (self.step + 1) / (self.step + 30))
        with torch.no_grad():
            torch._foreach_lerp_(list(self.ema.values()), [p.detach() for p in self.model.parameters()], 1 - decay)
        return name, loss.item()

    @torch.no_grad()
    def evaluate(self, pictures=32, clips=8):
        """Scores of the average on held-out combinations: shares of right answers, PSNR of the kept first frame."""
        if self.a.decoder and self.a.decoder.exists():
            self.autoencoder.load_state_dict(vae.read_state(self.a.decoder, "vae"))
        live = {n: p.detach().clone() for n, p in self.model.named_parameters()}
        self.model.load_state_dict(self.ema, strict=False)
        scores = {}
        for mode, (name, _) in MODES.items():
            scores[mode] = self._evaluate_mode(mode, pictures if PLAN[name]["kind"] in captions.PICTURES else clips)
        self.model.load_state_dict(live, strict=False)
        return scores

    def _evaluate_mode(self, mode, count):
        name, given = MODES[mode]
        kind = PLAN[name]["kind"]
        rng = random.Random(7)
        attributes = [captions.sample_attributes(rng, kind, novel=True, move=PLAN[name]["move"]) for _ in range(count)]
        frames = 1 if kind in captions.PICTURES else data.FRAMES
        pixels, push = data.render(attributes, 7, frames, SIZE)
        ids, lengths = dit.pad([self.encode_text(captions.caption(a, rng)) for a in attributes])
        noise = torch.randn(count, 16, 1 + frames // 4, LATENT, LATENT, generator=torch.Generator().manual_seed(7))
        first = actions = None
        if given:
            first = self.pool.normalize(vae.encode(self.autoencoder, pixels[:, :, :1])[0])
        if mode == "push":
            actions = torch.nn.functional.pad(push, (0, dit.CONFIG["action_dim"] - data.PUSH_DIMS))
        guidance = 1.0 if mode == "push" else dit.GUIDANCE
        empty = self.encode_text("")
        x = dit.generate(self.model, ids, lengths, empty, noise, self.rope[name], first, actions, data.PUSH_DOMAIN, guidance=guidance)
        y = torch.cat([vae.decode(self.autoencoder, part) for part in self.pool.raw(x).split(8)]).clamp(-1, 1)
        data.sheet(y[: 24 if frames == 1 else 8], self.a.run / f"dit_{mode}.png")
        to_bytes = lambda t: ((t / 2 + 0.5) * 255).round().to(torch.uint8).permute(0, 2, 3, 4, 1).numpy()
        got, want = to_bytes(y), to_bytes(pixels)
        total = collections.Counter()
        for clip, drawn, a, moved in zip(got, want, attributes, push.sum(1) * data.PUSH_SCALE):
            findings = judge.look(clip, two=kind == "two")
            for key, index in (("shape", 0), ("colour", 1)):
                total[key] += [seen[key] for seen in findings] == [part[index] for part in captions.parts(a)]
            seen = findings[0]
            for key in ("ground",) + (("move",) if kind == "clip" else ()):
                total[key] += seen[key] == a[key]
            if first is not None:
                total["first_db"] += judge.psnr(clip[0], drawn[0])
            if mode == "push":
                total["path_error"] += math.hypot(seen["dx"] - moved[0].item(), seen["dy"] - moved[1].item())
        return {k: round(v / count, 3) for k, v in total.items()}


def main():
    a = arguments()
    torch.set_num_threads(a.threads)
    t = Trainer(a)
    print("latent std", t.pool.std.tolist(), flush=True)
    log = (a.run / "dit.jsonl").open("a")
    losses, times = collections.defaultdict(list), collections.defaultdict(list)
    judged, saved, told = t.minutes, time.time(), t.minutes
    while t.minutes < a.minutes:
        start, cpu = time.time(), time.process_time()
        name, loss = t.train_step(t.minutes / a.minutes)
        t.minutes += (time.process_time() - cpu) / 60 / a.threads
        losses[name].append(loss)
        times[name].append(time.time() - start)
        done = t.minutes >= a.minutes
        if t.minutes - told >= 2 or done:
            told = t.minutes
            row = dict(minutes=round(t.minutes, 2), step=t.step, rate=round(t.muon.lr, 5))
            row.update(loss={k: round(sum(v[-200:]) / len(v[-200:]), 4) for k, v in losses.items()})
            row.update(wall={k: round(sum(v[-50:]) / len(v[-50:]), 3) for k, v in times.items()})
            if t.minutes - judged >= a.judge_every or done:
                judged = t.minutes
                row.update(t.evaluate(), memory_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
            print(json.dumps(row), flush=True)
            log.write(json.dumps(row) + "\n")
            log.flush()
        if time.time() - saved >= 240 or done:  # of the clock: what is lost on a busy machine is dear
            saved = time.time()
            t.save()


if __name__ == "__main__":
    main()
