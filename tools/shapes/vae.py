"""The Wan autoencoder at tiny dimensions, and cheaper equal functions of two of its layers for training on a CPU."""

import json
import pathlib

import torch
import torch.nn.functional as F
from diffusers import AutoencoderKLWan
from diffusers.models.autoencoders import autoencoder_kl_wan as wan
from diffusers.models.autoencoders.autoencoder_kl_wan import unpatchify
from safetensors.torch import load_file

Z = 16


def config(mean=None, std=None):
    return dict(
        base_dim=16,
        decoder_base_dim=16,
        z_dim=Z,
        dim_mult=[1, 2, 4, 4],
        num_res_blocks=2,
        attn_scales=[],
        temperal_downsample=[False, True, True],
        is_residual=True,
        in_channels=12,
        out_channels=12,
        patch_size=2,
        scale_factor_temporal=4,
        scale_factor_spatial=16,
        latents_mean=mean or [0.0] * Z,
        latents_std=std or [1.0] * Z,
    )


def build(init=None, mean=None, std=None):
    """`init`: a .pt state, a published folder, or None for a fresh start."""
    model = AutoencoderKLWan(**config(mean, std))
    if init is None:
        with torch.no_grad():
            # At log-variance 0 unit noise drowns the young latents and nothing is learned for minutes.
            model.quant_conv.bias[Z:] = -6.0
            model.quant_conv.weight[Z:] *= 0.1
            model.quant_conv.weight[:Z] *= 2
    else:
        model.load_state_dict(read_state(init, "vae"))
    return model


def read_state(path, folder):
    """fp32 state of a .pt training state (its average) or of a folder of the published layout."""
    path = pathlib.Path(path)
    if path.is_dir():
        state = load_file(path / folder / "diffusion_pytorch_model.safetensors")
    else:
        state = torch.load(path, map_location="cpu", weights_only=True)
        state = state.get("ema", state)
    return {k: v.float() for k, v in state.items()}


def read_latent_statistics(folder):
    c = json.loads((pathlib.Path(folder) / "vae/config.json").read_text())
    return c["latents_mean"], c["latents_std"]


def _fast_conv(self, x, cache_x=None):
    """Two of three temporal taps of a one-frame first chunk meet zero padding: a 2-D convolution with the last tap is equal."""
    k = self.kernel_size
    if k == (1, 1, 1):
        if x.shape[2] == 1:
            return F.conv2d(x[:, :, 0], self.weight[:, :, 0], self.bias).unsqueeze(2)
        return F.conv3d(x, self.weight, self.bias)
    pad = self._padding[4]
    if x.shape[2] == 1 and cache_x is None and k[0] == 3 and pad == 2:
        return F.conv2d(x[:, :, 0], self.weight[:, :, 2], self.bias, padding=(k[1] // 2, k[2] // 2)).unsqueeze(2)
    if cache_x is not None and pad > 0:
        x = torch.cat([cache_x, x], 2)
        pad -= cache_x.shape[2]
    if pad > 0:
        x = F.pad(x, (0, 0, 0, 0, pad, 0))
    return F.conv3d(x, self.weight, self.bias, self.stride, (0, k[1] // 2, k[2] // 2))


def _fast_norm(self, x):
    inverse = x.pow(2).sum(1, keepdim=True).clamp_min(1e-24).rsqrt() * self.scale
    return x * inverse * self.gamma


def use_fast_layers():
    wan.WanCausalConv3d.forward = _fast_conv
    wan.WanRMS_norm.forward = _fast_norm


def encode(model, pixels):
    """Mean and log-variance, each [B, Z, latent frames, h, w]."""
    return model._encode(pixels.contiguous(memory_format=torch.channels_last_3d)).chunk(2, 1)


def decode(model, latents):
    """Pixels without the class's final clamp, which would kill gradients."""
    model.clear_cache()
    x, out = model.post_quant_conv(latents), []
    for i in range(latents.shape[2]):
        model._conv_idx = [0]
        out.append(model.decoder(x[:, :, i : i + 1], feat_cache=model._feat_map, feat_idx=model._conv_idx, first_chunk=i == 0))
    model.clear_cache()
    return unpatchify(torch.cat(out, 2), 2)
