"""An OpenAI-compatible endpoint that somebody runs: reached, or refused in one line.

The line repeats none of the server's words but the names of its models.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

from contextpilot_core import ConfigError, ContextPilotError, Message
from contextpilot_core.checks import is_unicode
from contextpilot_integrations import extras

T = TypeVar("T")

_LONGEST_NAME, _MOST_NAMES = 80, 5

GREETING: Sequence[Message] = ({"role": "user", "content": "Say hello."},)

OTHER_SHAPE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""What reading an answer of another shape raises; deeply nested JSON and absurd numbers among it."""


def unreadable() -> tuple[type[Exception], ...]:
    """Return what asking a server and reading its answer raise, also where it breaks off; needs ``openai``."""
    openai, httpx = extras.load("openai", extra="client"), extras.load("httpx", extra="client")
    return (openai.OpenAIError, httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, *OTHER_SHAPE)


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
    with openai.OpenAI(base_url=base_url, api_key=_checked_key(api_key), **options) as client:
        try:
            made = make(client, _checked_model(model) or _first_model(client))
        except ContextPilotError:
            raise
        except unreadable() as error:
            raise no_endpoint(client, model, error) from None
        try:
            yield made
        except openai.OpenAIError as error:
            raise no_endpoint(client, model, error) from None


def _first_model(client: Any) -> str:
    name = client.models.list().data[0].id
    if not isinstance(name, str) or not name or not is_unicode(name):
        raise TypeError("the name of a model is a text")
    return name


def _checked_model(model: str | None) -> str | None:
    if model is not None and not is_unicode(model):
        raise ConfigError(f"--model {model!r} holds half a character, which no server can be sent; correct it")
    return model


def _checked_key(key: str | None) -> str:
    """Return a key as a header can carry it. The error shows nothing of it, nor does one behind it."""
    found = (key or "").strip() or "none"
    if not (found.isascii() and found.isprintable()):
        raise ConfigError("--api-key holds characters that a key cannot have; give the key alone, on one line")
    return found


def no_endpoint(client: Any, model: str | None, error: Exception) -> ConfigError:
    """Return what is wrong with a server that gave ``error``: nobody is there, the key, the model given, else."""
    where = f"--base-url {shown_url(str(client.base_url)).rstrip('/')}"
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
    try:
        served = [str(each.id) for each in client.models.list().data]
    except unreadable():
        return None
    if not served or model in served:
        return None
    names = ", ".join(repr(name[:_LONGEST_NAME]) for name in served[:_MOST_NAMES])
    more = "" if len(served) <= _MOST_NAMES else f" and {len(served) - _MOST_NAMES} more"
    where = shown_url(str(client.base_url)).rstrip("/")
    return ConfigError(
        f"--model {model!r} is not served at {where} ({kind_of(error)}); give one of those that are: {names}{more}"
    )


def _check_url(url: str) -> None:
    httpx = extras.load("httpx", extra="client")
    try:
        httpx.URL(url)
        parts = urlsplit(url)
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except (ValueError, httpx.InvalidURL):
        right = False
    if not right:
        raise ConfigError(
            f"--base-url {shown_url(url)} is no URL of a server; give it as http://HOST:PORT/v1 (IPv6: http://[HOST]:PORT/v1)"
        )


def shown_url(url: str) -> str:
    """Return a URL without what may be secret: a user's name and password, and a query."""
    return re.split(r"[?#]", re.sub(r"//.*@", "//", url, flags=re.DOTALL))[0]


def kind_of(error: Exception) -> str:
    """Name an error. The server's own words may hold the prompt, or be a page of HTML: kind and status say enough."""
    status = getattr(error, "status_code", None)
    return type(error).__name__ + ("" if status is None else f", status {status}")
