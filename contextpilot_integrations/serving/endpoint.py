"""An OpenAI-compatible endpoint that somebody runs: reached, or refused in one line that repeats none of its words."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from contextpilot_core import ConfigError, Message
from contextpilot_integrations import extras

T = TypeVar("T")

GREETING: Sequence[Message] = ({"role": "user", "content": "Say hello."},)

OTHER_SHAPE = (LookupError, TypeError, ValueError, AttributeError)
"""What reading an answer of another shape raises."""


@contextmanager
def reached(
    base_url: str, model: str | None, api_key: str | None, make: Callable[[Any, str], T], **options: Any
) -> Iterator[T]:
    """Yield what ``make`` makes of an OpenAI client and the name of a model: ``model``, or the first that is served.

    ``options`` go to the client, which is closed at the end.

    Raises:
        MissingExtraError: ``openai`` is not installed.
        ConfigError: the server does not answer as it should, to ``make`` or inside the block.
    """
    openai = extras.load("openai", extra="client")
    with openai.OpenAI(base_url=base_url, api_key=api_key or "none", **options) as client:
        try:
            made = make(client, model or client.models.list().data[0].id)
        except (openai.OpenAIError, *OTHER_SHAPE) as error:
            raise _no_endpoint(base_url, error) from error
        try:
            yield made
        except openai.OpenAIError as error:
            raise _no_endpoint(base_url, error) from error


def _no_endpoint(base_url: str, error: Exception) -> ConfigError:
    return ConfigError(
        f"--base-url {base_url} does not answer as an OpenAI-compatible endpoint ({kind_of(error)}); start the server "
        "there, or correct --base-url, which usually ends in /v1, --model and --api-key"
    )


def kind_of(error: Exception) -> str:
    """Name an error. The server's own words may hold the prompt, or be a page of HTML: kind and status say enough."""
    status = getattr(error, "status_code", None)
    return type(error).__name__ + ("" if status is None else f", status {status}")
