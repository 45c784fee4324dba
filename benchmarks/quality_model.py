"""A Hugging Face model on the CPU that scores answers; what prompts share at their start is computed once."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch.nn.functional import linear
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from benchmarks.quality_trials import ANSWER_TOKENS, GENERATED_TOKENS
from contextpilot_integrations.gate.arms import Messages
from contextpilot_integrations.gate.scoring import exact_match, token_f1
from contextpilot_integrations.gate.server import EXACT, F1, LIKELIHOOD

_CLAUSE_END, _NEVER = re.compile(r"[.,;:!?\n]"), re.compile(r"(?!)")


class HuggingFaceScorer:
    """Log-likelihood per token of the gold answer; in some arms also what the model answers by itself.

    The body of the model runs in bfloat16, its head in float32, where differences of a hundredth would be lost.
    """

    def __init__(self, folder: Path, *, generate: Sequence[str] = (), generated_tokens: int = GENERATED_TOKENS) -> None:
        """Load the model; ``generate`` names the arms that answer by themselves too, in so many tokens at most."""
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
        self._head = self._model.lm_head.weight.float()
        self._stops = set(self._model.generation_config.eos_token_id)
        self._generate, self._generated_tokens = frozenset(generate), generated_tokens
        self._cache, self._cached = DynamicCache(), list[int]()

    @torch.inference_mode()
    def score(self, prompts: Mapping[str, Messages], answers: Sequence[str]) -> dict[str, dict[str, float]]:
        """Return the scores of every arm; arms that follow one another share what they have in common.

        Where an assistant's message comes last, the answer completes it, and ends at the first punctuation.
        """
        scores = {}
        for arm, messages in prompts.items():
            begun = messages[-1]["role"] == "assistant"
            prompt = self._tokenizer.apply_chat_template(
                messages, add_generation_prompt=not begun, continue_final_message=begun, return_dict=False
            )
            text = f" {answers[0]}" if begun else answers[0]
            gold = self._tokenizer.encode(text, add_special_tokens=False)[:ANSWER_TOKENS]
            logits = self._logits([*prompt, *gold], len(gold) + 1)
            chosen = torch.log_softmax(logits[:-1], dim=-1).gather(1, torch.tensor(gold).unsqueeze(1))
            scores[arm] = {LIKELIHOOD: float(chosen.mean())}
            if arm in self._generate and len(gold) <= self._generated_tokens:
                answer = self._answer(prompt, gold, logits.argmax(-1).tolist(), _CLAUSE_END if begun else _NEVER)
                scores[arm] |= {F1: token_f1(answer, answers), EXACT: exact_match(answer, answers)}
        return scores

    def _answer(self, prompt: Sequence[int], gold: Sequence[int], chosen: list[int], end: re.Pattern[str]) -> str:
        """Return the greedy answer; ``chosen``: the best tokens along ``gold``, right as long as they agree with it."""
        agreed = _shared(gold, chosen)
        answer = chosen[: agreed + 1]
        while len(answer) < self._generated_tokens and not self._ended(answer, end):
            answer.append(int(self._logits([*prompt, *answer], 1).argmax()))
        return end.split(self._tokenizer.decode(answer, skip_special_tokens=True), maxsplit=1)[0]

    def _ended(self, answer: Sequence[int], end: re.Pattern[str]) -> bool:
        return answer[-1] in self._stops or bool(end.search(self._tokenizer.decode(answer[-1:])))

    def _logits(self, tokens: Sequence[int], last: int) -> torch.Tensor:
        """Return the logits after each of the ``last`` tokens; what the cache holds of ``tokens`` is not run again."""
        kept = min(_shared(self._cached, tokens), len(tokens) - last)
        if kept < len(self._cached):
            self._cache.crop(kept - len(self._cached))
        hidden = self._model.model(torch.tensor([tokens[kept:]]), cache=self._cache, use_cache=True)
        self._cached = list(tokens)
        return linear(hidden.last_hidden_state[0, -last:].float(), self._head)


def _shared(left: Sequence[int], right: Sequence[int]) -> int:
    """Return the length of the common prefix."""
    differing = (place for place, (a, b) in enumerate(zip(left, right, strict=False)) if a != b)
    return next(differing, min(len(left), len(right)))
