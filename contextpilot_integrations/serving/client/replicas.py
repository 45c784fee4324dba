"""The servers behind a client: which one gets a question, and how each of them does. No input, no output.

A question goes where most of its documents are cached, unless that server has too many more requests than the least
loaded one; a conversation stays where its history is. A server that fails is left out for a while, then a single
request finds out whether it is back.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

from contextpilot_core import ConfigError, ContextRequest, Plan, ReuseEngine, WindowScheduler
from contextpilot_core.checks import kind_of
from contextpilot_core.mirror import ProcessLock
from contextpilot_integrations.serving.chat import check_parts
from contextpilot_integrations.serving.client.conversation import Conversation
from contextpilot_integrations.serving.client.turn import ClientTurn, Wishes
from contextpilot_integrations.serving.tokens import PromptTokenizer, ServerTokens, TokenSource

_log = logging.getLogger(__name__)
_BROKEN = frozenset({"APIConnectionError", "TransportError"})
_LONGEST_WAIT = 32


class OpenAIClient(Protocol):
    """What is used of an ``openai.OpenAI`` or ``openai.AsyncOpenAI``."""

    @property
    def chat(self) -> Any:
        """The chat endpoints: ``chat.completions.create(...)``."""

    @property
    def completions(self) -> Any:
        """The endpoint of text prompts: ``completions.create(...)``."""


@dataclass(frozen=True, kw_only=True)
class ReplicaStatus:
    """How a replica does. ``sent``: requests that it was given so far; ``failures``: in a row, 0 when it is up."""

    name: str
    up: bool
    outstanding: int
    sent: int
    failures: int


class Replica:
    """One server: how to ask it, the engine that knows its cache, and how it does. `Replicas` changes it."""

    def __init__(
        self,
        client: OpenAIClient,
        engine: ReuseEngine,
        name: str,
        scheduler: WindowScheduler | None = None,
        tokens: TokenSource | None = None,
    ) -> None:
        """Start as up and idle; with a ``scheduler`` of the engine, questions wait for their turn in a window.

        ``tokens`` tells those of prompts to an engine that follows events; None: the server's own endpoints.

        Raises:
            ConfigError: ``client`` has no chat endpoint, ``engine`` or ``tokens`` are of another type.
        """
        try:
            client.chat.completions.create  # noqa: B018 - only whether it is there
        except AttributeError as error:
            name = type(client).__name__
            raise ConfigError(f"client is a {name}; it must be an openai.OpenAI or AsyncOpenAI") from error
        kind_of("engine", engine, ReuseEngine, "a ReuseEngine")
        check_parts(tokens=tokens)
        self.client, self.engine, self.name, self.scheduler = client, engine, name, scheduler
        self.wishes = Wishes(name, "usage")
        self.tokenizer: PromptTokenizer | None = None
        if engine.follows_events and (tokens := tokens or _own_tokens(client)) is not None:
            self.wishes = Wishes(name, "usage", "token_ids")
            self.tokenizer = PromptTokenizer(tokens)
        self.outstanding = self.sent = self.failures = 0
        self.retry_at: float | None = None
        self.probing = False

    def create(self, **arguments: Any) -> Any:
        """Send a request: a text prompt, or a chat."""
        endpoint = self.client.completions if "prompt" in arguments else self.client.chat.completions
        return endpoint.create(**arguments)

    def expected_reuse(self, request: ContextRequest) -> int:
        """Return the tokens of a request that are cached here, or will be when those that wait are sent."""
        cached = self.engine.expected_reuse(request)
        return cached if self.scheduler is None else max(cached, self.scheduler.overlap(request))

    def is_due(self, now: float) -> bool:
        """Whether it may be given a request: it is up, or it is time to see whether it is back."""
        return self.retry_at is None or (now >= self.retry_at and not self.probing)


class Attempt:
    """One question at one replica, until the end of the ``with`` block that sends it; without a turn until `plan`.

    A failure of the replica ends there when another one is left to try, and the caller has seen nothing of the answer.
    """

    turn: ClientTurn

    def __init__(
        self,
        replicas: "Replicas",
        replica: Replica,
        request: ContextRequest,
        make: Callable[[ReuseEngine, Plan | None], ClientTurn],
        *,
        is_last: bool,
    ) -> None:
        self.replica, self.request, self._make = replica, request, make
        self.is_planned = False
        self.seen = False
        self.is_probe = replica.retry_at is not None
        self._replicas, self._is_last = replicas, is_last
        self._accepted = False

    def plan(self, plan: Plan | None = None) -> None:
        """Make the turn; with a plan that was made for it, or else with a new one. Raises `RequestError`."""
        self.turn = self._make(self.replica.engine, plan)
        self.is_planned = True

    def accepted(self) -> None:
        """Note that the server took the prompt: it is up, and the prompt is in its cache."""
        self._accepted = True
        self.turn.sent()
        self._replicas.answered(self.replica)

    def __enter__(self) -> "Attempt":
        """Return itself; it has begun already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Say how it went; True, which ends the error, when the question is to go on to another replica."""
        if self.is_planned and not self._accepted:
            self.turn.failed()
        self._replicas.ended(self, error)
        return is_failure(error) and not self.seen and not self._is_last


class Replicas:
    """Chooses between servers; thread-safe. One server alone is chosen always, whatever it did before."""

    def __init__(
        self, replicas: Sequence[Replica], *, max_imbalance: int, retry_seconds: float, clock: Callable[[], float]
    ) -> None:
        self._replicas, self._max_imbalance = tuple(replicas), max_imbalance
        self._retry_seconds, self._clock = retry_seconds, clock
        self._choosing = ProcessLock()  # one question at a time finds its replica; what callers gave is asked meanwhile
        self._lock = ProcessLock(self._forked)  # of the figures; nothing else is called while it is held

    @property
    def engines(self) -> tuple[ReuseEngine, ...]:
        """The engine of every replica, in order."""
        return tuple(replica.engine for replica in self._replicas)

    def __len__(self) -> int:
        return len(self._replicas)

    def status(self) -> tuple[ReplicaStatus, ...]:
        """Return how every replica does, in order."""
        with self._lock:
            return tuple(
                ReplicaStatus(
                    name=replica.name,
                    up=replica.retry_at is None,
                    outstanding=replica.outstanding,
                    sent=replica.sent,
                    failures=replica.failures,
                )
                for replica in self._replicas
            )

    def attempts(
        self,
        request: ContextRequest,
        conversation: Conversation,
        make: Callable[[ReuseEngine, Plan | None], ClientTurn],
    ) -> Iterator[Attempt]:
        """Yield attempts at different replicas, best first; the one after a failure is made when it is asked for.

        They are planned, unless they have to wait for their turn in a window. Raises `RequestError`.
        """
        left = list(self._replicas)
        while left:
            with self._choosing:
                replica = self._choice(left, request, conversation)
                left.remove(replica)
                attempt = Attempt(self, replica, request, make, is_last=not left)
                if replica.scheduler is None or conversation.engine not in (None, replica.engine):
                    attempt.plan()  # before anybody else chooses: the next choice counts its plan as cached
                with self._lock:
                    replica.outstanding += 1
                    replica.sent += 1
                    replica.probing = attempt.is_probe
            yield attempt

    def answered(self, replica: Replica) -> None:
        """Note that a replica answers: it is up."""
        with self._lock:
            replica.failures, replica.retry_at, replica.probing = 0, None, False

    def ended(self, attempt: Attempt, error: BaseException | None) -> None:
        """Note that an attempt is over; a replica that failed is left out, each time in a row twice as long."""
        replica = attempt.replica
        if getattr(error, "status_code", None) is not None and not is_failure(error):
            self.answered(replica)  # it refused this request, which is an answer
        now = self._clock()
        with self._lock:
            replica.outstanding = max(0, replica.outstanding - 1)  # a fork in between has set it to 0
            if attempt.is_probe:
                replica.probing = False
            if not is_failure(error) or (replica.retry_at is not None and not attempt.is_probe):
                return  # requests that fail together are one failure
            wait = self._retry_seconds * min(2**replica.failures, _LONGEST_WAIT)
            replica.failures += 1
            replica.retry_at = now + wait
        if len(self._replicas) > 1:
            _log.warning("%s failed (%s): left out for %g s", replica.name, type(error).__name__, wait)

    def _choice(self, left: Sequence[Replica], request: ContextRequest, conversation: Conversation) -> Replica:
        now = self._clock()
        with self._lock:
            due = [replica for replica in left if replica.is_due(now)]
            if not due:  # they may fail again, but what is not tried is not answered
                return min(left, key=lambda replica: replica.retry_at or now)
            homes = [replica for replica in due if replica.engine is conversation.engine]
            if homes or len(due) == 1:
                return (homes or due)[0]
            least = min(replica.outstanding for replica in due)
            free = [each for each in due if each.outstanding - least < self._max_imbalance]
            rest = [(-each.outstanding, -each.sent) for each in free]
        found = [each.expected_reuse(request) for each in free]
        return free[max(range(len(free)), key=lambda place: (found[place], rest[place]))]

    def _forked(self, torn: bool) -> None:
        """In a forked child: the requests that are under way are the parent's."""
        for replica in self._replicas:
            replica.outstanding, replica.probing = 0, False


