"""The way to the Redis server: what its URL, or a client of the caller's own, may say, and what it may not."""

from typing import Any
from urllib.parse import parse_qsl, urlencode

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from contextpilot_core import ConfigError
from contextpilot_core.checks import number

_SECONDS = 5.0
_LONGEST = 3_600.0

_READ = frozenset(
    "db username password client_name health_check_interval max_connections socket_keepalive socket_timeout "
    "socket_connect_timeout".split()
)
"""Options of a URL that count, and those that begin with ``ssl_``."""

_OURS: dict[str, Any] = {"decode_responses": False, "encoding": "utf-8", "encoding_errors": "strict", "protocol": 2}
"""Settings that follow from how we talk to the server; what a URL says of them is meant for other clients."""

_OTHERS = frozenset({*_OURS, "retry", "retry_on_timeout", "retry_on_error", "legacy_responses", "socket_read_size"})


def connected(server: object) -> Any:
    """Return the client for a URL, or the caller's own after a look at its settings; nothing is sent.

    Raises:
        ConfigError: the URL cannot be read, has an option that is unknown here, or a setting that cannot work.
    """
    if isinstance(server, str):
        return _checked(_of_url(server))
    if not isinstance(server, redis.Redis):
        raise ConfigError(f"server must be a URL or a redis.Redis, got {type(server).__name__}; give one of them")
    settings = server.connection_pool.connection_kwargs
    if settings.get("decode_responses"):
        raise ConfigError("the client decodes its answers; make it with decode_responses=False")
    if not _keeps_ascii(settings.get("encoding", "utf-8")):
        raise ConfigError(f"the client writes in {settings['encoding']!r}; make it with encoding='utf-8'")
    return _checked(server)


def _of_url(url: str) -> Any:
    base, _, query = url.partition("?")
    options = parse_qsl(query)
    unknown = sorted({name for name, _ in options if name not in _READ | _OTHERS and not name.startswith("ssl_")})
    if unknown:
        raise ConfigError(
            f"the URL of the Redis server has options that are unknown here: {', '.join(unknown)}; leave them out, or "
            "give a redis.Redis that has them"
        )
    read = urlencode([(name, value) for name, value in options if name not in _OTHERS])
    timeouts = {"socket_timeout": _SECONDS, "socket_connect_timeout": _SECONDS}
    try:
        # Both threads try again by themselves, as long as it takes; no command tries twice.
        return redis.Redis.from_url(f"{base}?{read}", **timeouts, **_OURS, retry=Retry(NoBackoff(), 0))
    except ValueError:  # its words may hold a part of the password
        raise ConfigError(
            "the URL of the Redis server cannot be read; try redis://localhost:6379, and an IPv6 address in brackets"
        ) from None


def _checked(client: Any) -> Any:
    pool = client.connection_pool
    settings = pool.connection_kwargs
    # Reading waits for entries a moment at a time; a shorter limit would take that for a failure.
    for name, least in (("socket_timeout", 1.0), ("socket_connect_timeout", 0.001)):
        if settings.get(name) is not None:
            number(name, settings[name], f"give seconds, {_SECONDS:g} is usual", least=least, most=_LONGEST)
    try:
        pool.connection_class(**settings)  # connects to nothing
    except Exception as error:
        raise ConfigError(
            f"no connection to the Redis server can be made with these settings ({type(error).__name__}); correct "
            "the options of the URL or of the client"
        ) from error
    return client


def _keeps_ascii(encoding: str) -> bool:
    try:
        return "NX".encode(encoding) == b"NX"
    except LookupError:
        return False
