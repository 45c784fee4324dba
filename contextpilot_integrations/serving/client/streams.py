"""Answers that arrive piece by piece."""

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Mapping

from contextpilot_core import RequestError, Source
from contextpilot_integrations.serving.client.turn import ChatResult, ClientTurn

Item = str | ClientTurn | ChatResult
"""A piece; before the first one, whose it is; behind the last one, the whole answer."""


class ChatStream:
    """The pieces of one answer, an iterator of str; ``result`` is there at its end.

    Nothing is sent before the first piece is asked for. The session waits for its stream: read it to the end, or
    close it (``with`` does); an answer that was not read to its end is not in the history.
    """

    def __init__(self, items: Generator[Item, None, None]) -> None:
        """Wrap ``items``."""
        self._items = items
        self._turn: ClientTurn | None = None
        self._result: ChatResult | None = None

    @property
    def result(self) -> ChatResult:
        """The whole answer. Raises `RequestError` before the end."""
        return _finished(self._result)

    @property
    def sources(self) -> Mapping[int, Source]:
        """What every ``[Doc n]`` of the prompt stands for, as in `ChatResult`; there with the first piece.

        Raises `RequestError` before.
        """
        return _sources(self._turn, self._result)

    def read(self) -> ChatResult:
        """Read it to its end, and return the whole answer."""
        for _ in self:
            pass
        return self.result

    def close(self) -> None:
        """Break the answer off, unless it has ended."""
        self._items.close()

    def __iter__(self) -> Iterator[str]:
        """Return itself."""
        return self

    def __next__(self) -> str:
        """Return the next piece; errors of the client library come through."""
        item = next(self._items)
        if isinstance(item, ClientTurn):
            self._turn, item = item, next(self._items)
        if isinstance(item, ChatResult):
            self._result = item
            self._items.close()
            raise StopIteration
        return str(item)

    def __enter__(self) -> "ChatStream":
        """Return itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close it."""
        self.close()


class AsyncChatStream:
    """As `ChatStream`, for ``async for`` and ``async with``."""

    def __init__(self, items: AsyncGenerator[Item, None]) -> None:
        """Wrap ``items``."""
        self._items = items
        self._turn: ClientTurn | None = None
        self._result: ChatResult | None = None

    @property
    def result(self) -> ChatResult:
        """The whole answer. Raises `RequestError` before the end."""
        return _finished(self._result)

    @property
    def sources(self) -> Mapping[int, Source]:
        """What every ``[Doc n]`` of the prompt stands for, as in `ChatResult`; there with the first piece.

        Raises `RequestError` before.
        """
        return _sources(self._turn, self._result)

    async def read(self) -> ChatResult:
        """Read it to its end, and return the whole answer."""
        async for _ in self:
            pass
        return self.result

    async def close(self) -> None:
        """Break the answer off, unless it has ended."""
        await self._items.aclose()

    def __aiter__(self) -> AsyncIterator[str]:
        """Return itself."""
        return self

    async def __anext__(self) -> str:
        """Return the next piece; errors of the client library come through."""
        item = await anext(self._items)
        if isinstance(item, ClientTurn):
            self._turn, item = item, await anext(self._items)
        if isinstance(item, ChatResult):
            self._result = item
            await self._items.aclose()
            raise StopAsyncIteration
        return str(item)

    async def __aenter__(self) -> "AsyncChatStream":
        """Return itself."""
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close it."""
        await self.close()


def _finished(result: ChatResult | None) -> ChatResult:
    if result is None:
        raise RequestError("the result is there when the stream has been read to its end; iterate over it first")
    return result


def _sources(turn: ClientTurn | None, result: ChatResult | None) -> Mapping[int, Source]:
    if turn is not None:
        return turn.sources
    if result is not None:
        return result.sources
    raise RequestError("the sources are there with the first piece of the stream; begin to iterate over it first")
