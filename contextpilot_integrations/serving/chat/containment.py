"""What may fail around an answer without taking the answer along: callbacks, and what counts tokens."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from contextpilot_core import ConfigError, ContextPilotError, TokenCounter, estimate_tokens
from contextpilot_core.checks import shown
from contextpilot_core.tokens import checked

_log = logging.getLogger(__name__)


@contextmanager
def contained(what: str) -> Iterator[None]:
    """End an error of the block in the log, with its kind: its words may hold a text.

    For what comes after an answer. The model was asked, and the caller waits for what it said.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001  # the answer is there, whatever was to be made of it besides
        _log.warning("%s failed (%s); the answer is given all the same", what, type(error).__name__)


class WindowCounter:
    """A token counter as a window needs it: it says something of every text.

    Real tokenizers fail on texts that name their special tokens (``<|endoftext|>``). Such a text is estimated: a
    conversation that holds one would else be refused for ever. The log says so once.
    """

    def __init__(self, counter: TokenCounter) -> None:
        """Wrap ``counter``. Raises `ConfigError`: it cannot be called."""
        if not callable(counter):
            raise ConfigError(f"token_counter={shown(counter)} must be callable; give a function from a text to tokens")
        self._count, self._has_failed = checked(counter), False

    def __call__(self, text: str, /) -> int:
        """Return the tokens of a text.

        Raises:
            ContextPilotError: what the counter returned is no number of tokens (`RequestTypeError`, `ConfigError`).
        """
        try:
            return self._count(text)
        except ContextPilotError:
            raise
        except Exception as error:  # noqa: BLE001  # tokenizers have errors of their own
            if not self._has_failed:
                self._has_failed = True
                _log.warning("token_counter failed on a text (%s); such texts are estimated", type(error).__name__)
            return estimate_tokens(text)
