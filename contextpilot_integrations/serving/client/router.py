"""One client for several servers of the same model: each question goes where its documents are cached."""

import time
from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import Any, TypeVar
from urllib.parse import urlsplit

from contextpilot_core import ConfigError, ReuseEngine, TokenCounter, estimate_tokens
from contextpilot_core.checks import kind_of, number, whole_number
from contextpilot_integrations import extras
from contextpilot_integrations.serving.chat import Tenants
from contextpilot_integrations.serving.client.async_client import AsyncChatCalls
from contextpilot_integrations.serving.client.calls import Chats, Limits
from contextpilot_integrations.serving.client.client import ChatCalls
from contextpilot_integrations.serving.client.replicas import (
    OpenAIClient,
    Replica,
    Replicas,
    ReplicaStatus,
    refuse_other_kind,
    scheduler_of,
)
from contextpilot_integrations.serving.tokens import TokenSource

__all__ = ["AsyncReplicaRouter", "ReplicaRouter", "ReplicaStatus"]

T = TypeVar("T")


class _Routed:
    _chats: Chats

    @property
    def engines(self) -> tuple[ReuseEngine, ...]:
        """The engine of every replica, in order."""
        return self._chats.replicas.engines

    def status(self) -> tuple[ReplicaStatus, ...]:
        """Return how every replica does, in order."""
        return self._chats.replicas.status()


