"""What every view is asked and told: what a view has to say itself, and what holds where it says nothing."""

from collections import Counter
from collections.abc import Sequence
from inspect import signature

import pytest

from contextpilot_core.cache import Wanted
from contextpilot_core.cache.estimate import CacheView
from contextpilot_core.cache.view import Located, View
from contextpilot_core.journal.view import ReplicatedView
from contextpilot_core.mirror.view import TruthView


class Least(View):
    """Nothing but what has to be said."""

    tokens = 0

    def __len__(self) -> int:
        return 0

    def holds(self, request_id: str) -> bool:
        return False

    def cached_blocks(self, path: Sequence[int]) -> int:
        return 0

    def longest(self, head: Sequence[int], wanted: Wanted) -> tuple[int, ...]:
        return ()

    def last_used(self, path: Sequence[int]) -> int:
        return 0

    def admit(self, path: Sequence[int], request_id: str | None = None) -> list[str]:
        return []

    def release(self, request_id: str) -> int | None:
        return None

    def references(self) -> Counter[int]:
        return Counter()

    def check_integrity(self) -> None:
        pass


def test_a_view_that_knows_of_no_server_says_so():
    view = Least()
    assert view.on_truth is False
    assert view.usual((1,), Wanted((2, 3), 9)) == ()
    assert view.record("r", 1, (b"key",), (0, 1)) is None
    view.learn("r", Located((1,), (b"key",), (1,)))


@pytest.mark.parametrize("name", sorted(View.__abstractmethods__))
def test_a_view_has_to_answer_for_itself(name: str):
    without = type("Without", (Least,), {name: getattr(View, name)})
    with pytest.raises(TypeError, match=name):
        without()


@pytest.mark.parametrize("kind", [CacheView, TruthView, ReplicatedView])
def test_all_views_are_asked_alike(kind: type[View]):
    assert issubclass(kind, View)
    for name in ("holds", "cached_blocks", "longest", "usual", "last_used", "admit", "release", "record", "learn"):
        assert signature(getattr(kind, name)).parameters.keys() == signature(getattr(View, name)).parameters.keys()
