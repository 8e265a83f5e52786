"""Draws the curves of a training: python plot.py OUT.png --vae A/vae.jsonl --dit B/dit.jsonl"""

import argparse
import json

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def rows(path):
    return [json.loads(line) for line in open(path)] if path else []


def series(table, *keys):
    """Minutes and values of a nested key, where it was measured."""
    x, y = [], []
    for row in table:
        value = row
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            x.append(row["minutes"])
            y.append(value)
    return x, y


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("out")
    p.add_argument("--vae")
    p.add_argument("--dit")
    a = p.parse_args()
    figure, axes = plt.subplots(1, 4, figsize=(18, 4))
    auto, dit = rows(a.vae), rows(a.dit)
    for kind in ("image", "two", "clip", "turn"):
        axes[0].plot(*series(auto, kind, "psnr"), label=kind)
    axes[0].axhline(30, color="gray", linewidth=0.5)
    axes[0].set_title("autoencoder, PSNR (dB)")
    for kind in ("image", "two", "clip", "turn", "push"):
        axes[1].plot(*series(dit, "loss", kind), label=kind)
    axes[1].set_title("flow matching loss")
    shown = "t2i shape,t2i colour,two shape,two colour,t2v shape,t2v move,turn shape,turn move,i2v shape,i2v move,push shape"
    for mode, key in (name.split() for name in shown.split(",")):
        axes[2].plot(*series(dit, mode, key), label=f"{mode} {key}")
    axes[2].set_ylim(0, 1.02)
    axes[2].set_title("right on held-out combinations")
    axes[3].plot(*series(dit, "step"))
    axes[3].set_title("transformer steps")
    for axis in axes:
        axis.set_xlabel("minutes")
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(a.out, dpi=80)


if __name__ == "__main__":
    main()
