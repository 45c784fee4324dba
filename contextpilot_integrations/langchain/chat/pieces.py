"""The pieces of a streamed answer, and the message that they add up to."""

from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, message_chunk_to_message

from contextpilot_integrations.langchain.chat.history import made_whole


class Pieces:
    """The pieces of one answer so far.

    LangChain adds up the usage of pieces. That is right for a model that tells its prompt once and then what is new
    with each piece. A server that tells with every piece how far it is by then would be counted many times: as soon as
    the prompt is told again, the last report counts.
    """

    def __init__(self) -> None:
        """Start without any."""
        self._whole: Any = None
        self._usage: dict[str, Any] = {}
        self._told = 0

    def add(self, piece: BaseMessage) -> None:
        """Take the next piece."""
        self._whole = piece if self._whole is None else self._whole + piece
        usage = getattr(piece, "usage_metadata", None)
        if usage is not None:
            told = bool(usage["input_tokens"])
            self._told += told
            self._usage |= {name: value for name, value in usage.items() if told or name not in self._usage}

    @property
    def is_empty(self) -> bool:
        """Whether none has come so far."""
        return self._whole is None

    @property
    def message(self) -> Any:
        """What the pieces add up to, a message if they are messages; None without any."""
        whole = self._whole if self._whole is None else message_chunk_to_message(self._whole)
        if self._told > 1 and isinstance(whole, AIMessage):
            return made_whole(whole.model_copy(update={"usage_metadata": self._usage}))
        return whole if whole is None else made_whole(whole)
