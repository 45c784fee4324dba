"""Records of rendered messages: found by digest, bounded, held by the latest request that carried the message."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core.errors import IntegrityError
from contextpilot_core.prompt.memory import Conversations, KnownRecord
from contextpilot_core.prompt.messages import HistoryMessage, body_digest, message_digest
from contextpilot_core.prompt.visible import Given, MessageRecord
from contextpilot_core.testing import ManualClock


def message(text: str) -> HistoryMessage:
    plain = {"role": "user", "content": text}
    return HistoryMessage(message_digest(plain), body_digest(text), text, plain)


def record(label: int, name: bytes = b"x") -> MessageRecord:
    return MessageRecord(((name, label),), frozenset({label}), frozenset(), label, ((name, 10),), ((label, 0, 3),))


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


def test_only_the_latest_carriers_are_counted():
    known, _ = store()
    one = message("one")
    known.record(one.key, record(1), "r0")
    for number in range(1, 70):
        known.adopt(known.view([one]).known, f"r{number}")
    [entry] = known.state()
    assert entry.owners == tuple(f"r{number}" for number in range(6, 70))
    assert not known.release("r5")
    known.check_integrity()


def test_a_message_that_others_wrote_is_read_once_and_is_no_part_of_the_state():
    known, _ = store()
    foreign, ours = message("[Doc 4]\n===\nsaid elsewhere\n==="), message("ours")
    known.adopt(known.view([foreign]).known, "r1")
    assert len(known) == 1
    assert known.get(foreign.key) is None
    assert known.state() == ()
    [(_, read)] = known.view([foreign]).known
    assert known.view([foreign]).known[0][1] is read
    known.record(ours.key, record(4), "r2")
    assert known.view([ours]).labels == {b"x": 4}
    assert known.view([foreign, ours]).labels == {}


class Told:
    """What other processes know, and what they are told."""

    def __init__(self) -> None:
        self.known: dict[bytes, MessageRecord] = {}
        self.heard: list[tuple[object, ...]] = []

    def get(self, key: bytes) -> MessageRecord | None:
        return self.known.get(key)

    def rendered(self, key: bytes, record: MessageRecord, owner: str) -> None:
        self.heard.append(("rendered", key, record, owner))

    def held(self, keys: Sequence[bytes], owner: str) -> None:
        self.heard.append(("held", list(keys), owner))


def test_what_another_process_rendered_is_visible_and_what_happens_here_is_told():
    told = Told()
    known = Conversations(limit=10, seconds=100, clock=ManualClock(), shared=told)
    here, there, foreign = message("here"), message("there"), message("foreign")
    told.known[there.key] = record(7, b"y")
    known.record(here.key, record(1), "r1")
    view = known.view([here, there, foreign])
    assert view.labels == {b"x": 1, b"y": 7}
    known.adopt(view.known, "r2")
    assert told.heard == [("rendered", here.key, record(1), "r1"), ("held", [here.key, there.key], "r2")]
    assert len(known) == 2  # the one of another process stays there
    known.adopt(known.view([foreign]).known, "r3")
    assert len(told.heard) == 2  # of foreign messages nothing is to be told
    known.check_integrity()


def test_integrity_check_sees_what_does_not_belong_together():
    known, _ = store()
    known.record(message("one").key, record(1), "r1")
    known._owned["r2"] = {message("one").key: None}
    with pytest.raises(IntegrityError, match="1 messages are known"):
        known.check_integrity()
    known, _ = store()
    known.record(message("one").key, record(1), "r1")
    known._seen.clear()
    with pytest.raises(IntegrityError, match="0 have times"):
        known.check_integrity()
    known, _ = store(limit=1)
    known.restore([KnownRecord(bytes([number]), record(1), 0.0, ("r",)) for number in range(2)])
    with pytest.raises(IntegrityError, match="more than 1 messages"):
        known.check_integrity()


class Model:
    """A list of what is known, oldest first: (key, label or None for a foreign message, seen, owners)."""

    def __init__(self, limit: int, seconds: float) -> None:
        self.limit, self.seconds, self.now = limit, seconds, 0.0
        self.known: list[tuple[bytes, int | None, float, list[str]]] = []

    def hold(self, key: bytes, label: int | None, owner: str) -> None:
        entry = next((entry for entry in self.known if entry[0] == key), (key, None, 0.0, []))
        owners = entry[3] if owner in entry[3] else [*entry[3], owner]
        self.known = [other for other in self.known if other[0] != key]
        self.known.append((key, entry[1] if label is None else label, self.now, owners))

    def trim(self) -> None:
        self.known = self.known[max(0, len(self.known) - self.limit) :]

    def release(self, owner: str) -> bool:
        held = any(owner in owners for *_, owners in self.known)
        left = [(*rest, [other for other in owners if other != owner]) for *rest, owners in self.known]
        self.known = [entry for entry in left if entry[3]]
        return held

    def forget_old(self) -> None:
        self.known = [entry for entry in self.known if entry[2] > self.now - self.seconds]

    def state(self) -> tuple[KnownRecord, ...]:
        return tuple(
            KnownRecord(key, record(label), seen, tuple(owners))
            for key, label, seen, owners in self.known
            if label is not None
        )


steps = st.lists(
    st.tuples(
        st.sampled_from(["record", "adopt", "release", "wait"]),
        st.integers(0, 4),
        st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True),
    ),
    max_size=40,
)


@settings(max_examples=200)
@given(steps)
def test_records_equal_a_plain_list_and_a_restored_list(sequence: list[tuple[str, int, list[int]]]):
    known, clock = store(limit=4, seconds=6)
    model = Model(4, 6)
    for step, number, names in sequence:
        owner, messages = f"r{number}", [message(str(name)) for name in names]
        if step == "record":
            known.record(messages[0].key, record(names[0] + 1), owner)
            model.hold(messages[0].key, names[0] + 1, owner)
            model.trim()
        elif step == "adopt":
            known.adopt(known.view(messages).known, owner)
            model.forget_old()
            for one in messages:
                model.hold(one.key, None, owner)
            model.trim()
        elif step == "release":
            assert known.release(owner) == model.release(owner)
        else:
            clock.advance(number)
            model.now += number
            known.forget_old()
            model.forget_old()
        known.check_integrity()
        assert len(known) == len(model.known)
        assert known.state() == model.state()
    restored, _ = store(limit=4)
    restored.restore(known.state())
    restored.check_integrity()
    assert restored.state() == known.state()


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 400), st.integers(0, 3)), max_size=30),
    st.integers(0, 30_000),
    st.integers(0, 30_000),
)
def test_messages_never_take_more_than_their_room(rendered, room, later):
    clock = ManualClock()
    known = Conversations(limit=8, seconds=20, clock=clock, room=room)
    for name, shown, documents in rendered:
        clock.advance(1)
        one = message(str(name))
        text = Given((), (), (), ("x" * shown,) * documents)
        wide = replace(record(1), pieces=((1, 0, shown),))
        known.record(one.key, wide, f"r{name}", text if documents else None)
        known.adopt(known.view([one, message("another's")]).known, "r")
        known.check_integrity()
    latest = [entry.key for entry in known.state()]
    known.bound(later)
    known.check_integrity()
    left = [entry.key for entry in known.state()]
    assert left == latest[len(latest) - len(left) :]  # the least recently seen went first
    known.bound(0)
    assert (len(known), known.size) == (0, 0)
