"""The nearest earlier prompt, against a comparison with all of them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core.diagnose.nearest import Earlier
from contextpilot_core.diagnose.records import Part, common_parts

parts = st.builds(Part, st.sampled_from(["user", "tool", ""]), st.text(st.sampled_from("ab"), max_size=5))
prompts = st.lists(st.lists(parts, max_size=4), min_size=1, max_size=12)


def plainly(earlier: list[list[Part]], later: list[Part]) -> int:
    return max(range(len(earlier)), key=lambda number: (common_parts(earlier[number], later), number))


def check(given_prompts: list[list[Part]]) -> None:
    index = Earlier()
    for number, later in enumerate(given_prompts):
        if number:
            assert index.nearest(later) == plainly(given_prompts[:number], later)
        index.add(later, number)


@settings(max_examples=1_000)
@given(prompts)
def test_the_nearest_is_the_one_that_shares_most_and_of_equals_the_latest(given_prompts: list[list[Part]]) -> None:
    check(given_prompts)


@pytest.mark.parametrize(
    "texts", [["abc", "ab", "abd", "abc", "", "x", "abcd", "ab"], ["a" * 300, "a" * 299 + "b"] * 3]
)
@pytest.mark.parametrize("head", [[], [Part("system", "s")]])
def test_texts_that_end_inside_others(texts: list[str], head: list[Part]) -> None:
    check([[*head, Part("user", text)] for text in texts])
    check([[*head, Part("user", text), Part("user", text[:2])] for text in texts])
