"""When predictions stay too high, the view is wrong."""

from hypothesis import given
from hypothesis import strategies as st

from contextpilot_core.mirror.drift import DriftMonitor


def feed(monitor, differences, tolerance=16):
    return [monitor.add(100 + difference, 100, tolerance=tolerance) for difference in differences]


def test_steady_overestimates_raise_the_alarm_and_good_predictions_lower_it():
    monitor = DriftMonitor(window=20)
    changes = feed(monitor, [50] * 10)
    assert changes == [False] * 9 + [True]
    assert monitor.alarm
    assert monitor.mean == 50
    changes = feed(monitor, [0] * 20)
    assert changes == [False] * 19 + [True]
    assert not monitor.alarm
    assert monitor.mean == 0


def test_single_overestimates_and_better_service_than_predicted_are_no_alarm():
    monitor = DriftMonitor(window=20)
    feed(monitor, [50, 0, 0, 0, 50, -400, -400, 16, 0, 0] * 5)
    assert not monitor.alarm


def test_a_view_that_misses_nearly_everything_is_wrong_too():
    monitor = DriftMonitor(window=20)
    changes = [monitor.add(0, 500, tolerance=16) for _ in range(18)]
    assert changes == [False] * 17 + [True]
    assert monitor.mean == -500
    for _ in range(20):
        monitor.add(480, 500, tolerance=16)
    assert not monitor.alarm


def test_nothing_is_known_before_the_first_request():
    assert DriftMonitor().mean is None


@given(st.lists(st.integers(-50, 100), max_size=120))
def test_the_alarm_changes_only_on_evidence(differences):
    monitor = DriftMonitor(window=10)
    for number, difference in enumerate(differences, start=1):
        changed = monitor.add(100 + difference, 100, tolerance=16)
        recent = [d > 16 for d in differences[max(0, number - 10) : number]]
        if changed and monitor.alarm:
            assert 2 * sum(recent) > len(recent) or sum(recent[-5:]) > 2
        if changed and not monitor.alarm:
            assert sum(recent) <= 1
