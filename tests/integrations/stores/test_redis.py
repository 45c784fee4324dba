"""Workers that share a view through a real Redis: all plan on what one sent, and nothing there tells a document."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from contextpilot_core import ConfigError, ContextRequest, EngineConfig, ReuseEngine
from contextpilot_core.mirror.events import BlockStored
from contextpilot_core.mirror.mirror import KVMirror
from contextpilot_core.prompt.messages import body_digest
from contextpilot_core.types import PromptTokens, Served
from tests.conftest import require
from tests.core.conftest import body
from tests.forked import in_child

redis = require("redis")
require("msgspec")
from contextpilot_integrations.stores import RedisStore  # noqa: E402
from tests.integrations.redis_stores import agree, stream, synchronized, wait_until  # noqa: E402
from tests.integrations.redis_worker import CONFIG, SECRET, TEXTS  # noqa: E402

ROOT = Path(__file__).parents[3]


def test_workers_plan_on_what_others_sent(worker):
    one, two = worker(), worker()
    one.plan(0, 1)
    assert synchronized(one, two)
    assert two.plan(2, 1, 0) == [0, 1, 2]
    first = one.engine.plan([TEXTS[5]], query="q")
    messages = [*first.messages, {"role": "assistant", "content": "a"}]
    assert agree(one, two)
    assert [hint.label for hint in two.engine.plan([TEXTS[5]], messages=messages).hints] == [1]


def test_workers_that_follow_events_know_the_kv_blocks_of_others(server, worker):
    """A prompt of 48 tokens, whose two blocks end with its KV blocks; the second worker has sent nothing."""
    ids = list(range(48))
    one, two = (worker(server, CONFIG, KVMirror(block_size=16)) for _ in range(2))
    assert synchronized(one, two)
    plan = one.engine.plan([TEXTS[0], TEXTS[1]])
    one.engine.observe(plan, Served(prompt_tokens=48, tokens=PromptTokens(token_ids=ids, start=0, ends=[16, 32])))
    assert agree(one, two)
    wait_until(lambda: two.engine._namespaces._known)
    view = two.engine._namespaces._known["default"].index.view
    assert view.on_truth
    assert two.reuse(0, 1) > 0  # its events may be late
    wait_until(lambda: two.reuse(0, 1) == 0)
    stored = BlockStored(block_hashes=(1, 2, 3), parent_block_hash=None, token_ids=tuple(ids), block_size=16)
    two.engine._reports._mirror.apply([stored])
    assert two.reuse(0, 1) > two.reuse(0) > 0
    log = b"".join(value for _, fields in server.client.xrange(stream(server)) for value in fields.values())
    keys = KVMirror(block_size=16).keys(ids)
    assert b"recorded" in log
    assert not any(key in log for key in keys)


def test_nothing_in_redis_tells_a_document(server, worker):
    one = worker(snapshot_every=1)
    assert synchronized(one)
    secret = body("do not tell", 40)
    plan = one.engine.plan([secret], query="a very private question")
    one.engine.plan([secret, TEXTS[0]], messages=plan.messages, query="r", commit=False)
    assert synchronized(one)
    log = [fields for _, fields in server.client.xrange(stream(server))]
    snapshot = server.client.hgetall(server.client.keys("*:snapshot")[0])
    stored = b"".join(value for fields in (*log, snapshot) for value in fields.values())
    for hidden in (b"do not tell", b"private", body_digest(secret), body_digest(plan.text), SECRET.encode()):
        assert hidden not in stored
    assert one.store.seal(body_digest(secret)) in stored
    assert SECRET not in repr(vars(one.store))


def test_other_rules_and_other_secrets_are_other_logs(server, worker):
    one, two = worker(), worker(server, EngineConfig(cache_tokens=777))
    three = RedisStore(server.url, secret="another secret for the tests")
    stranger = ReuseEngine(CONFIG, journal=three)
    one.plan(0)
    assert synchronized(one, two)
    assert three.synchronize()
    assert two.reuse(0) == 0 < one.reuse(0)
    assert stranger.expected_reuse(ContextRequest(blocks=[TEXTS[0]])) == 0
    three.close()


def test_after_closing_the_engine_plans_alone(worker):
    one, two = worker(), worker()
    one.plan(0)
    one.store.close()
    one.store.close()
    assert one.plan(1, 0) == [0, 1]
    assert synchronized(two)
    assert (two.reuse(0) > 0, two.reuse(1)) == (True, 0)


def test_a_client_of_the_callers_own_stays_open(server):
    client = redis.Redis.from_url(server.url)
    with RedisStore(client, secret=SECRET.encode()) as store:
        ReuseEngine(CONFIG, journal=store).plan([TEXTS[0]])
        assert store.synchronize()
    assert client.ping()
    client.close()


def test_what_cannot_work_is_refused(server):
    for wrong, message in [
        ({"secret": "short"}, "16 bytes"),
        ({"secret": 5}, "got int"),
        ({"snapshot_every": 0}, "snapshot_every=0"),
        ({"snapshot_every": True}, "snapshot_every=True"),
        ({"server": "mysql://x"}, "URL"),
        ({"server": 5}, "got int"),
    ]:
        with pytest.raises(ConfigError, match=message):
            RedisStore(**{"server": server.url, "secret": SECRET, **wrong})
    store = RedisStore(server.url, secret=SECRET)
    assert not store.synchronize(0)
    for wrong in (-1, None, "5", float("nan"), float("inf"), True):
        for wait in (store.synchronize, store.close):
            with pytest.raises(ConfigError, match=rf"timeout={wrong!r} must be a number of at least 0"):
                wait(wrong)
    with pytest.raises(ConfigError, match="no engine"):
        store.digest()
    ReuseEngine(CONFIG, journal=store)
    with pytest.raises(ConfigError, match="one engine"):
        ReuseEngine(CONFIG, journal=store)
    store.close()
    with pytest.raises(ConfigError, match="one engine"):
        ReuseEngine(CONFIG, journal=store)


def test_a_store_says_once_that_it_does_not_survive_a_fork(worker, caplog):
    one, two = worker(), worker()
    one.plan(0)
    assert synchronized(one, two)

    def child():
        caplog.clear()
        planned = one.plan(2, 1), one.plan(3, 2)
        waited = one.store.synchronize(60)
        one.store.close(60)
        return planned, waited, one.store._state._attached, [record.getMessage() for record in caplog.records]

    planned, waited, attached, lines = in_child(child)
    assert planned == ([2, 1], [2, 3])  # it plans alone
    assert not waited and not attached
    assert len(lines) == 1 and "does not survive a fork" in lines[0]
    one.plan(1, 2)
    assert synchronized(one, two)
    assert two.plan(3, 1) == [1, 3]


@pytest.mark.parametrize("ask", ["synchronize", "close"])
def test_closing_or_waiting_is_the_first_thing_that_a_child_may_do(worker, caplog, ask):
    one = worker()
    assert synchronized(one)

    def child():
        caplog.clear()
        getattr(one.store, ask)(60)
        return one.store._state._attached, len(caplog.records)

    held, freed = threading.Event(), threading.Event()

    def hold():
        with one.store._exchange._moved:  # as one of the exchange's threads may during the fork
            held.set()
            freed.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(20)
    assert in_child(child) == (False, 1)
    freed.set()
    thread.join()
    assert synchronized(one)


@pytest.mark.parametrize("package", ["redis", "msgspec"])
def test_an_absent_package_is_named(package):
    code = f"import sys; sys.modules[{package!r}] = None; import contextpilot_integrations.stores"
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert 'pip install "contextpilot-rag[redis]"' in ended.stderr
