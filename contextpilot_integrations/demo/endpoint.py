"""Where the demo sends its prompts: an embedded llama.cpp, or any OpenAI-compatible endpoint."""

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from contextpilot_core import ContextPilotError, Message
from contextpilot_integrations.serving.chat import Usage, read_usage
from contextpilot_integrations.serving.client import may_refuse
from contextpilot_integrations.serving.endpoint import GREETING, no_endpoint, reached, shown_url, unreadable
from contextpilot_integrations.serving.local import LocalEngine


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What came back for one prompt; ``ttft_ms`` is None when nothing was generated."""

    text: str
    usage: Usage
    ttft_ms: float | None


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A model behind an OpenAI client; ``options`` go with every request.

    ``clear`` empties its cache; it is None where only the owner of the server can.
    """

    client: Any = field(repr=False)
    model: str
    where: str
    clear: Callable[[], None] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    ask_usage: bool = True

    def ask(self, messages: Sequence[Message]) -> Reply:
        """Send one prompt and read the answer from its stream. Raises `ConfigError` when none comes."""
        with self.answering():
            return self._ask(messages)

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Say in one line what is wrong when the server refuses, breaks off or answers in another shape."""
        try:
            yield
        except ContextPilotError:
            raise
        except unreadable() as error:
            raise no_endpoint(self.client, self.model, error) from None

    def _ask(self, messages: Sequence[Message]) -> Reply:
        arguments = {"model": self.model, "messages": list(messages), "stream": True, **self.options}
        if self.ask_usage:
            arguments["stream_options"] = {"include_usage": True}
        pieces, usage, first = list[str](), Usage(), None
        started = time.perf_counter()
        for chunk in self.client.chat.completions.create(**arguments):
            text = "".join(choice.delta.content or "" for choice in chunk.choices)
            if text and first is None:
                first = time.perf_counter()
            pieces.append(text)
            usage = read_usage(chunk) if getattr(chunk, "usage", None) is not None else usage
        return Reply(text="".join(pieces), usage=usage, ttft_ms=None if first is None else 1000 * (first - started))

    def instructions(self, base: str, arm: str) -> str:
        """Return what an arm's prompts start with: ``base``, after a line of its own where nothing can be emptied.

        So no arm can profit from the prompts of another one, or of an earlier run.
        """
        return base if self.clear is not None else f"Run {secrets.token_hex(4)} ({arm}).\n{base}"


@contextmanager
def embedded(answer_tokens: int) -> Iterator[Endpoint]:
    """Run llama.cpp with the packaged model in this process: one slot, so that requests follow one another."""
    with LocalEngine(slots=1) as engine:
        yield Endpoint(
            client=engine.client(),
            model=engine.model,
            where="llama.cpp, embedded",
            clear=engine.clear,
            options=_options(answer_tokens),
        )


def remote(
    base_url: str, model: str | None, api_key: str | None, answer_tokens: int
) -> AbstractContextManager[Endpoint]:
    """Use a server that runs already; without ``model`` the first that it serves. Raises `ConfigError`."""

    def greeted(client: Any, name: str) -> Endpoint:
        return _greeted(Endpoint(client=client, model=name, where=shown_url(base_url), options=_options(answer_tokens)))

    return reached(base_url, model, api_key, greeted, max_retries=0)


def _greeted(endpoint: Endpoint) -> Endpoint:
    """Ask something small, so that the first measured request meets a warm server; learn whether usage is refused."""
    try:
        reply = endpoint._ask(GREETING)
    except Exception as error:
        if not may_refuse(error):
            raise
        endpoint = replace(endpoint, ask_usage=False)
        reply = endpoint._ask(GREETING)
    if not reply.text and reply.usage == Usage():
        raise LookupError("neither a text nor a usage came")
    return endpoint


def _options(answer_tokens: int) -> dict[str, Any]:
    return {"max_tokens": answer_tokens, "temperature": 0}
