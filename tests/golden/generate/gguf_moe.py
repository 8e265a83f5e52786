#!/usr/bin/env python3
"""Writes the recorded qwen2_moe checkpoint as GGUF: the experts of a layer in one tensor for each of
gate, up and down, and the shared expert's gate as a vector, as published files have them
(github.com/ggml-org/ggml, docs/gguf.md). What it answers is recorded already.

    gguf_moe.py CHECKPOINT_FOLDER OUTPUT.gguf
"""
import json
import pathlib
import re
import struct
import sys

UINT32, FLOAT32, STRING = 4, 6, 8
ALIGNMENT = 32
NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate": "ffn_gate_inp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}


def read_safetensors(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            yield name, entry["shape"], data[8 + size + begin : 8 + size + end]


def gguf_tensors(path):
    """Name: (shape with the outermost dim first, f32 bytes)."""
    out, experts = {}, {}
    for name, shape, data in read_safetensors(path):
        if expert := re.fullmatch(r"model\.layers\.(\d+)\.mlp\.experts\.(\d+)\.(gate|up|down)_proj\.weight", name):
            layer, index, part = expert.groups()
            experts.setdefault(f"blk.{layer}.ffn_{part}_exps.weight", {})[int(index)] = (shape, data)
        elif name in NAMES:
            out[NAMES[name]] = (shape, data)
        else:
            layer, middle, kind = re.fullmatch(r"model\.layers\.(\d+)\.(.*)\.(weight|bias)", name).groups()
            own = f"blk.{layer}.{LAYER_NAMES[middle]}.{kind}"
            out[own] = ([n for n in shape if n != 1], data)
    for name, parts in experts.items():
        out[name] = ([len(parts), *parts[0][0]], b"".join(parts[index][1] for index in range(len(parts))))
    return out


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def main():
    folder, target = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    config = json.loads((folder / "config.json").read_text())
    arch = "qwen2moe"
    values = [
        ("general.architecture", STRING, text(arch)),
        (f"{arch}.attention.layer_norm_rms_epsilon", FLOAT32, struct.pack("<f", config["rms_norm_eps"])),
        (f"{arch}.rope.freq_base", FLOAT32, struct.pack("<f", config["rope_theta"])),
    ]
    for key, name in {
        "embedding_length": "hidden_size",
        "feed_forward_length": "intermediate_size",
        "block_count": "num_hidden_layers",
        "attention.head_count": "num_attention_heads",
        "attention.head_count_kv": "num_key_value_heads",
        "context_length": "max_position_embeddings",
        "expert_count": "num_experts",
        "expert_used_count": "num_experts_per_tok",
        "expert_feed_forward_length": "moe_intermediate_size",
        "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
    }.items():
        values.append((f"{arch}.{key}", UINT32, struct.pack("<I", config[name])))
    tensors = gguf_tensors(folder / "model.safetensors")
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values))
    for key, kind, value in values:
        head += text(key) + struct.pack("<I", kind) + value
    offset, body = 0, b""
    for name, (shape, data) in tensors.items():
        head += text(name) + struct.pack("<I", len(shape))
        head += b"".join(struct.pack("<Q", size) for size in reversed(shape))
        head += struct.pack("<IQ", 0, offset)  # f32
        data += b"\0" * (-len(data) % ALIGNMENT)
        body += data
        offset += len(data)
    target.write_bytes(head + b"\0" * (-len(head) % ALIGNMENT) + body)


if __name__ == "__main__":
    main()
