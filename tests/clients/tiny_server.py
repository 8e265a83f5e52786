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


@contextlib.contextmanager
def tiny_checkpoint(max_position_embeddings=None):
    """Yields the folder of a checkpoint to which every text can be a prompt."""
    with tempfile.TemporaryDirectory() as folder:
        for path in CHECKPOINT.iterdir():
            shutil.copy(path, folder)
        (pathlib.Path(folder) / "tokenizer.json").write_text(json.dumps(tokenizer()))
        if max_position_embeddings is not None:
            config = pathlib.Path(folder) / "config.json"
            known = json.loads(config.read_text())
            config.write_text(json.dumps({**known, "max_position_embeddings": max_position_embeddings}))
        yield folder


@contextlib.contextmanager
def tiny_server(program, *flags):
    """Yields the server's URL."""
    with tiny_checkpoint() as folder:
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
