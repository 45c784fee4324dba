"""Small byte-level BPE tokenizers as models have them, and prompts for them."""

from contextpilot_core.config import EngineConfig
from contextpilot_core.engine.engine import ReuseEngine
from tests.conftest import require

TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if tools %}{{ tools | tojson }}{% endif %}{% if shout %}LOUD{% endif %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA3 = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
CORPUS = [f"[Doc {n}]\n===\nThe rain in {town} stays mainly\n===\nin the plain\n" for n in range(30) for town in "ABC"]


def body(name, words=12):
    return " ".join(f"{name} says number {number}." for number in range(words))


def split_like(style):
    tokenizers = require("tokenizers")
    pre = tokenizers.pre_tokenizers
    if style == "gpt2":
        return pre.ByteLevel(add_prefix_space=False)
    if style == "llama3":  # a fence and the line end behind it become one token
        cut = pre.Split(tokenizers.Regex(LLAMA3), "isolated")
        return pre.Sequence([cut, pre.ByteLevel(add_prefix_space=False, use_regex=False)])
    return pre.ByteLevel(add_prefix_space=False, use_regex=False)  # merges go over words, lines and blocks


def trained(style):
    """A byte-level BPE tokenizer as models have them, small."""
    tokenizers, transformers = require("tokenizers"), require("transformers")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = split_like(style)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator([*CORPUS, *(body(word) for word in ("rain", "wind", "sun"))], trainer)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=made)
    fast.chat_template = TEMPLATE
    return fast


def planned(blocks, query="What now?", **options):
    return ReuseEngine(EngineConfig()).plan(blocks, query=query, **options)
