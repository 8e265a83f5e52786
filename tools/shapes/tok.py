"""A byte-level BPE tokenizer of the published form, trained on every caption: each caption word becomes one token."""

import json

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

import captions

SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
VOCAB = 448  # of the embedding; the tokenizer itself stops growing before
CHAT_TEMPLATE = """{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""


def train():
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(SPLIT), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB - len(SPECIALS),
        special_tokens=[],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    corpus = ["user\n", "assistant\n"] * 50 + sorted(captions.all_captions())
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.add_special_tokens(SPECIALS)
    return tokenizer


def wrap(tokenizer, text):
    """Ids of a prompt as the pipeline makes them: chat template, then <|im_end|> and <|vision_start|>."""
    turn = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    ids = tokenizer.encode(turn, add_special_tokens=False).ids
    return ids + [tokenizer.token_to_id("<|im_end|>"), tokenizer.token_to_id("<|vision_start|>")]


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def save(tokenizer, folder):
    """The files of text_tokenizer/."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    names = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    plain = dict(special=True, normalized=False, lstrip=False, rstrip=False, single_word=False)
    added = {str(tokenizer.token_to_id(s)): {"content": s, **plain} for s in SPECIALS}
    write_json(
        folder / "tokenizer_config.json",
        dict(
            tokenizer_class="PreTrainedTokenizerFast",
            model_max_length=262144,
            clean_up_tokenization_spaces=False,
            add_bos_token=False,
            added_tokens_decoder=added,
            **names,
        ),
    )
    write_json(folder / "special_tokens_map.json", names)
    model = json.loads(tokenizer.to_str())["model"]
    write_json(folder / "vocab.json", model["vocab"])
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")


if __name__ == "__main__":
    t = train()
    print(t.get_vocab_size(), "entries")
    for text in ("", "a red circle on the left on a white background", "a video of a still big purple triangle on a beige background", "pushing a small cyan star on a navy background"):
        print(len(wrap(t, text)), t.encode(text).tokens)
