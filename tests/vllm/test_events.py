"""The mirror follows a real server: whatever happens to the events, it predicts what the server then reports."""

import random
import tempfile

import pytest

from tests.conftest import require
from tests.vllm.conftest import POOL_BLOCKS

for module in ("zmq", "msgspec"):
    require(module)

from tests.vllm.following import (  # noqa: E402
    LossyRelay,
    ask,
    following,
    forget_everything,
    prompt,
)


@pytest.fixture
def follower(server):
    """A mirror of an empty cache."""
    forget_everything(server)
    with following(server) as started:
        started.settle()
        yield started


def predicted_and_reported(follower, token_ids, salt=None):
    return follower.predict(token_ids, salt), ask(follower.server, token_ids, salt=salt)[0]


# --- stored, removed, cleared ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens, cached", [(31, 0), (32, 0), (33, 32), (64, 32), (330, 320)])
def test_a_repeat_is_predicted(follower, tokens, cached):
    ids = prompt(f"repeat {tokens}", tokens)
    assert predicted_and_reported(follower, ids) == (0, 0)
    assert predicted_and_reported(follower, ids) == (cached, cached)
    assert predicted_and_reported(follower, ids) == (cached, cached)  # the last block may be there twice now


def test_a_shared_head_is_predicted_to_the_block(follower):
    head, one, other = prompt("head", 170), prompt("one", 200), prompt("other", 200)
    ask(follower.server, head + one)
    assert predicted_and_reported(follower, head + other) == (160, 160)


def test_answers_are_cached_as_well(follower):
    ids = prompt("question", 60)
    _, answer = ask(follower.server, ids, answer_tokens=80)
    assert predicted_and_reported(follower, ids + answer + prompt("follow-up", 40)) == (128, 128)


def test_a_salt_keeps_prompts_apart(follower):
    ids = prompt("shared by tenants", 200)
    ask(follower.server, ids, salt="one")
    assert predicted_and_reported(follower, ids, salt="other") == (0, 0)
    assert predicted_and_reported(follower, ids) == (0, 0)
    longer = ids + prompt("more", 100)
    assert predicted_and_reported(follower, longer, salt="one") == (192, 192)
    assert predicted_and_reported(follower, longer, salt="one") == (288, 288)  # continued below a salted block


def test_a_small_pool_evicts_and_the_mirror_knows(follower):
    """Twelve prompts of 1,000 tokens, eight fit."""
    prompts = [prompt(f"large {number}", 1000) for number in range(12)]
    for ids in prompts:
        ask(follower.server, ids)
    predictions = [follower.predict(ids) for ids in prompts]
    assert predictions[0] == 0 and predictions[-1] == 992
    assert follower.mirror.tokens <= POOL_BLOCKS * follower.server.block_size
    for number in random.Random(0).sample(range(12), 6):
        predicted, reported = predicted_and_reported(follower, prompts[number])
        assert predicted == reported


def test_a_reset_empties_the_mirror(follower):
    ids = prompt("before the reset", 300)
    ask(follower.server, ids)
    assert follower.predict(ids) == 288
    forget_everything(follower.server)
    assert predicted_and_reported(follower, ids) == (0, 0)


def test_a_long_mixture_is_predicted_throughout(follower):
    """Prompts of three documents of 16, two salts, answers: the pool holds half of what is asked for."""
    draw = random.Random(7)
    documents = [prompt(f"document {number}", draw.randrange(150, 350)) for number in range(16)]
    pairs = []
    for _ in range(50):
        picked = draw.sample(documents, 2) if draw.random() < 0.7 else [documents[0], documents[1], documents[2]]
        pairs.append(predicted_and_reported(follower, sum(picked, []), draw.choice(["red", "blue"])))
    assert [predicted for predicted, _ in pairs] == [reported for _, reported in pairs]
    assert sum(reported for _, reported in pairs) > 0


# --- late, gaps ---------------------------------------------------------------------------------------------


def test_who_comes_late_learns_everything_by_replay(server):
    forget_everything(server)
    ids = prompt("before anybody listens", 300)
    ask(server, ids)
    with following(server) as late:
        assert predicted_and_reported(late, ids) == (288, 288)
        assert late.subscriber.status.replays > 0


@pytest.fixture
def relay(server):
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, LossyRelay(server, folder) as started:
        yield started


def test_a_gap_is_filled_by_replay(server, relay):
    forget_everything(server)
    lost, noticed = prompt("lost", 300), prompt("noticed", 300)
    with following(server, endpoint=relay.endpoint) as follower:
        ask(server, prompt("arrives", 100))
        follower.settle()
        with relay.losing():
            for ids in [lost, *(prompt(f"evicts {number}", 1500) for number in range(6)), lost]:
                ask(server, ids)
        before = follower.subscriber.status
        ask(server, noticed)
        assert predicted_and_reported(follower, noticed) == (288, 288)
        assert predicted_and_reported(follower, lost) == (288, 288)
        after = follower.subscriber.status
        assert relay.lost > 0 and after.gaps == before.gaps + 1 and after.replays > before.replays


def test_without_replay_a_gap_ends_the_trust_until_the_cache_is_cleared(server, relay):
    known, lost = prompt("known", 300), prompt("lost without replay", 300)
    with following(server, endpoint=relay.endpoint, replay_endpoint=None) as follower:
        while not follower.mirror.live:  # it may not be connected yet
            forget_everything(server)
        ask(server, known)
        assert follower.predict(known) == 288
        with relay.losing():
            ask(server, lost)
        ask(server, prompt("noticed without replay", 300))
        follower.wait_until(lambda status: not status.live)
        assert not follower.mirror.live and follower.mirror.cached_tokens(known) == 0
        forget_everything(server)
        assert predicted_and_reported(follower, known) == (0, 0)
        assert predicted_and_reported(follower, known) == (288, 288)
