"""Shared pieces of the Cosmos3 golden generators.

Every generator builds small models out of the public PyTorch reference classes (diffusers, transformers), fills
them with seeded random weights, runs them on the CPU and stores inputs, intermediates and outputs.

Three rules keep the files usable from another implementation:
  * weights are rounded to bfloat16 before use, so a bf16 checkpoint and an fp32 run hold identical numbers;
  * every random draw that influences an output is stored, so nobody needs torch's generator;
  * a stored tensor is named `in.*`, `mid.*` or `out.*`; weights live in a checkpoint folder or, for single
    modules, in the same file as `weight.<checkpoint name>`.
"""

import argparse
import json
import math
import pathlib

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import load_file, save_file

torch.set_num_threads(1)
torch.manual_seed(0)
HERE = pathlib.Path(__file__).resolve().parent
TEXT_MARGIN = 15000  # distance between the text positions and the media positions
BASE_FPS = 24.0
TEMPORAL_FACTOR = 4


# ------------------------------------------------------------------------------------------------ command line


def arguments(description):
    """Parse --seed/--config/--out; `args.cfg` is the parsed JSON and `args.out` an existing directory."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--config", default="t1", help="name of configs/NAME.json, or a path to such a file")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    args = parser.parse_args()
    path = pathlib.Path(args.config)
    if path.suffix != ".json":
        path = HERE / "configs" / f"{args.config}.json"
    args.cfg = json.loads(path.read_text())
    args.out.mkdir(parents=True, exist_ok=True)
    return args


# ------------------------------------------------------------------------------------------------ random numbers


def generator(seed, tag):
    """One independent generator per (seed, tag): adding a case never moves the numbers of another case."""
    mixed = seed
    for byte in tag.encode():
        mixed = (mixed * 1000003 + byte) % (2**62)
    return torch.Generator().manual_seed(mixed)


def randn(gen, *shape):
    return torch.randn(shape, generator=gen)


def bf16_exact(x):
    return x.to(torch.bfloat16).to(torch.float32)


def token_ids(gen, count, vocab):
    return torch.randint(0, vocab, (count,), generator=gen)


# ------------------------------------------------------------------------------------------------ the transformer


def transformer_config(cfg, flavour, sound=True, action=True):
    """Constructor arguments of Cosmos3OmniTransformer for flavour 'nano' (Qwen style) or 'edge' (Nemotron style)."""
    c = dict(cfg[flavour])
    c["rope_axes_dim"] = list(c["rope_axes_dim"])
    c["rope_scaling"] = {
        "mrope_section": list(c["rope_axes_dim"]),
        "mrope_interleaved": True,
        "rope_type": "default",
    }
    c["patch_latent_dim"] = c["latent_channel"] * c["latent_patch_size"] ** 2
    sound_dim = c.pop("sound_dim", None)
    action_dim = c.pop("action_dim")
    domains = c.pop("num_embodiment_domains")
    if action:
        c.update(action_gen=True, action_dim=action_dim, num_embodiment_domains=domains)
    if flavour == "nano":
        c.update(rope_theta=5e6, rms_norm_eps=1e-6, hidden_act="silu")
        if sound:
            c.update(sound_gen=True, sound_dim=sound_dim)
    else:
        c.update(
            rope_theta=1e8,
            rms_norm_eps=1e-5,
            hidden_act="relu2",
            qk_norm_for_text=False,
            use_und_k_norm_for_gen=True,
        )
    return c


def fill_transformer(model, seed, tag):
    """Seeded weights of sensible size, rounded to bfloat16. Names are visited in sorted order."""
    gen = generator(seed, f"weights/{tag}")
    inner = model.config.hidden_size
    for name, p in sorted(model.named_parameters()):
        noise = randn(gen, *p.shape)
        if "norm" in name and p.ndim == 1:
            value = 1 + 0.2 * noise
        elif name == "embed_tokens.weight":
            value = noise
        elif name == "lm_head.weight":
            value = 2.5 * noise / math.sqrt(inner)
        elif name == "action_proj_in.fc.weight":
            value = noise / math.sqrt(model.config.action_dim)
        elif name == "action_proj_out.fc.weight":
            value = noise / math.sqrt(inner)
        elif name.endswith("modality_embed"):
            value = 0.3 * noise
        elif name.endswith("bias") or name.endswith("bias.weight"):
            value = 0.1 * noise
        else:
            value = noise / math.sqrt(p.shape[-1])
        p.data.copy_(bf16_exact(value))
    return model.eval().requires_grad_(False)


def build_transformer(cfg, seed, flavour, sound=True, action=True, tag=None):
    from diffusers import Cosmos3OmniTransformer

    model = Cosmos3OmniTransformer(**transformer_config(cfg, flavour, sound, action))
    return fill_transformer(model, seed, tag or flavour)


def as_bf16(model):
    """bf16 copy with the two parts that stay in fp32: the time embedder and the rotary frequencies."""
    import copy

    twin = copy.deepcopy(model).to(torch.bfloat16)
    twin.time_embedder.float()
    c = twin.config
    exponents = torch.arange(0, c.head_dim, 2, dtype=torch.float32) / c.head_dim
    twin.rotary_emb.inv_freq = 1.0 / (c.rope_theta**exponents)
    return twin


# ------------------------------------------------------------------------------------------------ positions


def text_positions(count):
    return torch.arange(count, dtype=torch.float32).expand(3, -1).contiguous()


def media_positions(grid, offset, fps=None, factor=TEMPORAL_FACTOR, base_factor=None, start=0):
    """fp32 position rows (t, h, w) of a (T, H, W) grid of media tokens, t-major."""
    t, h, w = grid
    frame = torch.arange(t, dtype=torch.float32)
    if fps is not None and t > 1:
        rate = fps / factor
        base_rate = BASE_FPS / (factor if base_factor is None else base_factor)
        time = (frame + start) / rate * base_rate + offset
    else:
        time = frame + float(int(offset)) + start
    row = torch.arange(h, dtype=torch.float32)
    col = torch.arange(w, dtype=torch.float32)
    ts, rows, cols = torch.meshgrid(time, row, col, indexing="ij")
    return torch.stack([ts.flatten(), rows.flatten(), cols.flatten()])


def layout(
    ids,
    latent,
    patch=2,
    fps=24.0,
    clean_frames=(),
    start=0,
    sound=None,
    action=None,
    action_clean=False,
    action_fps=None,
    action_offset=1,
    domain=0,
    timestep=0.0,
):
    """Arguments of Cosmos3OmniTransformer.forward for one request: [text | vision | sound | action]."""
    und = len(ids)
    offset = und + TEXT_MARGIN
    frames, lh, lw = latent.shape[2:]
    grid = (frames, math.ceil(lh / patch), math.ceil(lw / patch))
    per_frame = grid[1] * grid[2]
    noisy = [i for i in range(frames) if i not in set(clean_frames)]
    n_vision = frames * per_frame
    vision_noisy_tokens = [und + f * per_frame + i for f in noisy for i in range(per_frame)]
    positions = [text_positions(und), media_positions(grid, offset, fps, start=start)]
    kw = dict(
        input_ids=torch.as_tensor(ids),
        text_indexes=torch.arange(und),
        und_len=und,
        vision_tokens=[latent],
        vision_token_shapes=[grid],
        vision_sequence_indexes=torch.arange(und, und + n_vision),
        vision_mse_loss_indexes=torch.tensor(vision_noisy_tokens, dtype=torch.long),
        vision_timesteps=torch.full((len(vision_noisy_tokens),), float(timestep)),
        vision_noisy_frame_indexes=[torch.tensor(noisy, dtype=torch.long)],
    )
    end = und + n_vision
    if sound is not None:
        count = sound.shape[1]
        positions.append(media_positions((count, 1, 1), offset, 25.0, factor=1, base_factor=1))
        kw.update(
            sound_tokens=[sound],
            sound_token_shapes=[(count, 1, 1)],
            sound_sequence_indexes=torch.arange(end, end + count),
            sound_mse_loss_indexes=torch.arange(end, end + count),
            sound_timesteps=torch.full((count,), float(timestep)),
            sound_noisy_frame_indexes=[torch.arange(count)],
        )
        end += count
    if action is not None:
        count = action.shape[0]
        noisy_action = [] if action_clean else list(range(count))
        positions.append(
            media_positions(
                (count, 1, 1), offset, action_fps or fps, factor=1, base_factor=TEMPORAL_FACTOR, start=action_offset
            )
        )
        kw.update(
            action_tokens=[action],
            action_token_shapes=[(count, 1, 1)],
            action_sequence_indexes=torch.arange(end, end + count),
            action_mse_loss_indexes=torch.tensor([end + i for i in noisy_action], dtype=torch.long),
            action_timesteps=torch.full((len(noisy_action),), float(timestep)),
            action_noisy_frame_indexes=[torch.tensor(noisy_action, dtype=torch.long)],
            action_domain_ids=[torch.tensor([domain])],
        )
        end += count
    kw["position_ids"] = torch.cat(positions, dim=1)
    kw["sequence_length"] = end
    return kw


# ---------------------------------------------------------------------------- the two halves of the fused forward


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * cos.unsqueeze(1) + turned * sin.unsqueeze(1)


def cos_sin(model, positions, dtype=torch.float32):
    cos, sin = model.rotary_emb(positions.unsqueeze(1), device=positions.device, dtype=dtype)
    return cos.squeeze(0), sin.squeeze(0)


def attend(q, k, v, causal):
    """[tokens, heads, dim] attention with grouped kv heads; returns [tokens, heads*dim]."""
    groups = q.shape[1] // k.shape[1]
    k = k.repeat_interleave(groups, dim=1)
    v = v.repeat_interleave(groups, dim=1)
    out = F.scaled_dot_product_attention(
        q.transpose(0, 1)[None], k.transpose(0, 1)[None], v.transpose(0, 1)[None], is_causal=causal
    )
    return out[0].transpose(0, 1).flatten(1)


@torch.no_grad()
def und_prefill(model, embeds, positions):
    """Causal pass of the understanding tower. Returns (per-layer dict of k_for_gen, k_raw, v; final normed rows)."""
    cos, sin = cos_sin(model, positions, embeds.dtype)
    cache, x = [], embeds
    for layer in model.layers:
        a = layer.self_attn
        n = layer.input_layernorm(x)
        q = a.norm_q(a.to_q(n).view(len(n), a.num_attention_heads, a.head_dim))
        k = a.norm_k(a.to_k(n).view(len(n), a.num_key_value_heads, a.head_dim))
        v = a.to_v(n).view(len(n), a.num_key_value_heads, a.head_dim)
        k_gen = k if a.k_norm_und_for_gen is None else a.k_norm_und_for_gen(k)
        q, k, k_gen = rotate(q, cos, sin), rotate(k, cos, sin), rotate(k_gen, cos, sin)
        cache.append({"k_for_gen": k_gen, "k_raw": k, "v": v})
        x = x + a.to_out(attend(q, k, v, True))
        x = x + layer.mlp(layer.post_attention_layernorm(x))
    return cache, model.norm(x)


@torch.no_grad()
def gen_pass(model, tokens, positions, context):
    """Generation tower over [context | own tokens]; context = per-layer (k, v). Returns (normed rows, fresh k/v)."""
    cos, sin = cos_sin(model, positions, tokens.dtype)
    x, fresh = tokens, []
    for layer, (ck, cv) in zip(model.layers, context):
        a = layer.self_attn
        n = layer.input_layernorm_moe_gen(x)
        q = a.norm_added_q(a.add_q_proj(n).view(len(n), a.num_attention_heads, a.head_dim))
        k = a.norm_added_k(a.add_k_proj(n).view(len(n), a.num_key_value_heads, a.head_dim))
        v = a.add_v_proj(n).view(len(n), a.num_key_value_heads, a.head_dim)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        fresh.append((k, v))
        x = x + a.to_add_out(attend(q, torch.cat([ck, k]), torch.cat([cv, v]), False))
        x = x + layer.mlp_moe_gen(layer.post_attention_layernorm_moe_gen(x))
    return model.norm_moe_gen(x), fresh


@torch.no_grad()
def vision_tokens(model, latent, timestep, noisy_frames):
    """proj_in of the patchified latent plus the time embedding on noisy frames (timestep None: no time embedding)."""
    packed, _ = model._patchify_and_pack_latents([latent])
    x = model.proj_in(packed)
    if timestep is not None and len(noisy_frames):
        emb = model.time_embedder(model.time_proj(torch.tensor([float(timestep)]) * model.config.timestep_scale))
        per_frame = x.shape[0] // latent.shape[2]
        mask = torch.zeros(latent.shape[2], 1, 1)
        mask[list(noisy_frames)] = 1
        x = (x.view(latent.shape[2], per_frame, -1) + mask * emb.view(1, 1, -1)).flatten(0, 1)
    return x


@torch.no_grad()
def vision_velocity(model, rows, latent, noisy_frames):
    """proj_out and unpatchify; clean frames stay zero."""
    frames, lh, lw = latent.shape[2:]
    p = model.config.latent_patch_size
    grid = (frames, math.ceil(lh / p), math.ceil(lw / p))
    per_frame = grid[1] * grid[2]
    pick = [f * per_frame + i for f in noisy_frames for i in range(per_frame)]
    return model._unpatchify_and_unpack_latents(
        model.proj_out(rows[pick]),
        token_shapes_vision=[grid],
        noisy_frame_indexes_vision=[torch.tensor(list(noisy_frames), dtype=torch.long)],
        original_latent_shapes=[(frames, lh, lw)],
    )[0]


# ------------------------------------------------------------------------------------------------ schedulers


UNIPC = dict(
    num_train_timesteps=1000,
    prediction_type="flow_prediction",
    predict_x0=True,
    solver_order=2,
    solver_type="bh2",
    lower_order_final=True,
    use_flow_sigmas=True,
    final_sigmas_type="zero",
    timestep_spacing="linspace",
)
KARRAS = dict(use_karras_sigmas=True, sigma_max=200.0, sigma_min=0.147, flow_shift=1.0)


def unipc(steps, kind, shift=1.0):
    """A UniPC scheduler with its timesteps set. kind: karras, linear or native."""
    import numpy as np
    from diffusers import UniPCMultistepScheduler

    if kind == "karras":
        s = UniPCMultistepScheduler(**UNIPC, **KARRAS)
        s.set_timesteps(steps)
    elif kind == "linear":
        s = UniPCMultistepScheduler(**UNIPC, flow_shift=shift)
        s.set_timesteps(steps)
    else:
        s = UniPCMultistepScheduler(**UNIPC, flow_shift=shift)
        s.set_timesteps(steps, sigmas=np.linspace(1 - 1 / 1000, 0, steps + 1)[:-1])
    return s


# ------------------------------------------------------------------------------------------------ case files


class Store:
    """Writes one .safetensors per case and keeps `cases.json` (replacing entries of the same name)."""

    def __init__(self, args):
        self.out, self.cfg, self.seed = args.out, args.cfg, args.seed
        (self.out / "cases").mkdir(exist_ok=True)
        self.index = self.out / "cases.json"

    def add(
        self, name, checks, tensors, *, kind=None, config=None, dtype="float32", tolerance=1e-5, weights=None, exact=(), loose=None
    ):
        """tensors: {key: (tensor, meaning)}. `tolerance` is relative to the rms of each output; integers are compared
        exactly. `exact` names outputs that must match bit for bit, `loose` gives absolute tolerances of single outputs."""
        flat, described, allowed = {}, {}, {}
        for key, (value, meaning) in tensors.items():
            if value.dtype == torch.bool:
                value = value.to(torch.uint8)
            value = value.detach().contiguous().clone()
            flat[key] = value
            role = {"in": "input", "mid": "info", "out": "output", "weight": "weight"}[key.split(".")[0]]
            described[key] = {
                "role": role, "dtype": str(value.dtype).replace("torch.", ""), "shape": list(value.shape), "meaning": meaning
            }
            if role != "output":
                continue
            if loose and key in loose:
                allowed[key] = {"atol": loose[key], "rtol": 0}
            elif key in exact or not value.is_floating_point() or tolerance == 0:
                allowed[key] = {"exact": True}
            else:
                allowed[key] = {"atol": float(f"{tolerance * max(rms(value), 1e-2):.3g}"), "rtol": 0}
        path = self.out / "cases" / f"{name}.safetensors"
        save_file(flat, path)
        verify(path, flat)
        entry = {
            "name": name,
            "kind": kind or name,
            "file": f"cases/{name}.safetensors",
            "checks": checks,
            "seed": self.seed,
            "dtype": dtype,
            "relative_tolerance": tolerance,
            "tolerance": allowed,
            "tensors": described,
        }
        if config:
            entry["config"] = dict(config)
        if weights:
            entry["weights"] = weights
        known = json.loads(self.index.read_text()) if self.index.exists() else {"cases": []}
        known["config"] = self.cfg["name"]
        known["metric"] = "an output passes when |got - want| <= atol + rtol * |want|, or when equal where exact is true"
        known["cases"] = sorted([c for c in known["cases"] if c["name"] != name] + [entry], key=lambda c: c["name"])
        self.index.write_text(index_text(known))
        shown = {k: f"{rms(v):.3g}" for k, v in flat.items() if k.startswith("out") and v.is_floating_point() and v.numel()}
        print(f"{name:34s} {path.stat().st_size/1024:8.1f} KiB  rms {dict(list(shown.items())[:4])}", flush=True)


def index_text(known):
    """JSON with one line per tensor."""
    one = lambda value: json.dumps(value, ensure_ascii=False)
    head = ",\n".join(f"{one(k)}: {one(v)}" for k, v in known.items() if k != "cases")
    entries = []
    for case in known["cases"]:
        lines = [f"  {one(k)}: {one(v)}" for k, v in case.items() if k != "tensors"]
        rows = ",\n".join(f"   {one(k)}: {one(v)}" for k, v in case["tensors"].items())
        lines.append('  "tensors": {\n' + rows + "\n  }")
        entries.append(" {\n" + ",\n".join(lines) + "\n }")
    return "{\n" + head + ',\n"cases": [\n' + ",\n".join(entries) + "\n]\n}\n"


def rms(x):
    return x.float().pow(2).mean().sqrt().item() if x.numel() else 0.0


def verify(path, expected):
    """Reload a file; refuse differences, NaN and infinities."""
    with safe_open(path, "pt") as f:
        assert set(f.keys()) == set(expected), path
    for key, value in load_file(path).items():
        assert value.dtype == expected[key].dtype and torch.equal(value, expected[key]), (path, key)
        if value.is_floating_point():
            assert torch.isfinite(value.float()).all(), (path, key)


def worst(a, b):
    """The metric of cases.json, used for the generators' own self-checks."""
    return ((a.float() - b.float()).abs().max() / max(rms(b), 1e-6)).item()
