"""Trains the autoencoder; run again to go on where it stopped.

    python train_vae.py RUN --minutes 60 [--init FOLDER_OR_PT] [--decoder-only] [--threads 2]

RUN/vae.pt holds model, average, optimisers, step and the minutes spent; RUN/vae.jsonl the curve. The learning rate
follows the minutes spent (cosine), so the budget may be spent in pieces and below other work. Every draw follows
(seed, step).
"""

import argparse
import collections
import json
import math
import pathlib
import resource
import time

import numpy as np
import torch
import torch.nn.functional as F

import captions
import data
import judge
import vae
from muon import Muon

SIZE, CROP = 64, 48
SPARSE = ("encoder.conv_in", "decoder.conv_out", "quant_conv")  # first and last layers stay with AdamW


def arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("run", type=pathlib.Path)
    p.add_argument("--minutes", type=float, required=True, help="of processor time, each thread's: other work does not eat them")
    p.add_argument("--init", help="published folder or .pt to start from")
    p.add_argument("--decoder-only", action="store_true", help="keep the latents valid: train the decoder alone")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--muon", type=float, default=0.02)
    p.add_argument("--adam", type=float, default=2e-3)
    p.add_argument("--mix", default="0.35,0.1,0.55", help="shares of pictures, 5-frame clips, 9-frame clips")
    p.add_argument("--pictures-first", type=float, default=0.0, help="share of the time with pictures only (0.5 from nothing)")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--tag", default="vae")
    p.add_argument("--bf16", action="store_true", help="clips by bf16 products: for machines that have them in hardware")
    return p.parse_args()


