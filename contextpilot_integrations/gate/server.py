"""Scores from an OpenAI-compatible server.

The likelihood of a gold answer needs the server's own chat template and tokenizer, which OpenAI's interface does not
have. Two servers offer them beside it: vLLM (``/tokenize`` takes messages, ``prompt_logprobs`` scores a prompt) and
llama.cpp (``/apply-template``, ``/tokenize``; it reports the probability of what it generates, so the answer is forced
token by token). Of every other server the answer that it generates is scored.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from contextpilot_core import ConfigError
from contextpilot_integrations import extras
from contextpilot_integrations.gate.arms import Messages
from contextpilot_integrations.gate.records import Scores, finite
from contextpilot_integrations.gate.scoring import exact_match, token_f1
from contextpilot_integrations.serving.endpoint import (
    GREETING,
    OTHER_SHAPE,
    kind_of,
    no_endpoint,
    reached,
    unknown_model,
    unreadable,
)

Metric = Literal["likelihood", "answers"]
LIKELIHOOD, F1, EXACT = "log_likelihood", "f1", "exact"

_FORCE = 1e9  # added to a logit: no other token can win; the probability reported is the one before


@dataclass(frozen=True)
class Server:
    """A model behind an OpenAI client."""

    client: Any = field(repr=False)
    model: str

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Post to a path that OpenAI's interface does not have, beside ``/v1``; return the JSON."""
        root = str(self.client.base_url).rstrip("/").removesuffix("/v1")
        return self.client.post(f"{root}{path}", body=dict(body), cast_to=object)


_ArmScorer: TypeAlias = Callable[[Messages, Sequence[str]], Scores]


@dataclass(frozen=True)
class ServerScorer:
    """A `Scorer` that asks a server arm by arm.

    ``metrics``: those it gives, the one that verdicts rest on first; ``settings``: what its scores depend on.
    """

    metrics: tuple[str, ...]
    settings: Mapping[str, object]
    _server: Server
    _ask: _ArmScorer

    def score(self, prompts: Mapping[str, Messages], answers: Sequence[str]) -> dict[str, Scores]:
        """Return the scores of every arm. Raises `ConfigError` when the server refuses or does not answer."""
        openai = extras.load("openai", extra="client")
        try:
            return {arm: self._ask(messages, answers) for arm, messages in prompts.items()}
        except unreadable() as error:
            if getattr(error, "status_code", None) in (401, 403) or isinstance(error, openai.APIConnectionError):
                raise no_endpoint(self._server.client, self._server.model, error) from None
            raise unknown_model(self._server.client, self._server.model, error) or ConfigError(
                f"the server did not answer as it should ({kind_of(error)}); when a prompt is too long for its "
                "context, leave that question out; then start again: what was scored is kept"
            ) from None


def connect(base_url: str, model: str | None, api_key: str | None) -> AbstractContextManager[Server]:
    """Use a server that runs; without ``model`` the first that it serves. Raises `ConfigError`, `MissingExtraError`."""
    return reached(base_url, model, api_key, Server)


def choose_scorer(server: Server, metric: Metric | None, *, answer_tokens: int) -> ServerScorer:
    """Return what scores best: likelihoods where the server can, else the answers; ``metric`` decides instead.

    Raises `ConfigError` when likelihoods are wanted of a server that has none, or of a model that it does not serve.
    """
    if metric != "answers":
        refused: Exception | None = None
        for ask in (_PromptLikelihood(server), _ForcedLikelihood(server)):
            refused = _refusal(ask)
            if refused is None:
                return ServerScorer((LIKELIHOOD,), {"model": server.model, "metric": LIKELIHOOD}, server, ask)
    if metric == "likelihood":
        raise unknown_model(server.client, server.model, refused or LookupError()) or ConfigError(
            "this server offers neither vLLM's /tokenize and prompt_logprobs nor llama.cpp's /apply-template and "
            "/completion; leave --metric out, or use --metric answers"
        )
    settings = {"model": server.model, "metric": F1, "answer_tokens": answer_tokens}
    return ServerScorer((F1, EXACT), settings, server, _GeneratedAnswer(server, answer_tokens))


def _refusal(ask: _ArmScorer) -> Exception | None:
    """Return how a server refuses a way to ask: another kind has not the path, or answers in another shape."""
    openai = extras.load("openai", extra="client")
    try:
        ask(GREETING, ("Hello.",))
    except (openai.APIStatusError, openai.APIResponseValidationError, *OTHER_SHAPE) as error:
        return error
    return None


@dataclass(frozen=True)
class _PromptLikelihood:
    """vLLM: one request per arm, with the answer as the end of the prompt."""

    server: Server

    def __call__(self, messages: Messages, answers: Sequence[str]) -> Scores:
        model = self.server.model
        prompt = self.server.post(
            "/tokenize", {"model": model, "messages": list(messages), "add_generation_prompt": True}
        )
        gold = self.server.post("/tokenize", {"model": model, "prompt": answers[0], "add_special_tokens": False})
        tokens = _tokens(gold)
        reply = self.server.client.completions.create(
            model=model, prompt=_tokens(prompt) + tokens, max_tokens=1, temperature=0, extra_body={"prompt_logprobs": 0}
        )
        scored = (reply.choices[0].model_extra or {})["prompt_logprobs"][-len(tokens) :]
        return _mean([entry[str(token)]["logprob"] for token, entry in zip(tokens, scored, strict=True)])


@dataclass(frozen=True)
class _ForcedLikelihood:
    """llama.cpp: one request per token of the answer; its cache holds the prompt meanwhile."""

    server: Server

    def __call__(self, messages: Messages, answers: Sequence[str]) -> Scores:
        text = self.server.post("/apply-template", {"messages": list(messages)})["prompt"]
        prompt = self._tokens(text, special=True)
        found = list[float]()
        for token in self._tokens(answers[0], special=False):
            found.append(self._logprob(prompt, token))
            prompt = [*prompt, token]
        return _mean(found)

    def _tokens(self, text: str, *, special: bool) -> list[int]:
        body = {"content": text, "add_special": special, "parse_special": special}
        return _tokens(self.server.post("/tokenize", body))

    def _logprob(self, prompt: Sequence[int], token: int) -> float:
        body = {"prompt": list(prompt), "n_predict": 1, "n_probs": 1, "temperature": 0, "logit_bias": [[token, _FORCE]]}
        (generated,) = self.server.post("/completion", body)["completion_probabilities"]
        if generated["id"] != token:
            raise ValueError(f"token {generated['id']} was generated instead of {token}")
        return finite(generated["logprob"])


@dataclass(frozen=True)
class _GeneratedAnswer:
    """Any server: the answer that it gives, at temperature 0."""

    server: Server
    answer_tokens: int

    def __call__(self, messages: Messages, answers: Sequence[str]) -> Scores:
        reply = self.server.client.chat.completions.create(
            model=self.server.model, messages=list(messages), max_tokens=self.answer_tokens, temperature=0, seed=0
        )
        answer = reply.choices[0].message.content or ""
        return {F1: token_f1(answer, answers), EXACT: exact_match(answer, answers)}


def _tokens(answer: Any) -> list[int]:
    """Return the tokens that a server made of a text. Raises one of `OTHER_SHAPE`."""
    tokens = answer["tokens"]
    if not isinstance(tokens, list) or not tokens or not all(type(token) is int for token in tokens):
        raise TypeError("tokens are a list of whole numbers, one at least")
    return tokens


def _mean(logprobs: Sequence[object]) -> Scores:
    return {LIKELIHOOD: sum(map(finite, logprobs)) / len(logprobs)}
