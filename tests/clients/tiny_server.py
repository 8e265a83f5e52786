"""A tiny recorded checkpoint, and a running `mstar serve` of it, for tests of what talks to them."""
import contextlib
import json
import pathlib
import re
import shutil
import subprocess
import tempfile

CHECKPOINT = pathlib.Path(__file__).resolve().parent.parent / "golden/lm/checkpoints/llama_untied"
VOCAB_SIZE = 320


def tokenizer():
    """Words t0 to t319; what is no word is t0. So every text can be a prompt."""
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": False},
        "model": {
            "type": "WordPiece",
            "unk_token": "t0",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {f"t{index}": index for index in range(VOCAB_SIZE)},
        },
    }


def byte_tokenizer():
    """Byte-level BPE without merges: 0 to 2 are special, 2 ends answers, then the bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    special = ["<pad>", "<s>", "</s>"]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": index, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}
            for index, text in enumerate(special)
        ],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {text: index for index, text in enumerate([*special, *(letters[b] for b in range(256))])},
            "merges": [],
        },
    }


@contextlib.contextmanager
def tiny_checkpoint(max_position_embeddings=None, tokenizer_json=None):
    """Yields the folder of a checkpoint to which every text can be a prompt."""
    with tempfile.TemporaryDirectory() as folder:
        for path in CHECKPOINT.iterdir():
            shutil.copy(path, folder)
        (pathlib.Path(folder) / "tokenizer.json").write_text(json.dumps(tokenizer_json or tokenizer()))
        if max_position_embeddings is not None:
            config = pathlib.Path(folder) / "config.json"
            known = json.loads(config.read_text())
            config.write_text(json.dumps({**known, "max_position_embeddings": max_position_embeddings}))
        yield folder


@contextlib.contextmanager
def tiny_server(program, *flags, tokenizer_json=None):
    """Yields the server's URL."""
    with tiny_checkpoint(tokenizer_json=tokenizer_json) as folder:
        server = subprocess.Popen(
            [program, "serve", folder, "--port", "0", "--threads", "2", "--log-level", "warning", *flags],
            stderr=subprocess.PIPE, text=True)
        try:
            for line in server.stderr:
                if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                    break
            else:
                raise RuntimeError("the server did not start")
            yield found[0]
        finally:
            server.terminate()
            server.communicate()
