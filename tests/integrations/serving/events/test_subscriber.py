"""The subscriber against real sockets. The publisher of `kv_publisher` does what vLLM's does."""

import logging
import socket
import subprocess
import sys
import time

import pytest

from contextpilot_core import ReuseEngine
from contextpilot_core.errors import ConfigError, MissingExtraError
from contextpilot_core.mirror.events import AllBlocksCleared, BlockRemoved, BlockStored
from contextpilot_core.mirror.mirror import KVMirror
from tests.conftest import require

msgspec = require("msgspec")
zmq = require("zmq")

from contextpilot_integrations import extras  # noqa: E402
from contextpilot_integrations.serving.events import subscriber as events_module  # noqa: E402
from contextpilot_integrations.serving.events.subscriber import KVEventSubscriber  # noqa: E402
from tests.forked import in_child  # noqa: E402
from tests.integrations.kv_capture import PlainCache, capture, compare  # noqa: E402
from tests.integrations.kv_publisher import Publisher, as_array, wait  # noqa: E402

SIZE = 4


def prompt(number):
    return tuple(range(number * 100, number * 100 + 2 * SIZE))


def stored(number):
    """The two blocks of prompt ``number``."""
    return BlockStored(
        block_hashes=(2 * number, 2 * number + 1),
        parent_block_hash=None,
        token_ids=prompt(number),
        block_size=SIZE,
        medium="GPU",
    )


@pytest.fixture
def ends(tmp_path):
    """Two endpoints: events and replay."""
    return f"ipc://{tmp_path}/events", f"ipc://{tmp_path}/replay"


@pytest.fixture
def mirror():
    return KVMirror()


def followed(subscriber, sequence):
    """Wait until the batch was taken."""
    wait(lambda: subscriber.status.last_sequence == sequence)


def connected(subscriber):
    wait(lambda: subscriber._connected)
    time.sleep(0.05)  # the subscription itself travels behind the greeting


def held(mirror, *numbers):
    return [mirror.cached_tokens((*prompt(number), 0)) for number in numbers]


def test_batches_reach_the_mirror(ends, mirror):
    with Publisher(ends[0]) as publisher, KVEventSubscriber(ends[0], mirror) as subscriber:
        assert not mirror.live
        connected(subscriber)
        publisher.publish([stored(0), stored(1)])
        publisher.publish([BlockRemoved(block_hashes=(3,), medium="GPU")], form=as_array)
        followed(subscriber, 1)
        wait(lambda: mirror.live)
        assert held(mirror, 0, 1) == [2 * SIZE, SIZE]
        assert subscriber.status.batches == 2


def test_after_a_fork_the_child_says_once_that_nobody_follows_here(ends, mirror, caplog):
    with Publisher(ends[0]) as publisher, KVEventSubscriber(ends[0], mirror) as subscriber:
        connected(subscriber)
        publisher.publish([stored(0)])
        wait(lambda: mirror.live)
        engine = ReuseEngine(mirror=mirror)

        def child():
            caplog.clear()
            lives = [subscriber.status.live, mirror.live, engine.stats().source]
            reason = subscriber.status.reason
            subscriber.close()
            subscriber.close()
            engine.plan(["a text", "another one"])
            lives += [subscriber.status.live, mirror.live, mirror.tokens]
            return lives, reason, [record.getMessage() for record in caplog.records]

        lives, reason, lines = in_child(child)
        assert lives == [False, False, "estimate", False, False, 0]
        assert "before a fork" in reason
        assert len(lines) == 1 and "does not survive a fork" in lines[0]
        publisher.publish([stored(1)])
        followed(subscriber, 1)
        assert mirror.live and subscriber.status.live


