"""Order, gaps and restarts without sockets: whatever happens to the batches, nothing is cached that is not."""

from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core.mirror.mirror import KVMirror
from tests.conftest import require
from tests.core.kv_engine import SIZE, Engine, compare, run, steps

require("msgspec")
require("zmq")

from contextpilot_integrations.serving.events.codec import EventDecoder  # noqa: E402
from contextpilot_integrations.serving.events.feed import EventFeed  # noqa: E402
from tests.integrations.kv_publisher import payload  # noqa: E402

RING = 4


class Stream:
    """An engine that publishes after every step, the network that may spoil it, and the feed behind."""

    def __init__(self):
        self.mirror = KVMirror()
        self.feed = EventFeed(self.mirror, EventDecoder(), rank=0, name="stream")
        self.engine, self.sequence, self.ring = Engine(), 0, []
        self.kept = []  # arrive later, or again

    def step(self, step, fate, answers):
        """``fate`` of the batch on its way; ``answers``: whether the engine's replay can be reached."""
        if step == "restart":
            self.engine, self.sequence, self.ring = Engine(), 0, []
            self.kept.clear()  # one connection keeps the order, and the next begins later
            self.feed.away()  # a publisher that ends closes its connections
            return
        batch = (self.sequence, payload(run(self.engine, step)))
        self.sequence += 1
        self.ring = [*self.ring, batch][-RING:]
        ask = self.ask if answers == "all" else self.ask_with_holes if answers == "holes" else None
        if fate == "late":
            self.kept.append(batch)
            return
        if fate == "lost":
            return
        self.feed.take(*batch, ask)
        if fate == "doubled":
            self.feed.take(*batch, ask)
        if fate == "kept":
            self.kept.append(batch)
        if fate == "junk":
            self.feed.take(self.sequence, b"junk", ask)
            self.sequence += 1
        if fate == "flush":
            for late in self.kept:
                self.feed.take(*late, ask)
            self.kept.clear()
            self.feed.take(*batch, ask)

    def ask(self, start):
        return [batch for batch in self.ring if batch[0] >= start]

    def ask_with_holes(self, start):
        return self.ask(start)[:2]


fates = st.sampled_from(["fine", "fine", "fine", "lost", "doubled", "late", "kept", "flush", "junk"])
asks = st.sampled_from(["none", "all", "holes"])


@settings(max_examples=500, deadline=None)
@given(st.lists(st.tuples(st.one_of(steps, st.just("restart")), fates, asks), max_size=30))
def test_lost_doubled_late_and_spoilt_batches_never_leave_a_block_cached_that_is_not(sequence):
    stream = Stream()
    for step, fate, answers in sequence:
        stream.step(step, fate, answers)
        if stream.feed.status.last_sequence == stream.sequence - 1:  # otherwise nobody can know yet
            compare(stream.mirror, [stream.engine], exact=stream.mirror.live)
        stream.mirror.check_integrity()
        assert stream.mirror.live == stream.feed.status.live == (not stream.feed.status.reason)


PROMPT = [1] * (2 * SIZE)
CALM = [("admit", PROMPT, None, True), ("evict", 0), ("admit", PROMPT, None, True)]


def feed_after(*fates, answers="none"):
    stream = Stream()
    for step, fate in zip(CALM * 3, fates, strict=False):
        stream.step(step, fate, answers)
    return stream


def test_v2_a_gap_is_filled_by_replay():
    stream = feed_after("fine", "lost", "fine", answers="all")
    status = stream.feed.status
    assert (status.live, status.gaps, status.replays, status.batches) == (True, 1, 1, 3)
    compare(stream.mirror, [stream.engine], exact=True)


def test_v2_a_gap_without_replay_empties_the_view_until_the_cache_is_cleared():
    stream = feed_after("fine", "lost", "lost", "fine", "fine")
    assert not stream.mirror.live
    assert stream.feed.status.reason == "the batches before 3 are lost"
    stream.step(("evict", 0), "fine", "none")
    assert not stream.mirror.live
    stream.step(("reset",), "fine", "none")
    assert stream.mirror.live
    assert stream.mirror.suspensions == {}


