"""The engine's configuration: one frozen object, checked when it is made."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from contextpilot_core.checks import number, one_of, shown, whole_number
from contextpilot_core.errors import ConfigError
from contextpilot_core.types import ContextBlock

Strategy = Literal["greedy", "paper", "none"]
Schedule = Literal["depth-first", "paper", "arrival"]
NoteStyle = Literal["compact", "full", "none"]
Linkage = Literal["average", "complete", "single"]

DEFAULT_HINT = "See [Doc {label}] above."
DEFAULT_UNLABELLED_HINT = "Same text as in an earlier message."
DEFAULT_SPAN_HINT = "(see [Doc {label}])"


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """How a `ReuseEngine` behaves. Raises `ConfigError` for a value outside its rule.

    Attributes:
        strategy: "greedy" (ours), "paper" (clustering, algorithms 1-5) or "none" (retrieval order).
        schedule: execution order of a batch.
        cache_tokens: block tokens that a namespace's cache is believed to hold; None is unbounded.
        quotas: cache tokens by namespace, in place of ``cache_tokens``: what a tenant's requests may count as cached.
        kv_block: tokens per KV block of the engine behind; reuse is counted in whole KV blocks.
        in_flight_seconds: how long a plan made with ``commit=False`` waits for ``commit`` before it is taken back.
        note: the order note, written only when blocks were moved.
        dedup: send a body once per request and hint at what the messages already show.
        span_dedup: inside blocks too.
        budget: selection (off unless ``pinned`` is given too): send so many blocks.
        pinned: of these, the first by rank that are always sent.
        alpha: weight of the position gaps in eq. 1 (0.001 to 0.01).
        linkage: how "paper" joins clusters.
        renderer: turns a block into the body that is sent; identity follows the body. Default: the text alone.
        hint: wording of a hint; ``{label}`` stands for the number, every other character is literal.
        unlabelled_hint: the same for text in a message that was not rendered here.
        span_hint: the same for a run inside a block.
        max_visits: nodes that one search of the prefix tree may visit.
        max_requests: requests that are remembered per namespace.
        max_messages: messages that are remembered per namespace.
        message_seconds: how long a message is remembered after it was seen last.
        max_bytes: memory for messages and plans in flight, shared out equally; the default fits a container of 2 GB.
        max_namespaces: namespaces that are remembered; of more, the one that was used longest ago is forgotten.
    """

    strategy: Strategy = "greedy"
    schedule: Schedule = "depth-first"
    cache_tokens: int | None = 40_000
    quotas: Mapping[str, int] | None = field(default=None, hash=False)
    kv_block: int = 16
    in_flight_seconds: float = 60.0
    note: NoteStyle = "none"
    dedup: bool = True
    span_dedup: bool = True
    budget: int | None = None
    pinned: int | None = None
    alpha: float = 0.001
    linkage: Linkage = "average"
    renderer: Callable[[ContextBlock], str] | None = None
    hint: str = DEFAULT_HINT
    unlabelled_hint: str = DEFAULT_UNLABELLED_HINT
    span_hint: str = DEFAULT_SPAN_HINT
    max_visits: int = 64
    max_requests: int = 20_000
    max_messages: int = 20_000
    message_seconds: float = 3_600.0
    max_bytes: int = 768 << 20
    max_namespaces: int = 1_000

    def __post_init__(self) -> None:
        """Check every field."""
        one_of("strategy", self.strategy, get_args(Strategy))
        one_of("schedule", self.schedule, get_args(Schedule))
        one_of("note", self.note, get_args(NoteStyle))
        one_of("linkage", self.linkage, get_args(Linkage))
        for name in ("kv_block", "max_visits", "max_requests", "max_messages", "max_bytes", "max_namespaces"):
            whole_number(name, getattr(self, name), f"{getattr(EngineConfig, name)} is usual")
        if self.cache_tokens is not None:
            whole_number("cache_tokens", self.cache_tokens, "give the server's cache size, or None for unbounded")
        self._check_quotas()
        for name in ("in_flight_seconds", "message_seconds"):
            number(name, getattr(self, name), f"give seconds, {getattr(EngineConfig, name):g} is usual", above=0)
        number("alpha", self.alpha, "0.001 is usual (eq. 1)", least=0.001, most=0.01)
        for name in ("dedup", "span_dedup"):
            if not isinstance(getattr(self, name), bool):
                value = shown(getattr(self, name))
                raise ConfigError(f"{name}={value} must be True or False; False sends repeats again")
        if self.renderer is not None and not callable(self.renderer):
            raise ConfigError(f"renderer={shown(self.renderer)} must be a function of a block, or None for its text")
        for name in ("hint", "span_hint", "unlabelled_hint"):
            _hint_wording(name, getattr(self, name))
        self._check_selection()

    def of(self, namespace: str) -> "EngineConfig":
        """Return the configuration of one namespace: this one, with the namespace's quota as its ``cache_tokens``."""
        quota = (self.quotas or {}).get(namespace)
        return self if quota is None else replace(self, cache_tokens=quota)

    def share(self, namespaces: int) -> int:
        """Return the bytes that each of so many namespaces may take of ``max_bytes``.

        It halves when their number doubles: it depends on how many there are, never on what they do.
        """
        return self.max_bytes >> max(0, namespaces - 1).bit_length()

    def _check_quotas(self) -> None:
        if self.quotas is None:
            return
        if not isinstance(self.quotas, Mapping) or not all(isinstance(name, str) for name in self.quotas):
            raise ConfigError(
                f"quotas is a {type(self.quotas).__name__}; it must map namespaces (str) to cache tokens, or be None"
            )
        for name, tokens in self.quotas.items():
            whole_number(f"quotas[{shown(name)}]", tokens, "give a tenant's cache tokens, or leave its namespace out")
        object.__setattr__(self, "quotas", dict(self.quotas))  # the caller may go on changing theirs

    def _check_selection(self) -> None:
        if (self.budget is None) != (self.pinned is None):
            raise ConfigError(
                f"budget={shown(self.budget)} and pinned={shown(self.pinned)} belong together; give both or neither"
            )
        if self.budget is None or self.pinned is None:
            return
        whole_number("budget", self.budget, "give how many blocks are sent")
        whole_number("pinned", self.pinned, "give how many of the budget are pinned", least=0, most=self.budget)


def _hint_wording(name: str, value: object) -> None:
    if not isinstance(value, str) or not value.strip() or len(value.splitlines()) > 1:
        raise ConfigError(f"{name}={shown(value)} must be one line of text; '{{label}}' stands for the number")
    if name != "unlabelled_hint" and "{label}" not in value:
        raise ConfigError(f"{name}={shown(value)} must hold '{{label}}', or the hint names nothing; add it")
