"""The tables on the terminal: one per job, filled while the arms run, and a summary at the end."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from contextpilot_integrations.demo.results import (
    ARM_NAMES,
    Answer,
    Arm,
    Run,
    change,
    milliseconds,
    percent,
    share,
    tokens,
)


class JobTable:
    """A table of one job: a row per question, and per arm the cached tokens and the time to first token.

    ``changed`` is called after every change.
    """

    def __init__(self, title: str, questions: Sequence[str], arms: Sequence[str], unit: str) -> None:
        """Prepare empty rows; ``unit`` heads the column of numbers."""
        self._title, self._questions, self._arms, self._unit = title, tuple(questions), tuple(arms), unit
        self._answers = dict[tuple[str, int], Answer]()
        self._running: str | None = None
        self.changed: Callable[[], object] = lambda: None

    def start(self, arm: str | None) -> None:
        """Say which arm runs from now on; None: the last one has ended."""
        self._running = arm
        self.changed()

    def add(self, arm: str, answer: Answer) -> None:
        """Fill in one answer."""
        self._answers[arm, answer.number] = answer
        self.changed()

    def __rich__(self) -> Group:
        """Render the table and a line that says what is going on."""
        table = _table(self._title)
        table.add_column(self._unit, justify="right", style="dim")
        table.add_column("question", ratio=1, no_wrap=len(self._arms) < 3, overflow="ellipsis")
        (self._fill_wide if len(self._arms) < 3 else self._fill_stacked)(table)
        return Group(table, Text(self._status(), style="dim"))

    def _fill_wide(self, table: Table) -> None:
        """Give every arm two columns."""
        for arm in self._arms:
            table.add_column(f"{ARM_NAMES[arm]}\ncached", justify="right", no_wrap=True)
            table.add_column("\nTTFT", justify="right", no_wrap=True)
        for number, question in enumerate(self._questions):
            cells = [cell for arm in self._arms for cell in self._cells(arm, number)]
            table.add_row(str(number + 1), Text(question), *cells)

    def _fill_stacked(self, table: Table) -> None:
        """Give every arm a line of its own: more than two do not fit side by side."""
        table.add_column("arm", no_wrap=True)
        for name in ("cached", "TTFT"):
            table.add_column(name, justify="right", no_wrap=True)
        line = Text("\n")
        for number, question in enumerate(self._questions):
            cached, times = zip(*(self._cells(arm, number) for arm in self._arms), strict=True)
            names = "\n".join(ARM_NAMES[arm] for arm in self._arms)
            table.add_row(str(number + 1), Text(question), names, line.join(cached), line.join(times), end_section=True)

    def _cells(self, arm: str, number: int) -> tuple[Text, Text]:
        answer = self._answers.get((arm, number))
        if answer is None:
            return Text("·", style="dim"), Text("·", style="dim")
        style = "bold green" if arm == "contextpilot" else ""
        cached = tokens(answer.cached_tokens)
        if answer.prompt_tokens is not None:
            cached += f"/{tokens(answer.prompt_tokens)}"
        return Text(cached, style=style), Text(milliseconds(answer.ttft_ms), style=style)

    def _status(self) -> str:
        if self._running is None:
            return ""
        done = sum(arm == self._running for arm, _ in self._answers)
        return f"{ARM_NAMES[self._running]}: {done} of {len(self._questions)} answered"


@contextmanager
def shown(table: JobTable, console: Console) -> Iterator[None]:
    """Keep ``table`` on the terminal up to date for as long as the block runs; elsewhere show it once, at the end."""
    # Drawn on changes only: a drawing thread would take time from the model on a small machine.
    with Live(table, console=console, auto_refresh=False, vertical_overflow="visible") as live:
        table.changed = live.refresh
        yield
        table.start(None)


def summary(run: Run) -> Table:
    """Return the totals of every arm, and what changed against "plain"."""
    table = _table("Summary")
    table.caption = "Token counts are the server's; times are disturbed by whatever else the machine does."
    table.padding = (0, 1, 0, 0)  # eight columns have to fit into 80 characters
    table.add_column("job", no_wrap=True)
    table.add_column("arm", no_wrap=True)
    for name in ("prompt", "cached", "share", "prefilled", "vs plain", "TTFT p50"):
        table.add_column(name, justify="right", no_wrap=True)
    for job, arms in (("batch", run.batch), ("chat", run.chat)):
        for arm in arms:
            table.add_row(job, *_totals(arm, arms[0]), style="bold green" if arm.name == "contextpilot" else "")
        table.add_section()
    return table


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", expand=True, box=box.SIMPLE_HEAD)


def _totals(arm: Arm, plain: Arm) -> tuple[str, ...]:
    return (
        ARM_NAMES[arm.name],
        tokens(arm.prompt_tokens),
        tokens(arm.cached_tokens),
        percent(share(arm.cached_tokens, arm.prompt_tokens)),
        tokens(arm.prefilled_tokens),
        "" if arm is plain else change(plain.prefilled_tokens, arm.prefilled_tokens),
        milliseconds(arm.ttft_ms_median),
    )