def only(
    client: OpenAIClient,
    engine: ReuseEngine,
    tokens: TokenSource | None = None,
    scheduler: WindowScheduler | None = None,
) -> Replicas:
    """Return the replicas of a client that has one server. Raises as `Replica`."""
    replica = Replica(client, engine, "server", scheduler, tokens)
    return Replicas([replica], max_imbalance=1, retry_seconds=1.0, clock=time.monotonic)


def _own_tokens(client: OpenAIClient) -> TokenSource | None:
    """Return the tokens of the server behind a client of the ``openai`` package; None for another."""
    base_url, api_key = getattr(client, "base_url", None), getattr(client, "api_key", None)
    if base_url is None:
        return None
    return ServerTokens(str(base_url), api_key=api_key if isinstance(api_key, str) else None)


def scheduler_of(engine: ReuseEngine, max_wait_ms: float | None) -> WindowScheduler | None:
    """Return what lets questions wait for each other, None for nothing. Raises as `WindowScheduler`."""
    return None if max_wait_ms is None else WindowScheduler(engine, max_wait_ms=max_wait_ms)


def refuse_other_kind(client: OpenAIClient, *, asynchronous: bool, twin: str) -> None:
    """Raise `ConfigError` for a client that can only be awaited where nothing is, or the reverse."""
    wanted, other = ("__aenter__", "__enter__") if asynchronous else ("__enter__", "__aenter__")
    if hasattr(client, other) and not hasattr(client, wanted):
        kind = "not asynchronous" if asynchronous else "asynchronous"
        raise ConfigError(f"client is a {type(client).__name__}, which is {kind}; use {twin}")


def is_failure(error: BaseException | None) -> bool:
    """Whether a replica failed: no connection, a connection that broke, or a status of 500 and above.

    Connection errors are known by name: those of the client library, and those of its transport (httpx, httpx2).
    """
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        return status >= 500
    return isinstance(error, OSError) or any(kind.__name__ in _BROKEN for kind in type(error).__mro__)
