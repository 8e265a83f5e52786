"""Cosmos3OmniTransformer at tiny dimensions: a batched training forward over its weights, and batched sampling.

The class itself runs one packed request; `velocity` runs a batch and is equal to it (tested by `python dit.py`).
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from diffusers import Cosmos3OmniTransformer, UniPCMultistepScheduler

import tok

MARGIN = 15000.0  # between the positions of text and of media
STEPS, GUIDANCE = 20, 4.0
CONFIG = dict(
    hidden_size=192,
    num_hidden_layers=4,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=32,
    intermediate_size=512,
    vocab_size=tok.VOCAB,
    latent_channel=16,
    latent_patch_size=2,
    patch_latent_dim=64,
    rope_axes_dim=[6, 5, 5],
    rope_scaling=dict(mrope_section=[6, 5, 5], mrope_interleaved=True, rope_type="default"),
    rope_theta=5e6,
    rms_norm_eps=1e-6,
    hidden_act="silu",
    action_gen=True,
    action_dim=8,
    num_embodiment_domains=8,
)
SCHEDULER = dict(
    num_train_timesteps=1000,
    prediction_type="flow_prediction",
    predict_x0=True,
    solver_order=2,
    solver_type="bh2",
    lower_order_final=True,
    use_flow_sigmas=True,
    final_sigmas_type="zero",
    timestep_spacing="linspace",
    use_karras_sigmas=True,
    sigma_max=200.0,
    sigma_min=0.147,
    flow_shift=1.0,
)


def build(seed=0):
    torch.manual_seed(seed)
    m = Cosmos3OmniTransformer(**CONFIG)
    depth = CONFIG["num_hidden_layers"]
    with torch.no_grad():
        m.embed_tokens.weight.normal_(0, 0.5)
        for name, p in m.named_parameters():
            if name.startswith("layers.") and p.ndim == 2:
                p.normal_(0, 0.6 / math.sqrt(p.shape[1]))
                if any(k in name for k in ("to_out", "to_add_out", "down_proj")):
                    p.mul_(1 / math.sqrt(2 * depth))
        nn.init.normal_(m.proj_in.weight, 0, 1 / math.sqrt(CONFIG["patch_latent_dim"]))
        for p in (m.proj_out.weight, m.proj_out.bias, m.action_proj_out.fc.weight, m.action_proj_out.bias.weight, m.action_proj_in.bias.weight):
            p.zero_()
        m.action_proj_in.fc.weight.normal_(0, 0.5)
        m.action_modality_embed.normal_(0, 0.5)
        m.lm_head.weight.zero_()  # unused by generation, but part of the layout
    return m


def adopt(model, state, old_vocab, new_vocab):
    """Loads a state trained with another vocabulary: rows of the embedding follow their token."""
    state = dict(state)
    mine = model.state_dict()
    rows = state.pop("embed_tokens.weight")
    state.pop("lm_head.weight", None)
    with torch.no_grad():
        for token, index in new_vocab.items():
            if token in old_vocab:
                mine["embed_tokens.weight"][index] = rows[old_vocab[token]]
    missing, unexpected = model.load_state_dict(state, strict=False)
    return [k for k in missing if k not in ("embed_tokens.weight", "lm_head.weight")], unexpected


class Rope:
    """cos and sin of text positions, and of media and action positions after every text length up to `longest`."""

    def __init__(self, model, longest, frames, height, width, fps, actions=0):
        self.text = self._angles(model, torch.arange(longest).float().expand(3, -1))
        media = []
        for length in range(longest + 1):
            start = length + MARGIN
            f = torch.arange(frames).float()
            t = f / (fps / 4) * (24.0 / 4) + start if frames > 1 else f + start
            grid = torch.meshgrid(t, torch.arange(height).float(), torch.arange(width).float(), indexing="ij")
            rows = torch.stack([g.flatten() for g in grid])
            if actions:
                when = (torch.arange(actions).float() + 1) / fps * (24.0 / 4) + start
                rows = torch.cat([rows, torch.stack([when, torch.zeros(actions), torch.zeros(actions)])], 1)
            media.append(self._angles(model, rows))
        self.cos, self.sin = (torch.stack([m[i] for m in media]) for i in (0, 1))

    @staticmethod
    def _angles(model, positions):
        cos, sin = model.rotary_emb(positions.unsqueeze(1), device=positions.device, dtype=torch.float32)
        return cos[0], sin[0]


def rotate(x, cos, sin):
    """x [B, N, heads, D]."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


def rms(x, norm):
    return F.rms_norm(x, (x.shape[-1],), norm.weight, CONFIG["rms_norm_eps"])


