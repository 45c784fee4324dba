"""An OpenAI-compatible endpoint that somebody runs: reached, or refused in one line.

The line repeats none of the server's words but the names of its models.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

from contextpilot_core import ConfigError, Message
from contextpilot_integrations import extras

T = TypeVar("T")

_LONGEST_NAME, _MOST_NAMES = 80, 5

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
        ConfigError: ``base_url`` is no URL, or the server does not answer as it should, to ``make`` or inside the
            block; a model that it does not serve is named.
    """
    openai = extras.load("openai", extra="client")
    _check_url(base_url)
    with openai.OpenAI(base_url=base_url, api_key=api_key or "none", **options) as client:
        try:
            made = make(client, model or client.models.list().data[0].id)
        except (openai.OpenAIError, *OTHER_SHAPE) as error:
            raise no_endpoint(client, model, error) from error
        try:
            yield made
        except openai.OpenAIError as error:
            raise no_endpoint(client, model, error) from error


def no_endpoint(client: Any, model: str | None, error: Exception) -> ConfigError:
    """Return what is wrong with a server that gave ``error``: nobody is there, the key, the model given, else."""
    where = f"--base-url {_shown(str(client.base_url).rstrip('/'))}"
    status = getattr(error, "status_code", None)
    if status in (401, 403):
        advice = "give its --api-key, or correct --base-url"
    elif status is None:
        advice = "start the server there, or correct --base-url, which usually ends in /v1"
    else:
        unknown = None if model is None else unknown_model(client, model, error)
        if unknown is not None:
            return unknown
        advice = f"correct --base-url, which usually ends in /v1{'' if model is None else ', or --model'}"
    return ConfigError(f"{where} does not answer as an OpenAI-compatible endpoint ({kind_of(error)}); {advice}")


def unknown_model(client: Any, model: str, error: Exception) -> ConfigError | None:
    """Return that a server has no such model; None where it serves it, does not say, or refused for another reason."""
    if not 400 <= getattr(error, "status_code", 0) < 500:
        return None
    openai = extras.load("openai", extra="client")
    try:
        served = [str(each.id) for each in client.models.list().data]
    except (openai.OpenAIError, *OTHER_SHAPE):
        return None
    if not served or model in served:
        return None
    names = ", ".join(repr(name[:_LONGEST_NAME]) for name in served[:_MOST_NAMES])
    more = "" if len(served) <= _MOST_NAMES else f" and {len(served) - _MOST_NAMES} more"
    return ConfigError(
        f"--model {model!r} is not served at {_shown(str(client.base_url).rstrip('/'))} ({kind_of(error)}); give one "
        f"of those that are: {names}{more}"
    )


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        right = False
    if not right:
        raise ConfigError(
            f"--base-url {_shown(url)} is no URL of a server; give it as http://HOST:PORT/v1 (IPv6: http://[HOST]:PORT/v1)"
        )


def _shown(url: str) -> str:
    """Return a URL without a user's name and password."""
    return re.sub(r"//[^/@]*@", "//", url)


def kind_of(error: Exception) -> str:
    """Name an error. The server's own words may hold the prompt, or be a page of HTML: kind and status say enough."""
    status = getattr(error, "status_code", None)
    return type(error).__name__ + ("" if status is None else f", status {status}")