def test_a_replay_that_loses_batches_on_the_way_is_asked_for_the_rest():
    stream = feed_after("fine", "lost", "lost", "fine", answers="holes")
    assert stream.mirror.live
    assert stream.feed.status.batches == 4
    compare(stream.mirror, [stream.engine], exact=True)


def test_a_late_start_needs_the_beginning():
    stream = feed_after("lost", "lost", "fine", answers="all")
    assert stream.mirror.live
    stream = feed_after(*["lost"] * RING, "fine", answers="all")
    assert not stream.mirror.live
    assert not stream.feed.recoverable
    assert "replay starts at batch 1" in stream.feed.status.reason or "are lost" in stream.feed.status.reason


def test_v3_an_engine_that_starts_again_empties_the_view():
    stream = feed_after("fine", "fine")
    stream.engine, stream.sequence, stream.ring = Engine(), 0, []
    stream.step(("reset",), "fine", "none")
    assert (stream.mirror.live, stream.mirror.tokens, stream.feed.status.restarts) == (True, 0, 1)


def test_v3_an_engine_that_starts_again_is_noticed_also_when_the_numbers_fit():
    stream = feed_after("fine", "fine")
    stream.step("restart", "fine", "none")
    assert stream.feed.status.reason == "the engine is not connected"
    for step in CALM[:2]:
        stream.step(step, "lost", "none")
    stream.step(CALM[0], "fine", "all")  # sequence 2, as if nothing had happened
    assert (stream.mirror.live, stream.feed.status.restarts) == (True, 1)
    compare(stream.mirror, [stream.engine], exact=True)


def test_a_connection_that_comes_back_to_the_same_engine_loses_nothing():
    stream = feed_after("fine", "fine")
    stream.feed.away()
    stream.step(CALM[2], "fine", "all")
    assert (stream.mirror.live, stream.feed.status.gaps, stream.feed.status.restarts) == (True, 0, 0)
    compare(stream.mirror, [stream.engine], exact=True)
    stream.feed.away()
    stream.step(CALM[1], "fine", "none")  # and without a replay nobody can tell
    assert not stream.mirror.live


def test_an_engine_that_has_published_nothing_has_nothing():
    stream = Stream()
    assert stream.feed.recoverable
    assert stream.feed.recover(lambda start: [])
    assert stream.mirror.live
    stream.step(CALM[0], "fine", "none")
    compare(stream.mirror, [stream.engine], exact=True)


def test_an_engine_that_does_not_answer_is_asked_again():
    stream = Stream()
    assert not stream.feed.recover(lambda start: None)
    stream.step(CALM[0], "lost", "none")
    stream.step(CALM[1], "fine", "none")
    assert stream.feed.recoverable
    assert stream.feed.recover(stream.ask)
    assert stream.mirror.live
    compare(stream.mirror, [stream.engine], exact=True)


def test_a_malformed_batch_counts_as_a_gap():
    stream = feed_after("fine")
    stream.feed.take(stream.sequence, b"junk", stream.ask)
    status = stream.feed.status
    assert (status.live, status.malformed, status.batches) == (False, 1, 2)
    assert stream.mirror.tokens == 0
    assert not stream.feed.recoverable


def test_a_first_batch_that_comes_late_is_no_restart():
    stream = feed_after("late", "flush")
    assert (stream.mirror.live, stream.mirror.tokens) == (False, 0)
    assert stream.feed.status.restarts == 0


def test_the_end_leaves_a_suspended_empty_mirror():
    stream = feed_after("fine")
    stream.feed.stray()
    stream.feed.end("closed")
    assert (stream.mirror.live, stream.mirror.tokens) == (False, 0)
    assert stream.mirror.suspensions == {"stream": "closed"}