def attend(q, k, v, mask):
    """Attention by batched products; q heads of one kv head are rows of one product. mask broadcasts to [B, 1, 1, N, U]."""
    batch, n, heads, dim = q.shape
    u, groups = k.shape[1], k.shape[2]
    share = heads // groups
    q = q.view(batch, n, groups, share, dim).permute(0, 2, 3, 1, 4).reshape(batch * groups, share * n, dim)
    k = k.permute(0, 2, 3, 1).reshape(batch * groups, dim, u)
    v = v.transpose(1, 2).reshape(batch * groups, u, dim)
    scores = torch.bmm(q, k).view(batch, groups, share, n, u) * dim**-0.5 + mask
    out = torch.bmm(scores.softmax(-1).view(batch * groups, share * n, u), v)
    return out.view(batch, groups, share, n, dim).permute(0, 3, 1, 2, 4).reshape(batch, n, heads * dim)


def patchify(x, p=2):
    b, c, t, h, w = x.shape
    return x.view(b, c, t, h // p, p, w // p, p).permute(0, 2, 3, 5, 4, 6, 1).reshape(b, t * (h // p) * (w // p), p * p * c)


def unpatchify(x, shape, p=2):
    b, c, t, h, w = shape
    return x.view(b, t, h // p, w // p, p, p, c).permute(0, 6, 1, 2, 4, 3, 5).reshape(b, c, t, h, w)


def text_pass(m, ids, rope):
    """ids [B, U] padded on the right -> per layer (k, v) of the understanding tower."""
    c = m.config
    batch, u = ids.shape
    cos, sin = (t[:u].view(1, u, 1, -1) for t in rope.text)
    causal = torch.full((u, u), -1e4).triu(1)
    x, kv = m.embed_tokens(ids), []
    for i, layer in enumerate(m.layers):
        a = layer.self_attn
        n = rms(x, layer.input_layernorm)
        k = rotate(rms(a.to_k(n).view(batch, u, c.num_key_value_heads, c.head_dim), a.norm_k), cos, sin)
        v = a.to_v(n).view(batch, u, c.num_key_value_heads, c.head_dim)
        kv.append((k, v))
        if i + 1 == len(m.layers):
            break  # what the last layer adds to the text is read by nobody
        q = rotate(rms(a.to_q(n).view(batch, u, c.num_attention_heads, c.head_dim), a.norm_q), cos, sin)
        x = x + a.to_out(attend(q, k, v, causal))
        x = x + layer.mlp(rms(x, layer.post_attention_layernorm))
    return kv


def velocity(m, kv, lengths, latents, sigma, clean, rope, actions=None, domain=None):
    """latents [B, C, T, h, w] with clean frames in place, sigma [B], clean [B, T] bool, actions [B, A, action_dim] clean."""
    c = m.config
    batch, _, frames, h, w = latents.shape
    u = kv[0][0].shape[1]
    x = m.proj_in(patchify(latents)).float()
    media = x.shape[1]
    noisy = (~clean).float().repeat_interleave(media // frames, 1).unsqueeze(-1)
    with torch.autocast("cpu", enabled=False):
        x = x + noisy * m.time_embedder(m.time_proj(sigma * 1000 * c.timestep_scale)).unsqueeze(1)
    if actions is not None:
        weight = m.action_proj_in.fc.weight[domain].view(c.action_dim, c.hidden_size)
        x = torch.cat([x, actions @ weight + m.action_proj_in.bias.weight[domain] + m.action_modality_embed], 1)
    n = x.shape[1]
    cos, sin = rope.cos[lengths].view(batch, n, 1, -1), rope.sin[lengths].view(batch, n, 1, -1)
    seen = torch.cat([torch.arange(u).view(1, u) < lengths.view(batch, 1), torch.ones(batch, n, dtype=torch.bool)], 1)
    mask = torch.zeros(batch, u + n).masked_fill(~seen, -1e4).view(batch, 1, 1, 1, u + n)
    for layer, (text_k, text_v) in zip(m.layers, kv):
        a = layer.self_attn
        y = rms(x, layer.input_layernorm_moe_gen)
        q = rotate(rms(a.add_q_proj(y).view(batch, n, c.num_attention_heads, c.head_dim), a.norm_added_q), cos, sin)
        k = rotate(rms(a.add_k_proj(y).view(batch, n, c.num_key_value_heads, c.head_dim), a.norm_added_k), cos, sin)
        v = a.add_v_proj(y).view(batch, n, c.num_key_value_heads, c.head_dim)
        x = x + a.to_add_out(attend(q, torch.cat([text_k, k], 1), torch.cat([text_v, v], 1), mask))
        x = x + layer.mlp_moe_gen(rms(x, layer.post_attention_layernorm_moe_gen))
    out = m.proj_out(rms(x[:, :media], m.norm_moe_gen)) * noisy
    return unpatchify(out.float(), latents.shape)


def pad(sequences):
    """Ids [B, U] padded on the right, and their lengths [B]."""
    lengths = torch.tensor([len(s) for s in sequences])
    longest = int(lengths.max())
    return torch.tensor([s + [0] * (longest - len(s)) for s in sequences]), lengths


@torch.no_grad()
def generate(m, ids, lengths, empty, noise, rope, first=None, actions=None, domain=None, steps=STEPS, guidance=GUIDANCE):
    """Batched sampling with the published scheduler. `empty`: ids of the empty prompt; first: clean frame 0 [B, C, 1, h, w]."""
    scheduler = UniPCMultistepScheduler(**SCHEDULER)
    scheduler.set_timesteps(steps)
    batch, _, frames = noise.shape[:3]
    clean = torch.zeros(batch, frames, dtype=torch.bool)
    x = noise.clone()
    if first is not None:
        clean[:, 0] = True
        x[:, :, :1] = first
    kv = text_pass(m, ids, rope)
    blank, blank_lengths = torch.tensor(empty).expand(batch, -1), torch.full((batch,), len(empty))
    blank_kv = text_pass(m, blank, rope)
    for t in scheduler.timesteps:
        sigma = torch.full((batch,), float(t) / 1000)
        v = velocity(m, kv, lengths, x, sigma, clean, rope, actions, domain)
        if guidance != 1:
            blank_v = velocity(m, blank_kv, blank_lengths, x, sigma, clean, rope, actions, domain)
            v = blank_v + guidance * (v - blank_v)
        x = scheduler.step(v, t, x, return_dict=False)[0]
    return x


def _packed(ids, latent, sigma, clean, actions, domain, fps):
    """Arguments of the class's own forward for one request."""
    und, (frames, h, w) = len(ids), latent.shape[2:]
    grid, start = (frames, h // 2, w // 2), len(ids) + MARGIN
    per = grid[1] * grid[2]
    noisy = [f for f in range(frames) if not clean[f]]
    t = torch.arange(frames).float() / (fps / 4) * 6 + start if frames > 1 else torch.arange(frames) + start
    mesh = torch.meshgrid(t, torch.arange(grid[1]).float(), torch.arange(grid[2]).float(), indexing="ij")
    positions = [torch.arange(und).float().expand(3, -1), torch.stack([g.flatten() for g in mesh])]
    end = und + frames * per
    out = dict(
        input_ids=ids,
        text_indexes=torch.arange(und),
        und_len=und,
        vision_tokens=[latent],
        vision_token_shapes=[grid],
        vision_sequence_indexes=torch.arange(und, end),
        vision_mse_loss_indexes=torch.tensor([und + f * per + i for f in noisy for i in range(per)]),
        vision_timesteps=torch.full((len(noisy) * per,), float(sigma) * 1000),
        vision_noisy_frame_indexes=[torch.tensor(noisy)],
    )
    if actions is not None:
        count = len(actions)
        none = torch.zeros(0, dtype=torch.long)
        when = (torch.arange(count).float() + 1) / fps * 6 + start
        positions.append(torch.stack([when, torch.zeros(count), torch.zeros(count)]))
        out.update(
            action_tokens=[actions],
            action_token_shapes=[(count, 1, 1)],
            action_sequence_indexes=torch.arange(end, end + count),
            action_mse_loss_indexes=none,
            action_timesteps=torch.zeros(0),
            action_noisy_frame_indexes=[none],
            action_domain_ids=[torch.tensor([domain])],
        )
        end += count
    return dict(out, position_ids=torch.cat(positions, 1), sequence_length=end)


def check():
    """The batched forward against the class's own: pictures, clips with a clean frame, pushes, unequal text lengths."""
    m = build()
    torch.nn.init.normal_(m.proj_out.weight, 0, 0.1)
    worst = 0.0
    for frames, actions in ((1, 0), (3, 0), (3, 8)):
        rope = Rope(m, 24, frames, 2, 2, 8.0, actions)
        ids, lengths = torch.randint(0, 400, (2, 20)), torch.tensor([20, 15])
        latents, sigma = torch.randn(2, 16, frames, 4, 4), torch.tensor([0.7, 0.3])
        clean = torch.zeros(2, frames, dtype=torch.bool)
        clean[1, 0] = frames > 1
        push = torch.randn(2, actions, CONFIG["action_dim"]) if actions else None
        with torch.no_grad():
            got = velocity(m, text_pass(m, ids, rope), lengths, latents, sigma, clean, rope, push, 4)
            for b in range(2):
                kw = _packed(ids[b, : lengths[b]], latents[b : b + 1], sigma[b], clean[b], push[b] if actions else None, 4, 8.0)
                want = m(**kw).sample[0]
                worst = max(worst, (want - got[b : b + 1]).abs().max().item())
    print("largest difference", worst)
    assert worst < 2e-5


if __name__ == "__main__":
    check()
