"""The demo as a person runs it: a process of its own, the real model, or a server that somebody else runs."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import require, require_local_model
from tests.integrations import command_line, console
from tests.integrations.chat_server import GOOD_USAGE, ChatServer, breaking_off, chat_server, good, refusing
from tests.integrations.hostile_json import BROKEN, VALUES, one_line

for module in ("typer", "rich", "rank_bm25", "openai"):
    require(module)


def demo(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return console.run("demo", "--out", str(folder / "out"), *arguments, timeout=1800)


def figures(folder: Path) -> dict[str, dict[str, dict]]:
    return json.loads((folder / "out" / "report.json").read_text("utf-8"))


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    for name in ("tea", "coffee", "cocoa"):
        text = f"# Brewing {name}\n\n{name} needs water and a cup.\n\n# Serving {name}\n\nServe {name} with milk."
        (folder / f"{name}.md").write_text(text, "utf-8")
    return folder


def test_quick_demo_with_the_real_model(tmp_path: Path) -> None:
    require_local_model()
    done = demo("--quick", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    report = figures(tmp_path)
    assert {job: list(arms) for job, arms in report.items()} == {
        "batch": ["plain", "contextpilot"],
        "chat": ["plain", "plain_append_only", "contextpilot"],
    }
    for job, requests in (("batch", 6), ("chat", 3)):
        for arm in report[job].values():
            assert arm["requests"] == len(arm["answers"]) == requests
            assert all(arm["answers"])
            assert arm["prompt_tokens"] == arm["cached_tokens"] + arm["prefilled_tokens"]
            assert arm["ttft_ms_median"] > 0
    plain, ours = report["batch"]["plain"], report["batch"]["contextpilot"]
    assert ours["cached_tokens"] >= 2 * plain["cached_tokens"]
    assert ours["prefilled_tokens"] < plain["prefilled_tokens"]
    assert report["chat"]["contextpilot"]["prefilled_tokens"] < report["chat"]["plain"]["prefilled_tokens"]
    assert "ContextPilot" in (tmp_path / "out" / "report.html").read_text("utf-8")


def test_own_documents_on_a_server_that_says_nothing_about_its_cache(tmp_path: Path, docs: Path) -> None:
    with chat_server() as server:
        server.script = [good("An answer.", usage={**GOOD_USAGE, "prompt_tokens_details": None})]
        done = demo("--quick", "--docs", str(docs), "--base-url", server.base_url, "--model", "m", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "unknown" in done.stdout
    report = figures(tmp_path)
    for arm in (*report["batch"].values(), *report["chat"].values()):
        assert arm["prompt_tokens"] == 100 * arm["requests"]
        assert arm["cached_tokens"] is arm["prefilled_tokens"] is None
        assert set(arm["answers"]) == {"An answer."}
    beginnings = {tuple(body["messages"][0]["content"].split()[:2]) for body in server.requests[1:]}
    assert len(beginnings) == 5, "every arm starts its prompts in a way of its own"


def test_a_server_that_refuses_to_report_usage_is_asked_without(tmp_path: Path, docs: Path) -> None:
    with chat_server() as server:
        server.script = [refusing(400), good("An answer.")]
        done = demo("--quick", "--docs", str(docs), "--base-url", server.base_url, "--model", "m", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert figures(tmp_path)["batch"]["plain"]["prompt_tokens"] is None


def test_own_questions_one_a_line(tmp_path: Path, docs: Path) -> None:
    (tmp_path / "q.txt").write_text("How do I brew tea?\nHow do I serve tea?\n", "utf-8")
    arguments = ["--docs", str(docs), "--questions", str(tmp_path / "q.txt"), "--model", "m", "--base-url"]
    with chat_server() as server:
        done = demo(*arguments, server.base_url, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert figures(tmp_path)["batch"]["plain"]["requests"] == 2
    assert "How do I brew tea?" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--base-url", "http://127.0.0.1:9/v1", "--model", "m"], ["http://127.0.0.1:9/v1", "start the server"]),
        (["--base-url", "http://127.0.0.1:9/v1"], ["http://127.0.0.1:9/v1", "start the server"]),
        (["--model", "m"], ["--model m", "--base-url"]),
        (["--docs", "/no/such/folder"], ["/no/such/folder", "no such folder"]),
        (["--questions", "/no/such/file"], ["/no/such/file", "give a .json or .txt file"]),
    ],
    ids=["unreachable", "unreachable, no model", "model alone", "no folder", "no questions"],
)
def test_wrong_options_end_with_one_line(tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    done = demo(*arguments, folder=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert all(word in done.stderr for word in words)
    assert not (tmp_path / "out").exists()


def test_without_the_search_library_the_extra_is_named(tmp_path: Path) -> None:
    done = console.run("demo", "--out", str(tmp_path / "out"), before="import sys; sys.modules['rank_bm25'] = None")
    assert done.returncode == 2
    assert 'pip install "contextpilot-rag[demo]"' in done.stderr


BANK = '{"batch": [{"topic": "t", "questions": ["q?"]}], "chat": [{"topic": "t", "turns": ["q?"]}]}'
PLACES = {
    "a file": "VALUE",
    "batch": '{"batch": VALUE, "chat": [{"topic": "t", "turns": ["q?"]}]}',
    "chat": '{"chat": VALUE, "batch": [{"topic": "t", "questions": ["q?"]}]}',
    "a topic": BANK.replace('[{"topic": "t", "turns"', '[VALUE, {"topic": "t", "turns"'),
    "its name": BANK.replace('"t", "turns"', 'VALUE, "turns"'),
    "questions": BANK.replace('"questions": ["q?"]', '"questions": VALUE'),
    "turns": BANK.replace('"turns": ["q?"]', '"turns": VALUE'),
    "a turn": BANK.replace('"turns": ["q?"]', '"turns": ["q?", VALUE]'),
}


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server() as running:
        running.script = [good("An answer.")]
        yield running


def quick(server: ChatServer, docs: Path, *arguments: str, out: Path | None = None) -> command_line.Done:
    fixed = ["--quick", "--docs", str(docs), "--base-url", server.base_url, "--model", "m"]
    return command_line.run("demo", *fixed, "--out", str(out or docs.with_name("out")), *arguments)


@pytest.mark.parametrize("place", PLACES)
def test_whatever_stands_in_the_questions_ends_in_one_line(server: ChatServer, docs: Path, place: str) -> None:
    path = docs.with_name("q.json")
    for value in VALUES:
        path.write_text(PLACES[place].replace("VALUE", value))
        one_line(quick(server, docs, "--questions", str(path)))


def test_files_that_are_none_end_in_one_line(server: ChatServer, docs: Path) -> None:
    for content in BROKEN.values():
        docs.with_name("q.json").write_bytes(content)
        assert one_line(quick(server, docs, "--questions", str(docs.with_name("q.json"))))
    docs.with_name("q.txt").write_bytes(b"secr\xe9t?\n")
    for path in (docs.with_name("q.txt"), "/dev/zero", docs, docs / "absent", "x" * 5_000, "two\nlines\x1b[31m"):
        done = quick(server, docs, "--questions", str(path))
        assert one_line(done) and "secr" not in done.stderr
    assert server.requests == []


def test_a_folder_that_cannot_be_written_is_found_before_the_run(server: ChatServer, docs: Path) -> None:
    (docs.parent / "file").touch()
    (docs.parent / "taken" / "report.html").mkdir(parents=True)
    for out in ("file", "file/below", "taken", "x" * 300):
        server.requests.clear()
        done = quick(server, docs, out=docs.parent / out)
        assert one_line(done) and "--out" in done.stderr
        assert len(server.requests) == 1  # the greeting
    assert one_line(quick(server, docs, out=Path("/dev/full"))) and one_line(
        quick(server, docs, out=Path("/proc/none"))
    )


@pytest.mark.parametrize("answered", [0, 1, 3, 13], ids=["greeting", "first question", "later", "chat"])
def test_a_server_that_breaks_off_ends_in_one_line_and_no_report(server: ChatServer, docs: Path, answered: int) -> None:
    server.script = [*[good("An answer.")] * answered, breaking_off("secret")]
    done = quick(server, docs)
    assert one_line(done) and "does not answer as an OpenAI-compatible endpoint" in done.stderr
    assert "secret" not in done.stdout + done.stderr
    assert not (docs.with_name("out") / "report.json").exists()


def test_a_password_in_the_url_stands_nowhere(server: ChatServer, docs: Path) -> None:
    server.base_url = server.base_url.replace("//", "//me:secret@")
    done = quick(server, docs, "--api-key", "sk-secret")
    assert done.exit_code == 0
    written = "".join(path.read_text("utf-8") for path in docs.with_name("out").iterdir())
    assert "secret" not in done.stdout + done.stderr + written
    assert {path.stat().st_mode & 0o777 for path in docs.with_name("out").iterdir()} == {0o600}
