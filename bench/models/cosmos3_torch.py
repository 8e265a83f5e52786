"""PyTorch's times for the cases of `mstar_bench models`, with diffusers' own modules and random weights, and mstar's beside them.

    python bench/models/cosmos3_torch.py [--mstar build/release/bin/mstar_bench] [--only PATTERN] [--threads N] [--rounds N] [--dtype bf16|f32]

A step runs the generation tower over both guidance branches as a batch of two, the prompts' keys and values cached as
mstar has them. With --mstar both programs hold the same case at the same time and run in turn, one round each; the medians,
their ratio and mstar's share of what the machine can do (which it measures around every round) are printed, as rows of Markdown.
"""

import argparse
import json
import statistics
import subprocess
import time

import torch
import torch.nn.functional as F
from diffusers import AutoencoderKLWan
from diffusers.models.transformers.transformer_cosmos3 import Cosmos3VLTextMoTDecoderLayer

NUM_TEXT = 128
KV_HEADS, HEAD_DIM = 8, 128
FLAVOURS = {
    "edge": dict(layers=2, hidden=2048, heads=16, intermediate=9216, eps=1e-5, act="relu2", qk_text=False, k_und=True),
    "nano": dict(layers=1, hidden=4096, heads=32, intermediate=12288, eps=1e-6, act="silu", qk_text=True, k_und=False),
}
STEPS = [("edge", 20), ("edge", 32), ("edge", 44), ("nano", 20), ("nano", 32)]


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


def step(flavour, side, dtype):
    f = FLAVOURS[flavour]
    n = side * side
    layers = [
        Cosmos3VLTextMoTDecoderLayer(
            hidden_size=f["hidden"],
            head_dim=HEAD_DIM,
            num_attention_heads=f["heads"],
            num_key_value_heads=KV_HEADS,
            intermediate_size=f["intermediate"],
            attention_bias=False,
            rms_norm_eps=f["eps"],
            hidden_act=f["act"],
            qk_norm_for_text=f["qk_text"],
            use_und_k_norm_for_gen=f["k_und"],
        ).to(dtype)
        for _ in range(f["layers"])
    ]
    rows = torch.randn(2, n, f["hidden"], dtype=dtype)
    kept = [[torch.randn(2, KV_HEADS, NUM_TEXT, HEAD_DIM, dtype=dtype) for _ in range(2)] for _ in layers]
    angles = torch.rand(n, HEAD_DIM)
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)

    def run():
        x = rows
        for layer, (text_k, text_v) in zip(layers, kept):
            attention = layer.self_attn
            y = layer.input_layernorm_moe_gen(x)
            heads = [p(y).view(2, n, -1, HEAD_DIM) for p in (attention.add_q_proj, attention.add_k_proj, attention.add_v_proj)]
            q = rotate(attention.norm_added_q(heads[0]).transpose(1, 2), cos, sin)
            k = rotate(attention.norm_added_k(heads[1]).transpose(1, 2), cos, sin)
            k, v = torch.cat((text_k, k), 2), torch.cat((text_v, heads[2].transpose(1, 2)), 2)
            group = f["heads"] // KV_HEADS
            o = F.scaled_dot_product_attention(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1))
            x = x + attention.to_add_out(o.transpose(1, 2).reshape(2, n, -1))
            x = x + layer.mlp_moe_gen(layer.post_attention_layernorm_moe_gen(x))
        return x

    hidden, query, key = f["hidden"], f["heads"] * HEAD_DIM, KV_HEADS * HEAD_DIM
    mlp = (3 if f["act"] == "silu" else 2) * f["intermediate"]
    flops = 2 * len(layers) * n * (2 * hidden * (2 * query + 2 * key + mlp) + 4 * query * (n + NUM_TEXT))
    return run, flops


def autoencoder(dtype):
    return AutoencoderKLWan(
        base_dim=160,
        decoder_base_dim=256,
        z_dim=48,
        dim_mult=[1, 2, 4, 4],
        num_res_blocks=2,
        attn_scales=[],
        temperal_downsample=[False, True, True],
        is_residual=True,
        in_channels=12,
        out_channels=12,
        patch_size=2,
        scale_factor_spatial=16,
        scale_factor_temporal=4,
        latents_mean=[0.0] * 48,
        latents_std=[1.0] * 48,
    ).to(dtype)


def decode(dtype):
    vae, latents = autoencoder(dtype), torch.randn(1, 48, 2, 4, 6, dtype=dtype)
    return lambda: vae.decode(latents).sample, 24 * (5.83e9 + 18.84e9)


def encode(dtype):
    vae, pixels = autoencoder(dtype), torch.randn(1, 3, 5, 64, 96, dtype=dtype)
    return lambda: vae.encode(pixels).latent_dist.mode(), 24 * (1.19e9 + 3.57e9)


class Mstar:
    """One case of mstar_bench, run on demand."""

    def __init__(self, program, name, threads):
        words = [program, "models", "--only", name, "--threads", str(threads), "--on-demand"]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        if self.process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"mstar_bench has no case {name}")

    def run(self):
        self.process.stdin.write("run\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        result = json.loads(self.process.stdout.readline())
        self.process.wait()
        return result


def timed(run):
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def measure(name, make, a):
    run, flops = make()
    run()
    mstar = Mstar(a.mstar, name, a.threads) if a.mstar else None
    theirs, ours = [], []
    for _ in range(a.rounds):
        if mstar:
            time.sleep(0.05)  # OpenMP's threads spin on for a while after a round: not at our cost
            ours.append(mstar.run())
            run()  # wakes its threads again; not counted
        theirs.append(timed(run))
    seconds = statistics.median(theirs)
    if not mstar:
        print(f"{name:40} {seconds * 1e3:10.3f} ms {flops / seconds / 1e9:8.1f} GFLOP/s", flush=True)
        return
    own, limits = statistics.median(ours), mstar.close()
    share = limits["share_of_peak"]
    print(
        f"| {name} | {own * 1e3:.1f} ms | {share * 100:.0f} % of {limits['peak'] / 1e9:.0f} GFLOP/s "
        f"| {seconds * 1e3:.1f} ms | {seconds / own:.2f} |",
        flush=True,
    )


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--mstar", default="", help="mstar_bench, to run in turn")
    p.add_argument("--only", default="")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--dtype", default="", choices=["", "f32", "bf16"])
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    torch.set_grad_enabled(False)
    for short, dtype in (("bf16", torch.bfloat16), ("f32", torch.float32)):
        if a.dtype not in ("", short):
            continue
        cases = {f"cosmos3/step/{short}/{f}/n{s * s}x2": lambda f=f, s=s: step(f, s, dtype) for f, s in STEPS}
        cases[f"cosmos3/vae/{short}/decode/96x64x5"] = lambda: decode(dtype)
        cases[f"cosmos3/vae/{short}/encode/96x64x5"] = lambda: encode(dtype)
        for name, make in cases.items():
            if a.only in name:
                measure(name, make, a)


if __name__ == "__main__":
    main()
