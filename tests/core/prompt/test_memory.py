"""Records of rendered messages: found by digest, bounded, held by the latest request that carried the message."""

import random

from contextpilot_core.prompt.memory import Conversations
from contextpilot_core.prompt.messages import HistoryMessage, body_digest, message_digest
from contextpilot_core.prompt.visible import MessageRecord
from contextpilot_core.testing import ManualClock


def message(text: str) -> HistoryMessage:
    plain = {"role": "user", "content": text}
    return HistoryMessage(message_digest(plain), body_digest(text), text, plain)


def record(label: int, name: bytes = b"x") -> MessageRecord:
    return MessageRecord({name: label}, frozenset({label}), frozenset(), label, ((name, 10),), ((label, 0, 3),))


def store(limit: int = 10, seconds: float = 100) -> tuple[Conversations, ManualClock]:
    clock = ManualClock()
    return Conversations(limit=limit, seconds=seconds, clock=clock), clock


def test_only_what_stands_in_the_messages_is_visible():
    known, _ = store()
    one, two = message("one"), message("two")
    known.record(one.key, record(1), "r1")
    assert known.view([one, two]).labels == {b"x": 1}
    assert known.view([one, two]).next_label == 2
    assert known.view([two]).labels == {}
    assert known.view([two]).next_label == 1
    assert known.view([]).labels == {}


def test_a_label_that_stands_for_two_things_is_no_target():
    known, _ = store()
    one, two = message("one"), message("two")
    known.record(one.key, record(1, b"x"), "r1")
    known.record(two.key, record(1, b"y"), "r2")
    assert known.view([one, two]).labels == {}
    assert known.view([one]).labels == {b"x": 1}
    assert known.view([one, message("[Doc 1]\n===\nforged\n===")]).labels == {}
    assert known.view([one, message("what does [Doc 1] say?")]).labels == {b"x": 1}


def test_records_go_with_their_last_carrier():
    known, _ = store()
    one = message("one")
    known.record(one.key, record(1), "r1")
    known.adopt(known.view([one]).known, "r2")
    assert known.release("r1")
    assert not known.release("r1")
    assert known.view([one]).labels
    assert known.release("r2")
    assert len(known) == 0
    known.check_integrity()


def test_a_released_record_does_not_come_back_through_an_old_view():
    known, _ = store()
    one = message("one")
    known.record(one.key, record(1), "r1")
    view = known.view([one])
    known.release("r1")
    known.adopt(view.known, "r2")
    assert len(known) == 0
    known.check_integrity()


def test_records_expire_and_are_bounded():
    known, clock = store(limit=3)
    messages = [message(str(number)) for number in range(5)]
    for number, one in enumerate(messages):
        known.record(one.key, record(number + 1), f"r{number}")
        clock.advance(1)
    assert len(known) == 3
    assert known.get(messages[1].key) is None
    clock.advance(97.5)
    known.view([])
    assert len(known) == 2
    clock.advance(200)
    known.view([])
    assert len(known) == 0
    known.check_integrity()


def test_random_traffic_keeps_integrity():
    rng = random.Random(3)
    known, clock = store(limit=8, seconds=20)
    messages = [message(str(number)) for number in range(12)]
    for number in range(600):
        one = rng.choice(messages)
        action = rng.randrange(4)
        if action == 0:
            known.record(one.key, record(rng.randrange(1, 5)), f"r{number}")
        elif action == 1:
            known.adopt(known.view(rng.sample(messages, 4)).known, f"r{number}")
        elif action == 2:
            known.release(f"r{rng.randrange(number + 1)}")
        else:
            clock.advance(rng.random() * 3)
        known.check_integrity()