class ReplicaRouter(_Routed, ChatCalls):
    """Chats with several servers as `ContextPilotClient` does with one; thread-safe.

    A question goes to the replica that has most of its documents in its prefix cache, or on the way there, unless
    that one has ``max_imbalance`` more requests under way than the least loaded; equally good ones take turns. A
    session stays at its replica.

    A replica that fails (no connection, or status 500 and above, after the client library's own retries) is left out
    for ``retry_seconds``, each time in a row twice as long, then one request finds out whether it is back. What it
    was asked goes on to another replica, unless pieces of the answer have been shown already: then the error comes
    through. A session that has to move keeps its history, byte for byte.
    """

    def __init__(
        self,
        clients: Sequence[OpenAIClient],
        *,
        model: str,
        engines: Sequence[ReuseEngine] | None = None,
        tenants: Tenants | None = None,
        tokens: TokenSource | None = None,
        max_imbalance: int = 4,
        retry_seconds: float = 1.0,
        max_context_tokens: int | None = None,
        token_counter: TokenCounter = estimate_tokens,
        max_sessions: int = 1_000,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Route between ``clients``, one ``openai.OpenAI`` per replica; other arguments as `ContextPilotClient`.

        Args:
            clients: the replicas; they stay yours to close.
            model: the name under which all of them know the model.
            engines: one per replica, in the same order, of one configuration: each knows what its replica has cached.
                None: new ones.
            tenants: needed as soon as there is a second namespace at several replicas.
            max_imbalance: requests that a replica may have under way above the least loaded one, at least 1.
            retry_seconds: how long a replica is left out after its first failure.
            tokens: exact tokens of prompts, for engines that follow KV events; None: each replica's own endpoints.
            max_context_tokens: the context window.
            token_counter: counts for it.
            max_sessions: histories that are kept per namespace.
            clock: seconds that never go back.

        Raises:
            ConfigError: a value breaks its rule, or a client is asynchronous.
        """
        for client in _listed("clients", clients, "the client of every replica"):
            refuse_other_kind(client, asynchronous=False, twin="AsyncReplicaRouter")
        replicas = _replicas(clients, engines, tokens, max_imbalance, retry_seconds, clock)
        limits = Limits(max_sessions, max_context_tokens, token_counter)
        super().__init__(Chats(replicas, model, limits, tenants, clock))

    @classmethod
    def at(
        cls, base_urls: Sequence[str], *, client_options: Mapping[str, Any] | None = None, **options: Any
    ) -> "ReplicaRouter":
        """Route between servers at ``base_urls`` (``http://.../v1``), with clients made here.

        ``client_options`` go to every ``openai.OpenAI`` (``api_key`` is "none" without), ``options`` to the router.
        Raises `MissingExtraError`, and as the constructor.
        """
        kind = extras.load("openai", extra="client").OpenAI
        return cls(_clients(kind, base_urls, client_options), **options)


class AsyncReplicaRouter(_Routed, AsyncChatCalls):
    """As `ReplicaRouter`, around ``openai.AsyncOpenAI`` clients; for the tasks of one event loop."""

    def __init__(
        self,
        clients: Sequence[OpenAIClient],
        *,
        model: str,
        engines: Sequence[ReuseEngine] | None = None,
        tenants: Tenants | None = None,
        tokens: TokenSource | None = None,
        max_imbalance: int = 4,
        retry_seconds: float = 1.0,
        max_context_tokens: int | None = None,
        token_counter: TokenCounter = estimate_tokens,
        max_sessions: int = 1_000,
        max_wait_ms: float | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Route between ``clients``; arguments as `ReplicaRouter`, ``max_wait_ms`` as `AsyncContextPilotClient`.

        With ``max_wait_ms`` a question goes where questions wait that share its documents, too.

        Raises:
            ConfigError: a value breaks its rule, or a client is not asynchronous.
        """
        for client in _listed("clients", clients, "the client of every replica"):
            refuse_other_kind(client, asynchronous=True, twin="ReplicaRouter")
        replicas = _replicas(clients, engines, tokens, max_imbalance, retry_seconds, clock, max_wait_ms)
        limits = Limits(max_sessions, max_context_tokens, token_counter)
        super().__init__(Chats(replicas, model, limits, tenants, clock))

    @classmethod
    def at(
        cls, base_urls: Sequence[str], *, client_options: Mapping[str, Any] | None = None, **options: Any
    ) -> "AsyncReplicaRouter":
        """Route between servers at ``base_urls``; as `ReplicaRouter.at`."""
        kind = extras.load("openai", extra="client").AsyncOpenAI
        return cls(_clients(kind, base_urls, client_options), **options)


def _clients(
    kind: Callable[..., OpenAIClient], base_urls: Sequence[str], options: Mapping[str, Any] | None
) -> list[OpenAIClient]:
    for url in _listed("base_urls", base_urls, "the URL of every replica"):
        kind_of("a URL in base_urls", url, str, "a str: http://HOST:PORT/v1")
    kind_of("client_options", options, (Mapping, NoneType), "a dict of arguments of openai.OpenAI, or None")
    return [kind(**{"api_key": "none", **(options or {}), "base_url": url}) for url in base_urls]


def _replicas(
    clients: Sequence[OpenAIClient],
    engines: Sequence[ReuseEngine] | None,
    tokens: TokenSource | None,
    max_imbalance: int,
    retry_seconds: float,
    clock: Callable[[], float],
    max_wait_ms: float | None = None,
) -> Replicas:
    if not clients:
        raise ConfigError("clients is empty; give the client of at least one replica")
    engines = [ReuseEngine() for _ in clients] if engines is None else _listed("engines", engines, "one per replica")
    if len(engines) != len(clients) or len(set(map(id, engines))) != len(engines):
        raise ConfigError(
            f"engines holds {len(set(map(id, engines)))} different engines for {len(clients)} clients; each replica "
            "needs one of its own: it knows what that replica has cached"
        )
    return Replicas(
        [
            Replica(client, engine, _name(client, number), scheduler_of(engine, max_wait_ms), tokens)
            for number, (client, engine) in enumerate(zip(clients, engines, strict=True))
        ],
        max_imbalance=whole_number("max_imbalance", max_imbalance, "4 is usual"),
        retry_seconds=number("retry_seconds", retry_seconds, "give seconds, 1 is usual", above=0),
        clock=clock,
    )


def _listed(name: str, values: Sequence[T], what: str) -> Sequence[T]:
    """Return what is a list or a tuple. Raises `ConfigError`."""
    kind_of(name, values, (list, tuple), f"a list with {what}")
    return values


def _name(client: OpenAIClient, number: int) -> str:
    """Return the name of a replica in logs: its place, and its host where that is known (never a user or password)."""
    url = urlsplit(str(getattr(client, "base_url", "")))
    where = url.netloc.rpartition("@")[2]
    return f"replica {number} ({where})" if where else f"replica {number}"