def test_a_subscriber_of_the_child_follows_for_a_mirror_of_the_parent(ends, mirror):
    """The mirror is emptied there, and right again as soon as a replay came."""
    with (
        Publisher(*ends) as publisher,
        KVEventSubscriber(ends[0], mirror, replay_endpoint=ends[1]) as subscriber,
    ):
        connected(subscriber)
        publisher.publish([stored(0)])
        wait(lambda: mirror.live)

        def child():
            before = mirror.tokens
            with KVEventSubscriber(ends[0], mirror, replay_endpoint=ends[1]):
                wait(lambda: mirror.live)
                return before, mirror.tokens

        assert in_child(child) == (0, 2 * SIZE)


def test_a_forked_child_ends_by_itself(ends):
    """What the parent had is let go at the end of the child without touching the parent's sockets."""
    code = f"""
import os, sys, time
from contextpilot_core import KVMirror
from contextpilot_integrations.serving import KVEventSubscriber
subscriber = KVEventSubscriber({ends[0]!r}, KVMirror())
child = os.fork()
if child:
    ended, status = os.waitpid(child, 0)
    subscriber.close()
    print("child", os.waitstatus_to_exitcode(status))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "child 0\n", done.stderr


def test_v2_a_gap_is_filled_by_replay(ends, mirror):
    for old in (False, True):
        with (
            Publisher(*ends, old_replay=old) as publisher,
            KVEventSubscriber(ends[0], mirror, replay_endpoint=ends[1]) as s,
        ):
            wait(lambda: mirror.live)  # nothing was published yet: nothing is cached
            connected(s)
            publisher.publish([stored(0)])
            publisher.publish([stored(1)], lost=True)
            publisher.publish([BlockRemoved(block_hashes=(0,), medium="GPU")], lost=True)
            publisher.publish([stored(2)])
            followed(s, 3)
            wait(lambda: mirror.live)
            assert held(mirror, 0, 1, 2) == [0, 2 * SIZE, 2 * SIZE]
            assert (s.status.gaps, s.status.batches) == (1, 4)
            assert publisher.asked[-2:] == [0, 3]  # from the batch that was followed last, until nothing is new


def test_v2_a_gap_without_replay_clears_the_view(ends, mirror, caplog):
    with Publisher(ends[0]) as publisher, KVEventSubscriber(ends[0], mirror) as subscriber:
        connected(subscriber)
        publisher.publish([stored(0)])
        publisher.publish([stored(1)], lost=True)
        publisher.publish([stored(2)])
        followed(subscriber, 2)
        assert not mirror.live
        assert held(mirror, 0, 1, 2) == [0, 0, 2 * SIZE]
        assert "the batches before 2 are lost" in caplog.text
        publisher.publish([AllBlocksCleared()])
        followed(subscriber, 3)
        wait(lambda: mirror.live)
        assert mirror.tokens == 0


def test_v2_a_replay_that_does_not_come_clears_the_view(ends, mirror):
    with Publisher(ends[0]) as publisher:
        with KVEventSubscriber(ends[0], mirror, replay_endpoint=ends[1], replay_timeout=0.2) as subscriber:
            connected(subscriber)
            wait(lambda: subscriber.status.replays)
            publisher.publish([stored(0)])
            followed(subscriber, 0)
            wait(lambda: mirror.live)
            publisher.publish(lost=True)
            publisher.publish([stored(1)])
            followed(subscriber, 2)
            assert not mirror.live
            assert held(mirror, 0, 1) == [0, 2 * SIZE]


def test_a_replay_that_could_not_be_had_is_asked_for_again(ends, mirror, monkeypatch):
    monkeypatch.setattr(events_module, "RETRY_SECONDS", 0.1)
    publisher = Publisher(ends[0])
    with KVEventSubscriber(ends[0], mirror, replay_endpoint=ends[1], replay_timeout=0.2) as subscriber:
        connected(subscriber)
        publisher.publish([stored(0)], lost=True)
        publisher.publish([stored(1)])
        followed(subscriber, 1)
        assert not mirror.live
        late = Publisher(f"{ends[0]}-other", ends[1])
        late.ring.extend(publisher.ring)
        wait(lambda: mirror.live)
        assert held(mirror, 0, 1) == [2 * SIZE, 2 * SIZE]
        late.close()
    publisher.close()


def test_a_late_start_is_replayed_from_the_beginning(ends, mirror):
    with Publisher(*ends) as publisher:
        for number in range(50):
            publisher.publish([stored(number)])
        with KVEventSubscriber(ends[0], mirror, replay_endpoint=ends[1]) as subscriber:
            followed(subscriber, 49)
            wait(lambda: mirror.live)
            assert held(mirror, 0, 49) == [2 * SIZE, 2 * SIZE]
            publisher.publish([stored(50)])
            followed(subscriber, 50)
            assert subscriber.status.gaps == 0


def test_a_late_start_after_the_beginning_is_gone_waits_for_a_clear(ends, mirror, caplog):
    with Publisher(*ends, ring=3) as publisher:
        for number in range(5):
            publisher.publish([stored(number)])
        with KVEventSubscriber(ends[0], mirror, replay_endpoint=ends[1]) as subscriber:
            connected(subscriber)
            wait(lambda: subscriber.status.replays)
            publisher.publish([stored(5)])
            followed(subscriber, 5)
            assert not mirror.live
            assert "the engine's replay starts at batch" in caplog.text
            publisher.publish([AllBlocksCleared(), stored(6)])
            wait(lambda: mirror.live)
            assert held(mirror, 5, 6) == [0, 2 * SIZE]


@pytest.mark.parametrize("replay", [False, True])
def test_v3_a_restart_empties_the_view(ends, mirror, replay):
    with KVEventSubscriber(ends[0], mirror, replay_endpoint=ends[1] if replay else None) as subscriber:
        with Publisher(ends[0], ends[1] if replay else None) as publisher:
            connected(subscriber)
            publisher.publish([stored(0)])
            followed(subscriber, 0)
        wait(lambda: not mirror.live)  # as soon as the connection is gone
        with Publisher(ends[0], ends[1] if replay else None) as publisher:
            connected(subscriber)
            publisher.publish([stored(1)])
            wait(lambda: mirror.live and held(mirror, 1) == [2 * SIZE])
            assert held(mirror, 0) == [0]
            assert subscriber.status.restarts == 1


def test_malformed_messages_are_counted_and_the_thread_lives(ends, mirror):
    with Publisher(ends[0]) as publisher, KVEventSubscriber(ends[0], mirror) as subscriber:
        connected(subscriber)
        publisher.publish([stored(0)])
        publisher.socket.send_multipart([b"kv"])
        publisher.socket.send_multipart([b"kv", b"short", b""])
        publisher.publish(data=b"\xc1")
        followed(subscriber, 1)
        assert (subscriber.status.malformed, mirror.live, mirror.tokens) == (3, False, 0)
        publisher.publish([AllBlocksCleared()])
        publisher.publish([stored(1)])
        followed(subscriber, 3)
        wait(lambda: mirror.live)
        assert held(mirror, 1) == [2 * SIZE]


def test_every_rank_has_a_stream_of_its_own(mirror):
    context = zmq.Context()
    probe = context.socket(zmq.PUB)
    port = probe.bind_to_random_port("tcp://127.0.0.1", min_port=20_000, max_port=50_000)
    probe.close(linger=0)
    context.term()
    base = f"tcp://*:{port}"
    with Publisher(base) as first, Publisher(f"tcp://*:{port + 1}") as second:
        with KVEventSubscriber(base, mirror) as zero, KVEventSubscriber(base, mirror, rank=1) as one:
            connected(zero)
            connected(one)
            first.publish([stored(0)])
            second.publish([stored(0)])
            second.publish([stored(1)])
            followed(zero, 0)
            followed(one, 1)
            wait(lambda: mirror.live)
            first.publish(lost=True)
            first.publish()
            followed(zero, 2)
            assert not mirror.live  # rank 0 is unknown now
            assert held(mirror, 0, 1) == [2 * SIZE, 2 * SIZE]  # rank 1 holds them
            first.publish([AllBlocksCleared()])
            followed(zero, 3)
            wait(lambda: mirror.live)
    assert len(mirror.suspensions) == 2


def test_the_engine_may_be_the_one_that_connects(ends, mirror):
    with KVEventSubscriber(ends[0], mirror, bind=True, topic="kv") as subscriber:
        with Publisher(ends[0], bind=False) as publisher, Publisher(ends[0], bind=False, topic=b"other") as other:
            wait(lambda: subscriber._connected)
            time.sleep(0.2)
            other.publish([stored(3)])
            publisher.publish([stored(0)])
            followed(subscriber, 0)
            assert held(mirror, 0, 3) == [2 * SIZE, 0]


def test_closing_ends_the_thread_and_leaves_no_trust(ends, mirror):
    with Publisher(ends[0]) as publisher:
        subscriber = KVEventSubscriber(ends[0], mirror)
        connected(subscriber)
        publisher.publish([stored(0)])
        followed(subscriber, 0)
        subscriber.close()
        subscriber.close()
        assert not subscriber._thread.is_alive()
        assert not mirror.live
        assert subscriber.status.reason == "the subscriber is closed"
        with KVEventSubscriber(ends[0], mirror):
            pass


def test_an_error_of_ours_is_logged_and_suspends_the_mirror(ends, mirror, monkeypatch, caplog):
    def broken(*_):
        raise RuntimeError("a defect")

    with Publisher(ends[0]) as publisher, KVEventSubscriber(ends[0], mirror) as subscriber:
        connected(subscriber)
        monkeypatch.setattr(mirror, "apply", broken)
        publisher.publish([stored(0)])
        wait(lambda: not subscriber._thread.is_alive())
        assert not mirror.live
        assert "stopped by an error" in subscriber.status.reason
    assert [record.levelno for record in caplog.records if record.exc_info] == [logging.ERROR]


def test_without_a_connection_the_log_says_what_to_look_at(ends, mirror, monkeypatch, caplog):
    monkeypatch.setattr(events_module, "HINT_SECONDS", 0.0)
    with KVEventSubscriber(ends[0], mirror):
        wait(lambda: caplog.text)
        time.sleep(3 * events_module.POLL_MS / 1000)
    assert len(caplog.records) == 1
    assert "--kv-events-config" in caplog.text
    assert "bind=True" in caplog.text


def free(host, count=2):
    """Return ports that are free one after the other."""
    while True:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.bind((host, 0))
            first = probe.getsockname()[1]
        try:
            for port in range(first, first + count):
                with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
                    probe.bind((host, port))
        except OSError:
            continue
        return list(range(first, first + count))


@pytest.mark.parametrize("named", ["[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "::1"])
def test_events_and_replays_come_over_ipv6(ipv6, mirror, named):
    live, replay = free(ipv6)
    ends = f"tcp://[::1]:{live}", f"tcp://[::1]:{replay}"
    with Publisher(*ends) as publisher:
        publisher.publish([stored(0)])
        reached = [f"tcp://{named}:{port}" for port in (live, replay)]
        with KVEventSubscriber(reached[0], mirror, replay_endpoint=reached[1]) as subscriber:
            wait(lambda: mirror.live)
            connected(subscriber)
            publisher.publish([stored(1)])
            followed(subscriber, 1)
            assert held(mirror, 0, 1) == [2 * SIZE, 2 * SIZE]


def test_ranks_count_up_the_ports_of_ipv6_addresses(ipv6, mirror):
    first, second = free(ipv6)
    with (
        Publisher(f"tcp://[::1]:{second}") as publisher,
        KVEventSubscriber(f"tcp://[::1]:{first}", mirror, rank=1) as subscriber,
    ):
        connected(subscriber)
        publisher.publish([stored(0)])
        followed(subscriber, 0)


def test_an_engine_may_connect_over_ipv6(ipv6, mirror):
    (port,) = free(ipv6, 1)
    end = f"tcp://[::]:{port}"
    with (
        KVEventSubscriber(end, mirror, bind=True) as subscriber,
        Publisher(f"tcp://[::1]:{port}", bind=False) as publisher,
    ):
        connected(subscriber)
        publisher.publish([stored(0)])
        followed(subscriber, 0)


def test_a_name_with_both_addresses_is_reached_over_ipv4(mirror):
    """As engines listen at ``*``; over IPv6 nobody would answer."""
    (port,) = free("127.0.0.1", 1)
    with (
        Publisher(f"tcp://127.0.0.1:{port}") as publisher,
        KVEventSubscriber(f"tcp://localhost:{port}", mirror) as subscriber,
    ):
        connected(subscriber)
        publisher.publish([stored(0)])
        followed(subscriber, 0)


@pytest.mark.parametrize(
    ("families", "needed"), [([socket.AF_INET6], True), ([socket.AF_INET6, socket.AF_INET], False), ([], False)]
)
def test_a_name_that_has_ipv6_alone_is_reached_over_it(monkeypatch, families, needed):
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(family, 0, 0, "", ()) for family in families])
    assert events_module._needs_ipv6("tcp://engine.internal:5557") is needed
    assert not events_module._needs_ipv6("ipc:///tmp/a:b")


@pytest.mark.parametrize(
    ("endpoint", "options", "message"),
    [
        ("nonsense", {}, "tcp://HOST:PORT"),
        ("tcp://*", {"rank": 1}, "end with a port"),
        ("tcp://*:5557", {"rank": -1}, "rank=-1"),
        ("tcp://*:5557", {"replay_timeout": 0}, "replay_timeout=0"),
        ("tcp://*:5557", {"replay_endpoint": "nonsense"}, "nonsense"),
        (5, {}, "endpoint=5 must be a str"),
        (None, {"rank": 1}, "endpoint=None must be a str"),
        ("tcp://*:5557", {"replay_endpoint": 5558}, "endpoint=5558 must be a str"),
    ],
)
def test_wrong_values_are_refused_at_once(mirror, endpoint, options, message):
    with pytest.raises(ConfigError, match=message):
        KVEventSubscriber(endpoint, mirror, **options)
    assert mirror.live


def test_what_is_no_mirror_is_refused():
    with pytest.raises(ConfigError, match="mirror must be a KVMirror, got NoneType"):
        KVEventSubscriber("tcp://*:5557", None)


@pytest.mark.parametrize("module", ["zmq", "msgspec"])
def test_missing_packages_are_named_with_the_line_that_brings_them(ends, mirror, monkeypatch, module):
    real = extras.importlib.import_module

    def absent(name):
        if name == module:
            raise ModuleNotFoundError(name=name)
        return real(name)

    monkeypatch.setattr(extras.importlib, "import_module", absent)
    with pytest.raises(MissingExtraError, match=r"contextpilot-rag\[events\]"):
        KVEventSubscriber(ends[0], mirror)


def test_a_process_ends_with_an_open_subscriber(ends):
    code = f"""
from contextpilot_core import KVMirror
from contextpilot_integrations.serving.events import KVEventSubscriber
subscriber = KVEventSubscriber({ends[0]!r}, KVMirror())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_capture_over_real_sockets(data_dir, ends, mirror):
    cache = PlainCache()
    lines = capture(data_dir)
    with Publisher(*ends) as publisher, KVEventSubscriber(ends[0], mirror, replay_endpoint=ends[1]) as subscriber:
        wait(lambda: mirror.live)
        connected(subscriber)
        for number, line in enumerate(lines):
            publisher.publish(data=msgspec.msgpack.encode(line["batch"]), lost=number % 5 == 3)
            for event in line["batch"][1]:
                cache.apply(event)
            if number % 5 != 3:
                followed(subscriber, number)
                compare(mirror, cache)
        assert subscriber.status.gaps == 4
        wait(lambda: mirror.live)