class Trainer:
    def __init__(self, a):
        self.a, self.file = a, a.run / f"{a.tag}.pt"
        a.run.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(a.seed)
        self.model = vae.build(a.init)
        if a.decoder_only:
            self.model.encoder.requires_grad_(False)
            self.model.quant_conv.requires_grad_(False)
        for p in self.model.parameters():
            if p.ndim >= 4:
                form = torch.channels_last_3d if p.ndim == 5 else torch.channels_last
                p.data = p.data.contiguous(memory_format=form)
        named = [(n, p) for n, p in self.model.named_parameters() if p.requires_grad]
        big = [p for n, p in named if p.ndim >= 4 and p.numel() > 300 and "gamma" not in n and not any(k in n for k in SPARSE)]
        ids = {id(p) for p in big}
        self.muon = Muon(big, a.muon)
        self.adam = torch.optim.AdamW([p for _, p in named if id(p) not in ids], lr=a.adam, betas=(0.9, 0.99), weight_decay=0.0)
        self.ema = {k: v.clone() for k, v in self.model.state_dict().items()}
        self.step, self.minutes = 0, 0.0
        if self.file.exists():
            self.resume()

    def resume(self):
        s = torch.load(self.file, map_location="cpu", weights_only=True)
        self.model.load_state_dict(s["model"])
        for k in self.ema:
            self.ema[k].copy_(s["ema"][k])
        self.muon.load_state_dict(s["muon"])
        self.adam.load_state_dict(s["adam"])
        self.step, self.minutes = s["step"], s["minutes"]

    def save(self):
        state = dict(model=self.model.state_dict(), ema=self.ema, muon=self.muon.state_dict(), adam=self.adam.state_dict(), step=self.step, minutes=self.minutes)
        torch.save(state, self.file.with_suffix(".new"))
        self.file.with_suffix(".new").replace(self.file)

    def rates(self, spent):
        warm = min(1.0, (self.step + 1) / 100)
        f = warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, spent))))
        self.muon.lr = self.a.muon * f
        for group in self.adam.param_groups:
            group["lr"] = self.a.adam * f

    def draw(self, spent):
        seed = self.a.seed * 10_000_000 + self.step
        u = np.random.default_rng(seed).random()
        image, five, _ = map(float, self.a.mix.split(","))
        if u < image or spent < self.a.pictures_first:
            return data.batch(captions.PICTURES[self.step % 2], 16, seed, SIZE, free=0.3, wide=True)[0]
        if u < image + five:
            return data.batch("clip", 6, seed, SIZE, 5, free=0.3, wide=True)[0]
        # Most clips lose a third of their ground: the outline is what there is to learn, and the step costs half.
        crop = self.step % 4 != 0
        kind, move = (("clip", None), ("clip", captions.TURNING), ("push", None), ("clip", captions.TURNING))[self.step // 4 % 4]
        x = data.batch(kind, 6 if crop else 4, seed, SIZE, free=0.3, move=move)[0]
        left, top = np.random.default_rng(seed + 1).integers(0, (SIZE - CROP) // 2 + 1, 2) * 2 if crop else (0, 0)
        return x[..., top : top + CROP, left : left + CROP].contiguous() if crop else x

    def loss(self, x):
        bf16 = torch.autocast("cpu", torch.bfloat16, enabled=self.a.bf16 and x.shape[2] > 1)
        with bf16, torch.set_grad_enabled(not self.a.decoder_only):
            mean, logvar = (t.float() for t in vae.encode(self.model, x))
        logvar = logvar.clamp(-12, 4)
        z = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
        with bf16:
            y = vae.decode(self.model, z).float()
        with torch.no_grad():  # edges carry the shape: weigh them up
            edge = (x - F.avg_pool3d(x, (1, 5, 5), 1, (0, 2, 2), count_include_pad=False)).abs().amax(1, keepdim=True)
            # A pink star on beige is a star as much as a red one on white: samples of little contrast count for more.
            contrast = edge.amax((1, 2, 3, 4), keepdim=True).clamp_min(0.15)
            w = (1 + 3 * edge / contrast) / contrast
            w = w / w.mean()
        diff = y - x
        # The differences of neighbours ask for crisp outlines, not only for the right average over them.
        slope = diff.diff(dim=3).abs().mean() + diff.diff(dim=4).abs().mean()
        kl = 0.5 * (mean.pow(2) + logvar.exp() - 1 - logvar).mean()
        return (w * diff.abs()).mean() + (w * diff.pow(2)).mean() + 0.5 * slope + 1e-3 * kl, kl

    def train_step(self, spent):
        torch.manual_seed(self.a.seed * 10_000_000 + self.step)
        self.rates(spent)
        x = self.draw(spent)
        loss, kl = self.loss(x)
        self.model.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.adam.step()
        self.muon.step()
        self.step += 1
        decay = min(0.99, (self.step + 10) / (self.step + 30))
        with torch.no_grad():
            now = self.model.state_dict()
            keep = list(self.ema.values())
            torch._foreach_lerp_(keep, [now[k] for k in self.ema], 1 - decay)
        return x.shape[2], loss.item(), kl.item()

    @torch.no_grad()
    def evaluate(self, count=48):
        """PSNR and shape accuracy of the average on fixed held-out draws."""
        live = {k: v.clone() for k, v in self.model.state_dict().items()}
        self.model.load_state_dict(self.ema)
        out = {}
        rows = (("image", "image", None), ("two", "two", None), ("clip", "clip", None), ("turn", "clip", captions.TURNING))
        for name, kind, move in rows:
            n = count if kind in captions.PICTURES else count // 3
            x, _, attributes = data.batch(kind, n, 99, SIZE, novel=True, wide=True, move=move)
            mean = torch.cat([vae.encode(self.model, part)[0] for part in x.split(16)])
            y = torch.cat([vae.decode(self.model, m).clamp(-1, 1) for m in mean.split(16)])
            ratio = 10 * torch.log10(4 / (y - x).pow(2).flatten(1).mean(1))
            bytes_ = ((y / 2 + 0.5) * 255).round().to(torch.uint8).permute(0, 2, 3, 4, 1).numpy()
            named = [[seen["shape"] for seen in judge.look(c, two=kind == "two")] for c in bytes_]
            right = [names == [shape for shape, _ in captions.parts(a)] for names, a in zip(named, attributes)]
            out[name] = dict(psnr=round(ratio.mean().item(), 2), worst=round(ratio.min().item(), 2), shape=round(sum(right) / n, 3))
            data.sheet(torch.stack([x[:8], y[:8]], 1).flatten(0, 1), self.a.run / f"{self.a.tag}_{name}.png", columns=8)
        self.model.load_state_dict(live)
        return out


def main():
    a = arguments()
    torch.set_num_threads(a.threads)
    vae.use_fast_layers()
    t = Trainer(a)
    log = (a.run / f"{a.tag}.jsonl").open("a")
    losses, times, last, saved = collections.defaultdict(list), collections.defaultdict(list), t.minutes - 1, time.time()
    while t.minutes < a.minutes:
        start, cpu = time.time(), time.process_time()
        frames, loss, kl = t.train_step(t.minutes / a.minutes)
        times[frames].append((time.time() - start, time.process_time() - cpu))
        t.minutes += times[frames][-1][1] / 60 / a.threads
        losses[frames].append(loss)
        if t.minutes - last >= 3 or t.minutes >= a.minutes:
            last = t.minutes
            recent = lambda v: round(sum(v[-50:]) / len(v[-50:]), 4)
            row = dict(minutes=round(t.minutes, 2), step=t.step, rate=round(t.muon.lr, 5), kl=round(kl, 3), loss={f: recent(v) for f, v in losses.items()})
            row.update(wall={f: recent([w for w, _ in v]) for f, v in times.items()}, cpu={f: recent([c for _, c in v]) for f, v in times.items()})
            row.update(t.evaluate(), memory_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
            print(json.dumps(row), flush=True)
            log.write(json.dumps(row) + "\n")
            log.flush()
        if time.time() - saved >= 180 or t.minutes >= a.minutes:  # of the clock: what is lost on a busy machine is dear
            saved = time.time()
            t.save()


if __name__ == "__main__":
    main()
