"""What a run measured: one answer, one arm, the whole run, and the figures of ``report.json``."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from contextpilot_core import Message


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One request and its answer. Token counts are the server's; None is unknown, never 0.

    ``number`` is the question's place among the questions, from 0; an arm may send in another order.
    """

    number: int
    question: str
    messages: tuple[Message, ...]
    text: str
    prompt_tokens: int | None
    cached_tokens: int | None
    ttft_ms: float | None

    @property
    def prefilled_tokens(self) -> int | None:
        """Return the prompt tokens that the server had to compute."""
        if self.prompt_tokens is None or self.cached_tokens is None:
            return None
        return self.prompt_tokens - self.cached_tokens


@dataclass(frozen=True, kw_only=True)
class Arm:
    """All answers of one way of asking, in the order in which they were sent."""

    name: str
    sent: tuple[Answer, ...]
    seconds: float

    @property
    def answers(self) -> tuple[Answer, ...]:
        """Return the answers in question order."""
        return tuple(sorted(self.sent, key=lambda answer: answer.number))

    @property
    def prompt_tokens(self) -> int | None:
        """Return the sum over the arm, or None when one is unknown."""
        return _total(answer.prompt_tokens for answer in self.sent)

    @property
    def cached_tokens(self) -> int | None:
        """Return the sum over the arm, or None when one is unknown."""
        return _total(answer.cached_tokens for answer in self.sent)

    @property
    def prefilled_tokens(self) -> int | None:
        """Return the sum over the arm, or None when one is unknown."""
        return _total(answer.prefilled_tokens for answer in self.sent)

    @property
    def ttft_ms_median(self) -> float | None:
        """Return the median time to first token in milliseconds, or None when one is unknown."""
        times = [answer.ttft_ms for answer in self.sent]
        known = [time for time in times if time is not None]
        return median(known) if known and len(known) == len(times) else None

    def figures(self) -> dict[str, Any]:
        """Return what ``report.json`` says about the arm."""
        time = self.ttft_ms_median
        return {
            "requests": len(self.sent),
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "prefilled_tokens": self.prefilled_tokens,
            "ttft_ms_median": None if time is None else round(time, 1),
            "answers": [answer.text for answer in self.answers],
        }


@dataclass(frozen=True, kw_only=True)
class Run:
    """Both jobs, arm by arm ("plain" first, "contextpilot" last), and the settings they shared."""

    batch: tuple[Arm, ...]
    chat: tuple[Arm, ...]
    model: str
    documents: str
    settings: Sequence[tuple[str, str]]

    def figures(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Return the content of ``report.json``."""
        return {
            "batch": {arm.name: arm.figures() for arm in self.batch},
            "chat": {arm.name: arm.figures() for arm in self.chat},
        }


def share(part: int | None, whole: int | None) -> float | None:
    """Return ``part / whole``, or None when either is unknown or the whole is 0."""
    return None if part is None or not whole else part / whole


def _total(values: Iterable[int | None]) -> int | None:
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


ARM_NAMES = {
    "plain": "plain",
    "plain_append_only": "append-only",
    "contextpilot": "ContextPilot",
}
UNKNOWN = "unknown"


def tokens(count: float | None) -> str:
    """Return ``1,234``."""
    return UNKNOWN if count is None else f"{count:,.0f}"


def percent(fraction: float | None) -> str:
    """Return ``12.3 %``."""
    return UNKNOWN if fraction is None else f"{100 * fraction:.1f} %"


def milliseconds(time: float | None) -> str:
    """Return ``85 ms``, or ``2.41 s`` from a second on."""
    if time is None:
        return UNKNOWN
    return f"{time:.0f} ms" if time < 1000 else f"{time / 1000:.2f} s"


def change(before: float | None, after: float | None) -> str:
    """Return the change from ``before`` to ``after`` as ``−12 %``."""
    if before is None or after is None or not before:
        return UNKNOWN
    return f"{100 * (after - before) / before:+.0f} %".replace("-", "−")
