"""The self-contained ``report.html``: every section is a function of the run; all text is escaped."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryFile

from contextpilot_core import ConfigError
from contextpilot_core.files import private_folder, write_private
from contextpilot_integrations.demo.page.charts import Bar, Series, columns, stacked_bars
from contextpilot_integrations.demo.page.prompts import Piece, most_telling, pieces, prompt_text, shared_prefix
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

FIGURES, PAGE = "report.json", "report.html"
SHOWN_CHARACTERS = 110


def report_html(run: Run) -> str:
    """Return the whole page."""
    style = files(__package__).joinpath("report.css").read_text("utf-8")
    sections: Sequence[Callable[[Run], str]] = (_head, _cards, _cache, _times, _prompts, _answers, _settings)
    body = "\n".join(section(run) for section in sections)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>ContextPilot demo</title><style>\n{style}</style></head>\n"
        f"<body><main>\n{body}\n</main></body></html>\n"
    )


def _head(run: Run) -> str:
    batch, chat = _counted(len(run.batch[0].sent), "question"), _counted(len(run.chat[0].sent), "turn")
    return (
        "<h1>The same questions, with and without context reuse</h1>"
        f'<p class="soft">{batch} of several users and a chat of {chat} over {escape(run.documents)}, '
        f"answered by {escape(run.model)}. Every arm sends the same questions with the same retrieved documents and "
        "finds nothing of another arm in the cache; token counts are the server's own.</p>"
    )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _cards(run: Run) -> str:
    plain, ours = run.batch[0], run.batch[-1]
    chat_plain, chat_ours = run.chat[0], run.chat[-1]
    cards = (
        _card(
            "Batch: read from the cache",
            percent(share(ours.cached_tokens, ours.prompt_tokens)),
            f"of the prompt tokens; plain {percent(share(plain.cached_tokens, plain.prompt_tokens))}",
        ),
        _card("Batch: tokens to prefill", *_drop(plain.prefilled_tokens, ours.prefilled_tokens)),
        _card(
            "Batch: time to first token",
            milliseconds(ours.ttft_ms_median),
            f"median; plain {milliseconds(plain.ttft_ms_median)}. Other programs disturb it, unlike token counts",
        ),
        _card("Chat: tokens to prefill", *_drop(chat_plain.prefilled_tokens, chat_ours.prefilled_tokens)),
    )
    return f'<div class="cards">{"".join(cards)}</div>'


def _drop(before: int | None, after: int | None) -> tuple[str, str]:
    return change(before, after), f"{tokens(before)} → {tokens(after)}"


def _card(name: str, figure: str, detail: str) -> str:
    return f'<div class="card"><span>{escape(name)}</span><b>{escape(figure)}</b><span>{escape(detail)}</span></div>'


def _cache(run: Run) -> str:
    legend = _legend((("cached", "read from the prefix cache"), ("prefilled", "prefilled (computed)")))
    return (
        "<section><h2>Prompt tokens: cached and prefilled</h2>"
        f'<p class="soft">A server computes only what its prefix cache does not hold.</p>{legend}'
        f"<h3>Batch</h3>{_bars(run.batch, 'Batch: cached and prefilled tokens per arm')}"
        f"<h3>Chat</h3>{_bars(run.chat, 'Chat: cached and prefilled tokens per arm')}</section>"
    )


def _bars(arms: Sequence[Arm], title: str) -> str:
    bars = [Bar(label=ARM_NAMES[arm.name], cached=arm.cached_tokens, prefilled=arm.prefilled_tokens) for arm in arms]
    return f"<figure>{stacked_bars(bars, title)}</figure>"


def _times(run: Run) -> str:
    return (
        "<section><h2>Time to first token, request by request</h2>"
        '<p class="soft">Measured on the stream. Another busy program disturbs it; cached tokens it does not.</p>'
        f"<h3>Batch, by question</h3>{_columns(run.batch, 'Q', 'Batch: time to first token per question')}"
        f"<h3>Chat, by turn</h3>{_columns(run.chat, 'turn ', 'Chat: time to first token per turn')}</section>"
    )


def _columns(arms: Sequence[Arm], prefix: str, title: str) -> str:
    groups = [f"{prefix}{answer.number + 1}" for answer in arms[0].answers]
    series = [
        Series(name=ARM_NAMES[arm.name], style=arm.name, values=[_seconds(answer) for answer in arm.answers])
        for arm in arms
    ]
    legend = _legend([(arm.name, ARM_NAMES[arm.name]) for arm in arms])
    return f"{legend}<figure>{columns(groups, series, 's', title)}</figure>"


def _seconds(answer: Answer) -> float | None:
    return None if answer.ttft_ms is None else answer.ttft_ms / 1000


def _prompts(run: Run) -> str:
    plain, ours = most_telling(run.batch[0], run.batch[-1])
    sides = _prompt(run.batch[0], plain) + _prompt(run.batch[-1], ours)
    legend = _legend((("shared", "same beginning as a prompt sent before it: a prefix cache holds it"),))
    return (
        f"<section><h2>One prompt, before and after</h2><p>Q{plain.number + 1}: {escape(plain.question)}</p>"
        f'{legend}<div class="pair">{sides}</div></section>'
    )


def _prompt(arm: Arm, answer: Answer) -> str:
    text, shared = prompt_text(answer.messages), shared_prefix(arm, answer)
    shown = "".join(_piece(piece) for piece in pieces(text, shared))
    figures = f"{tokens(answer.cached_tokens)} of {tokens(answer.prompt_tokens)} tokens cached"
    return (
        f"<div><h3>{escape(ARM_NAMES[arm.name])}: {figures}, first token after {milliseconds(answer.ttft_ms)}</h3>"
        f"{shown}<details><summary>The prompt in full</summary>"
        f"<pre><mark>{escape(text[:shared])}</mark>{escape(text[shared:])}</pre></details></div>"
    )


def _piece(piece: Piece) -> str:
    style, part = "piece", ""
    if piece.shared >= 1:
        style += " shared"
    elif piece.shared > 0:
        style, part = style + " partly", f' style="--part:{piece.shared:.0%}"'
    title, _, body = piece.text.partition("\n")
    if not piece.label:
        return f'<div class="{style}"{part}>{escape(piece.text)}</div>'
    body = " ".join(body.split())[:SHOWN_CHARACTERS]
    return f'<div class="{style}"{part}><b>{escape(piece.label)}</b>{escape(title)}<small>{escape(body)}…</small></div>'


def _answers(run: Run) -> str:
    return (
        "<section><h2>Questions and answers</h2>"
        '<p class="soft">A small model answers, cut after a few words. The answers stand side by side, to judge what '
        "the order of the documents does to them.</p>"
        f"<h3>Batch, in order of arrival</h3>{_table(run.batch)}<h3>Chat</h3>{_table(run.chat)}</section>"
    )


def _table(arms: Sequence[Arm]) -> str:
    heads = "".join(f"<th>{escape(ARM_NAMES[arm.name])}</th>" for arm in arms)
    rows = zip(*(arm.answers for arm in arms), strict=True)
    body = "".join(_row(row) for row in rows)
    return (
        f'<div class="scroll"><table><thead><tr><th class="number">#</th><th>Question</th>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _row(answers: Sequence[Answer]) -> str:
    first = answers[0]
    cells = "".join(
        f"<td>{escape(answer.text)}<small>{tokens(answer.cached_tokens)} of {tokens(answer.prompt_tokens)} cached, "
        f"{milliseconds(answer.ttft_ms)}</small></td>"
        for answer in answers
    )
    return f'<tr><td class="number">{first.number + 1}</td><td>{escape(first.question)}</td>{cells}</tr>'


def _settings(run: Run) -> str:
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in run.settings)
    return f'<section><h2>How this was measured</h2><div class="scroll"><table>{rows}</table></div></section>'


def _legend(entries: Sequence[tuple[str, str]]) -> str:
    marks = "".join(f'<span><i class="key-{escape(style)}"></i>{escape(text)}</span>' for style, text in entries)
    return f'<div class="legend">{marks}</div>'


def check_folder(folder: Path) -> None:
    """Make ``folder`` and see that both files can be written there, before a long run. Raises `ConfigError`."""
    with _written(folder):
        private_folder(folder)
        for name in (FIGURES, PAGE):
            if (folder / name).is_dir():
                raise IsADirectoryError(0, f"its {name} is a folder")
        with TemporaryFile(dir=folder):
            pass


def write_report(run: Run, folder: Path) -> tuple[Path, Path]:
    """Write both files into ``folder``, for their owner alone, and return their paths.

    ``folder`` is made when it does not exist. Raises `ConfigError` when it cannot be written.
    """
    figures, page = folder / FIGURES, folder / PAGE
    text = json.dumps(run.figures(), indent=2, ensure_ascii=False) + "\n"
    with _written(folder):
        private_folder(folder)
        write_private(figures, text.encode("utf-8", "backslashreplace"))  # half a character, as JSON escapes it
        write_private(page, report_html(run).encode("utf-8", "replace"))
    return figures, page


@contextmanager
def _written(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = f"{type(error).__name__}: {error.strerror}"
        raise ConfigError(f"--out {folder} cannot be written ({why}); name another folder for the report") from None
