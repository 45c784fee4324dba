"""The lock over a fork: free in the child, whoever held it, and what it guards is put right once."""

import threading

from contextpilot_core.mirror.process_lock import ProcessLock
from tests.forked import in_child


def test_it_excludes_within_a_process():
    lock, seen = ProcessLock(lambda: None), []

    def other():
        with lock:
            seen.append("other")

    with lock:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(0.05)
        seen.append("first")
    thread.join()
    assert seen == ["first", "other"]


def test_a_child_takes_it_although_its_parent_holds_it_and_is_told_once():
    told = []
    lock = ProcessLock(lambda: told.append("forked"))

    def take():
        for _ in range(2):
            with lock:
                pass
        return told

    with lock:
        assert in_child(take) == ["forked"]
        assert in_child(lambda: in_child(take)) == ["forked"]
    assert take() == []


def test_a_child_of_a_child_that_used_it_is_told_again():
    told = []
    lock = ProcessLock(lambda: told.append("forked"))

    def take():
        with lock:
            return told

    def child():
        take()
        return in_child(take)

    assert in_child(child) == ["forked", "forked"]


def test_an_error_inside_frees_it():
    lock = ProcessLock(lambda: None)
    for _ in range(2):
        try:
            with lock:
                raise KeyError
        except KeyError:
            pass
