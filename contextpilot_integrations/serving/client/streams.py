"""Answers that arrive piece by piece."""

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator

from contextpilot_core import RequestError
from contextpilot_integrations.serving.client.turn import ChatResult


class ChatStream:
    """The pieces of one answer, an iterator of str; ``result`` is there at its end.

    Nothing is sent before the first piece is asked for. The session waits for its stream: read it to the end, or
    close it (``with`` does); an answer that was not read to its end is not in the history.
    """

    def __init__(self, items: Generator[str | ChatResult, None, None]) -> None:
        """Wrap ``items``: the pieces, and last the result."""
        self._items = items
        self._result: ChatResult | None = None

    @property
    def result(self) -> ChatResult:
        """The whole answer. Raises `RequestError` before the end."""
        return _finished(self._result)

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
        if isinstance(item, ChatResult):
            self._result = item
            self._items.close()
            raise StopIteration
        return item

    def __enter__(self) -> "ChatStream":
        """Return itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close it."""
        self.close()


class AsyncChatStream:
    """As `ChatStream`, for ``async for`` and ``async with``."""

    def __init__(self, items: AsyncGenerator[str | ChatResult, None]) -> None:
        """Wrap ``items``: the pieces, and last the result."""
        self._items = items
        self._result: ChatResult | None = None

    @property
    def result(self) -> ChatResult:
        """The whole answer. Raises `RequestError` before the end."""
        return _finished(self._result)

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
        if isinstance(item, ChatResult):
            self._result = item
            await self._items.aclose()
            raise StopAsyncIteration
        return item

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
