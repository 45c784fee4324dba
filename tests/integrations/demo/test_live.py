"""The tables on the terminal, as text."""

from dataclasses import replace
from io import StringIO

import pytest

from contextpilot_integrations.demo.results import Run
from tests.conftest import require
from tests.integrations.demo_runs import answer

require("rich")

from rich.console import Console  # noqa: E402

from contextpilot_integrations.demo.live import JobTable, shown, summary  # noqa: E402

TWO = ("plain", "contextpilot")
THREE = ("plain", "plain_append_only", "contextpilot")


def text_of(renderable: object, width: int = 100) -> str:
    console = Console(file=StringIO(), width=width)
    console.print(renderable)
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("arms", [TWO, THREE])
def test_the_table_fills_while_the_arms_run(arms: tuple[str, ...]) -> None:
    table = JobTable("Batch", ["What is tea?", "What is [salt]?"], arms, "Q")
    empty = text_of(table)
    assert empty.count("·") == 2 * 2 * len(arms)
    assert "What is tea?" in empty and "What is [salt]?" in empty, "no question is markup"
    table.start("contextpilot")
    assert "ContextPilot: 0 of 2 answered" in text_of(table)
    table.add("contextpilot", answer(1, cached=60, ttft=1250.0))
    filled = text_of(table)
    assert "ContextPilot: 1 of 2 answered" in filled
    assert "60/100" in filled and "1.25 s" in filled
    assert filled.count("·") == empty.count("·") - 2
    table.start(None)
    assert "answered" not in text_of(table)


def test_an_answer_stands_in_the_row_of_its_question_and_the_place_of_its_arm() -> None:
    table = JobTable("Batch", ["first", "second"], TWO, "Q")
    table.add("contextpilot", answer(1, cached=60))
    table.add("plain", answer(0, cached=7))
    first, second = (line.split() for line in text_of(table).splitlines() if "first" in line or "second" in line)
    assert first == ["1", "first", "7/100", "500", "ms", "·", "·"]
    assert second == ["2", "second", "·", "·", "60/100", "500", "ms"]


def test_what_the_server_does_not_say_is_unknown() -> None:
    table = JobTable("Batch", ["first"], TWO, "Q")
    table.add("plain", answer(0, cached=None, ttft=None))
    table.add("contextpilot", replace(answer(0, cached=None), prompt_tokens=None))
    (line,) = (line.split() for line in text_of(table).splitlines() if "first" in line)
    assert line == ["1", "first", "unknown/100", "unknown", "unknown", "500", "ms"]


def test_whoever_watches_is_told_of_every_change() -> None:
    table, told = JobTable("Batch", ["first"], TWO, "Q"), list[str]()
    table.changed = lambda: told.append(text_of(table))
    table.start("plain")
    table.add("plain", answer(0))
    table.start(None)
    assert [text.count("answered") for text in told] == [1, 1, 0]
    assert "0 of 1" in told[0] and "1 of 1" in told[1] and "30/100" in told[2]


def test_where_there_is_no_terminal_the_table_is_shown_once_and_full() -> None:
    console = Console(file=StringIO(), width=100)
    table = JobTable("Batch", ["first"], TWO, "Q")
    with shown(table, console):
        for arm in TWO:
            table.start(arm)
            table.add(arm, answer(0))
        assert console.file.getvalue() == ""  # type: ignore[attr-defined]
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert printed.count("Batch") == printed.count("first") == 1
    assert printed.count("30/100") == 2 and "answered" not in printed


def test_the_summary_holds_every_arm_and_the_change_against_plain(run: Run) -> None:
    lines = [line.split() for line in text_of(summary(run), width=80).splitlines()]
    assert ["batch", "plain", "300", "90", "30.0", "%", "210", "500", "ms"] in lines
    assert ["batch", "ContextPilot", "300", "120", "40.0", "%", "180", "−14", "%", "500", "ms"] in lines
    assert ["chat", "append-only", "100", "30", "30.0", "%", "70", "+0", "%", "500", "ms"] in lines
    assert sum(line[:1] in (["batch"], ["chat"]) for line in lines) == 5
