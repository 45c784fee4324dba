"""A Hugging Face model on the CPU that scores answers; what prompts share at their start is computed once."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch.nn.functional import linear
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from benchmarks.quality_trials import ANSWER_TOKENS, GENERATED_TOKENS
from contextpilot_integrations.gate.arms import Messages
from contextpilot_integrations.gate.scoring import exact_match, token_f1
from contextpilot_integrations.gate.server import EXACT, F1, LIKELIHOOD


class HuggingFaceScorer:
    """Log-likelihood per token of the gold answer; in some arms also what the model answers by itself.

    The body of the model runs in bfloat16, its head in float32, where differences of a hundredth would be lost.
    """

    def __init__(self, folder: Path, *, generate: Sequence[str] = ()) -> None:
        """Load the model; ``generate`` names the arms that answer by themselves too."""
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
        self._head = self._model.lm_head.weight.float()
        self._stops = set(self._model.generation_config.eos_token_id)
        self._generate = frozenset(generate)
        self._cache, self._cached = DynamicCache(), list[int]()

    @torch.inference_mode()
    def score(self, prompts: Mapping[str, Messages], answers: Sequence[str]) -> dict[str, dict[str, float]]:
        """Return the scores of every arm; arms that follow one another share what they have in common."""
        gold = self._tokenizer.encode(answers[0], add_special_tokens=False)[:ANSWER_TOKENS]
        scores = {}
        for arm, messages in prompts.items():
            tokens = self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
            scores[arm] = {LIKELIHOOD: self._log_likelihood(tokens, gold)}
            if arm in self._generate and len(gold) <= GENERATED_TOKENS:
                answer = self._tokenizer.decode(self._answer(tokens))
                scores[arm] |= {F1: token_f1(answer, answers), EXACT: exact_match(answer, answers)}
        return scores

    def _log_likelihood(self, prompt: Sequence[int], gold: Sequence[int]) -> float:
        logits = self._logits([*prompt, *gold[:-1]], len(gold))
        chosen = torch.log_softmax(logits, dim=-1).gather(1, torch.tensor(gold).unsqueeze(1))
        return float(chosen.mean())

    def _answer(self, prompt: Sequence[int]) -> list[int]:
        answer = list[int]()
        while len(answer) < GENERATED_TOKENS:
            token = int(self._logits([*prompt, *answer], 1).argmax())
            if token in self._stops:
                break
            answer.append(token)
        return answer

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
