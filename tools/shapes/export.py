"""Writes a trained pair as a folder of the published layout, bf16 safetensors.

    python export.py OUT --run RUN [--vae RUN/vae.pt] [--decoder RUN/decoder.pt]

The averaged weights of RUN/dit.pt with its latent statistics, and the autoencoder: encoder and decoder of --vae, or
everything of --decoder, whose encoder is the same.
"""

import argparse
import json
import pathlib
import shutil

import torch
from diffusers import UniPCMultistepScheduler
from safetensors.torch import save_file

import dit
import tok
import vae

LIMIT_BYTES = 16_000_000


def save_weights(module, folder):
    module.save_config(folder)
    state = {k: v.detach().to(torch.bfloat16).contiguous() for k, v in module.state_dict().items()}
    save_file(state, folder / "diffusion_pytorch_model.safetensors", metadata={"format": "pt"})


def save_transformer(state, folder):
    model = dit.build()
    missing, unexpected = model.load_state_dict(state, strict=False)
    if missing or unexpected:
        raise SystemExit(f"weights do not fit: missing {missing}, unexpected {unexpected}")
    with torch.no_grad():  # rows of domains that were never trained
        for name, p in model.named_parameters():
            if "action_proj_in" in name or "action_proj_out" in name:
                keep = p[4].clone()
                p.zero_()
                p[4] = keep
    folder.mkdir(parents=True)
    save_weights(model, folder)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config.pop("_name_or_path", None)
    config.update(max_position_embeddings=262144, temporal_compression_factor_sound=1, joint_attn_implementation="two_way")
    tok.write_json(path, config)


def save_index(out):
    pair = lambda library, name: [library, name]
    tok.write_json(
        out / "model_index.json",
        {
            "_class_name": "Cosmos3OmniPipeline",
            "_diffusers_version": "0.40.0",
            "default_use_system_prompt": False,
            "enable_safety_checker": False,
            "use_native_flow_schedule": False,
            "safety_checker": pair(None, None),
            "scheduler": pair("diffusers", "UniPCMultistepScheduler"),
            "sound_tokenizer": pair(None, None),
            "text_tokenizer": pair("transformers", "PreTrainedTokenizerFast"),
            "transformer": pair("diffusers", "Cosmos3OmniTransformer"),
            "vae": pair("diffusers", "AutoencoderKLWan"),
        },
    )
    tok.write_json(out / "config.json", {"model_type": "cosmos3_omni"})


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("out", type=pathlib.Path)
    p.add_argument("--run", type=pathlib.Path, required=True)
    p.add_argument("--vae", type=pathlib.Path)
    p.add_argument("--decoder", type=pathlib.Path)
    a = p.parse_args()
    for name in ("transformer", "vae", "scheduler", "text_tokenizer"):
        shutil.rmtree(a.out / name, ignore_errors=True)
    trained = torch.load(a.run / "dit.pt", map_location="cpu", weights_only=True)
    save_transformer(trained["ema"], a.out / "transformer")
    mean, std = ([round(v, 4) for v in trained["pool"][k].tolist()] for k in ("mean", "std"))
    autoencoder = vae.build(a.decoder or a.vae or a.run / "vae.pt", mean, std)
    (a.out / "vae").mkdir()
    save_weights(autoencoder, a.out / "vae")
    UniPCMultistepScheduler(**dit.SCHEDULER).save_config(a.out / "scheduler")
    tok.save(tok.train(), a.out / "text_tokenizer")
    save_index(a.out)
    size = sum(f.stat().st_size for f in a.out.rglob("*") if f.is_file())
    print(f"{size} bytes, {trained['step']} steps, {trained['minutes']:.1f} minutes")
    if size > LIMIT_BYTES:
        raise SystemExit(f"larger than {LIMIT_BYTES} bytes")


if __name__ == "__main__":
    main()
