"""Unpack a quantised GGUF model into a folder of Hugging Face files. Run by the interpreter that has torch.

usage: gguf_to_hugging_face.py MODEL.gguf FOLDER
"""

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main() -> None:
    """Convert to bfloat16."""
    source, target = Path(sys.argv[1]), sys.argv[2]
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    loaded = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
    settings = {name: value for name, value in loaded.config.to_dict().items() if name != "quantization_config"}
    # A fresh model takes the weights: the one that was loaded from GGUF refuses to be saved.
    model = AutoModelForCausalLM.from_config(type(loaded.config).from_dict(settings), dtype=torch.bfloat16)
    model.load_state_dict({name: weight.to(torch.bfloat16) for name, weight in loaded.state_dict().items()})
    model.tie_weights()
    model.generation_config.eos_token_id = [tokenizer.convert_tokens_to_ids(t) for t in ("<|im_end|>", "<|endoftext|>")]
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


if __name__ == "__main__":
    main()
