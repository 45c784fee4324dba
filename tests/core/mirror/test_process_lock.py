"""The lock over a fork: free in the child, whoever held it, and what it guards is put right once."""

import threading
from contextlib import contextmanager

from contextpilot_core.mirror.process_lock import ProcessLock
from tests.forked import in_child


def locked():
    """Return a lock, and what it was told."""
    told = []
    return ProcessLock(told.append), told


def take(lock, told):
    for _ in range(2):
        with lock:
            pass
    return told


@contextmanager
def held_elsewhere(lock):
    """Let another thread hold the lock."""
    has, may_go = threading.Event(), threading.Event()

    def hold():
        with lock:
            has.set()
            may_go.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    has.wait()
    try:
        yield
    finally:
        may_go.set()
        thread.join()


def test_it_excludes_within_a_process():
    lock, seen = ProcessLock(lambda torn: None), []

    def other():
        with lock:
            seen.append("other")

    with lock, lock:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(0.05)
        seen.append("first")
    thread.join()
    assert seen == ["first", "other"]


def test_a_child_takes_it_although_a_thread_that_is_not_there_holds_it_and_is_told_once():
    lock, told = locked()
    with held_elsewhere(lock):
        assert in_child(lambda: take(lock, told)) == [True]
        assert in_child(lambda: in_child(lambda: take(lock, told))) == [True]
    assert take(lock, told) == []


def test_a_child_is_told_when_nothing_was_under_way():
    lock, told = locked()
    assert in_child(lambda: take(lock, told)) == [False]
    with lock:  # the thread that forks goes on in the child
        assert in_child(lambda: take(lock, told)) == [False]
    assert take(lock, told) == []


def test_a_thread_that_forks_inside_frees_it_on_both_sides():
    lock, told = locked()

    def child():
        lock.__exit__()
        with held_elsewhere(lock):
            return told

    lock.__enter__()
    assert in_child(child) == [False]
    lock.__exit__()
    with held_elsewhere(lock):
        pass


def test_a_child_of_a_child_that_used_it_is_told_again():
    lock, told = locked()

    def child():
        take(lock, told)
        return in_child(lambda: take(lock, told))

    with held_elsewhere(lock):
        assert in_child(child) == [True, False]


def test_the_threads_of_a_child_are_told_once():
    lock, told = locked()

    def child():
        threads = [threading.Thread(target=take, args=(lock, told)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return told

    with held_elsewhere(lock):
        assert in_child(child) == [True]


def test_an_error_inside_frees_it():
    lock, _ = locked()
    for _ in range(2):
        try:
            with lock:
                raise KeyError
        except KeyError:
            pass
    with held_elsewhere(lock):
        pass
