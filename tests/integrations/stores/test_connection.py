"""URLs and clients: what they may say of the connection, and what is refused before anything is sent."""

import pytest

from contextpilot_core import ConfigError
from tests.conftest import require

redis = require("redis")
require("msgspec")

from contextpilot_integrations.stores.connection import connected  # noqa: E402
from tests.integrations.redis_server import RedisServer  # noqa: E402
from tests.integrations.redis_stores import Worker, agree  # noqa: E402


@pytest.mark.parametrize(
    "options",
    [
        *("decode_responses=True", "decode_responses=False", "protocol=3", "protocol=9", "encoding=utf-16"),
        *("encoding_errors=ignore", "retry=3", "retry_on_timeout=yes", "retry_on_error=5", "legacy_responses=no"),
        *("socket_read_size=0", "db=0&client_name=me", "max_connections=1", "max_connections=0", "socket_timeout=30"),
        *("health_check_interval=1", "socket_keepalive=no", "encoding=utf-16&decode_responses=1&protocol=3", ""),
    ],
)
def test_whatever_else_a_url_says_workers_agree(server, worker, options):
    one, two = worker(_At(f"{server.url}?{options}")), worker()
    assert one.plan(0, 1) == [0, 1]
    assert agree(one, two)
    assert two.plan(2, 1, 0) == [0, 1, 2]
    assert agree(one, two)


class _At:
    def __init__(self, url):
        self.url = url


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ("socket_timeout=0.1", "socket_timeout=0.1 must be a number of at least 1"),
        ("socket_timeout=nan", "socket_timeout=nan must be"),
        ("socket_timeout=inf", "socket_timeout=inf must be"),
        ("socket_connect_timeout=0", "socket_connect_timeout=0.0 must be"),
        ("socket_timeout=soon", "cannot be read"),
        ("max_connections=-1", "cannot be read"),
        ("db=one", "cannot be read"),
        ("timeout=5", "unknown here: timeout;"),
        ("parser_class=x&cache=secret&db=1", "unknown here: cache, parser_class;"),
        ("credential_provider=secret", "unknown here: credential_provider;"),
        ("connection_class=secret", "unknown here: connection_class;"),
        ("DECODE_RESPONSES=1", "unknown here: DECODE_RESPONSES;"),
        ("ssl_keyfile=secret", "no connection .* can be made"),
    ],
)
def test_what_cannot_work_is_refused_without_its_value(options, rule):
    with pytest.raises(ConfigError, match=rule) as refused:
        connected(f"redis://:password@localhost:1/0?{options}")
    assert "secret" not in str(refused.value)
    assert "password" not in str(refused.value)


@pytest.mark.parametrize("url", ["redis://localhost:port", "localhost:6379", "redis://[::1:6379", "http://[::1]:6379"])
def test_a_url_that_cannot_be_read_is_refused(url):
    with pytest.raises(ConfigError, match="URL of the Redis server cannot be read"):
        connected(url)


def test_paths_and_passwords_stand_in_a_url_as_before():
    client = connected("unix:///tmp/redis.sock?db=3&decode_responses=True")
    settings = client.connection_pool.connection_kwargs
    assert (settings["path"], settings["db"], settings["decode_responses"]) == ("/tmp/redis.sock", 3, False)
    settings = connected("rediss://user:a%3Fb%26c@[::1]:7000/2?ssl_cert_reqs=none").connection_pool.connection_kwargs
    assert (settings["host"], settings["port"], settings["username"]) == ("::1", 7000, "user")
    assert (settings["password"], settings["db"], settings["ssl_cert_reqs"]) == ("a?b&c", 2, "none")


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"decode_responses": True}, "decode_responses=False"),
        ({"encoding": "utf-16"}, "encoding='utf-8'"),
        ({"encoding": "no such"}, "encoding='utf-8'"),
        ({"socket_timeout": 0.2}, "socket_timeout=0.2 must be a number of at least 1"),
    ],
)
def test_a_client_that_cannot_work_is_refused(settings, rule):
    with pytest.raises(ConfigError, match=rule):
        connected(redis.Redis(**settings))


@pytest.mark.parametrize("settings", [{}, {"protocol": 3}, {"encoding": "latin-1"}, {"socket_timeout": None}])
def test_workers_agree_through_clients_of_the_callers_own(server, settings):
    client = redis.Redis(port=server.port, **settings)
    assert connected(client) is client
    one, two = Worker(_At(client)), Worker(server)
    assert one.plan(0, 1) == [0, 1]
    assert agree(one, two)
    assert two.plan(2, 1, 0) == [0, 1, 2]
    for each in (one, two):
        each.store.close()
    client.close()


def test_workers_agree_over_ipv6(tmp_path, ipv6):
    server = RedisServer(tmp_path, ipv6)
    server.start()
    one, two = Worker(server), Worker(_At(f"{server.url}/0?decode_responses=yes"))
    assert one.plan(0, 1) == [0, 1]
    assert agree(one, two)
    assert two.plan(2, 1, 0) == [0, 1, 2]
    for each in (one, two):
        each.store.close()
    server.close()
