"""``contextpilot-rag gate`` with files that hold anything: a line that says why, and never a traceback."""

import json

import pytest

from tests.conftest import require
from tests.integrations import gate_servers as servers
from tests.integrations.chat_server import chat_server
from tests.integrations.cli.test_gate import run
from tests.integrations.hostile_json import BROKEN, VALUES, one_line

require("openai")


@pytest.fixture
def server():
    with chat_server() as running:
        yield running


@pytest.fixture
def questions(tmp_path):
    return servers.write(tmp_path / "questions.jsonl", servers.moved_questions())


QUESTION = '{"query": "Q", "documents": ["secret"], "answers": ["A"], "earlier": []}'
PLACES = {
    "a line": "VALUE",
    "query": QUESTION.replace('"Q"', "VALUE"),
    "documents": QUESTION.replace('["secret"]', "VALUE"),
    "a document": QUESTION.replace('"secret"', "VALUE"),
    "answers": QUESTION.replace('["A"]', "VALUE"),
    "an answer": QUESTION.replace('"A"', "VALUE"),
    "earlier": QUESTION.replace("[]", "VALUE"),
    "a turn": QUESTION.replace("[]", "[VALUE]"),
    "a turn's query": QUESTION.replace("[]", '[{"query": VALUE, "documents": ["D"], "answer": "A"}]'),
    "a turn's documents": QUESTION.replace("[]", '[{"query": "Q", "documents": VALUE, "answer": "A"}]'),
    "a turn's answer": QUESTION.replace("[]", '[{"query": "Q", "documents": ["D"], "answer": VALUE}]'),
    "cluster": QUESTION.replace("}", ', "cluster": VALUE}'),
}


@pytest.mark.parametrize("place", PLACES)
def test_whatever_stands_in_a_question_ends_in_one_line(tmp_path, place):
    for value in VALUES:
        (tmp_path / "q.jsonl").write_text(PLACES[place].replace("VALUE", value))
        done = run("http://127.0.0.1:9/v1", tmp_path / "q.jsonl")  # one question is too few to be asked
        assert one_line(done) and "secret" not in done.stderr


SOME = ("null", "5", "true", "NaN", "9" * 400, '"abc"', "[]", '{"a": 5}', "[" * 99 + "]" * 99)
SETTINGS = '{"settings": {"model": "m", "metric": "f1", "answer_tokens": 64}}\n'
SCORES = {
    "a line": "VALUE\n",
    "settings": '{"settings": VALUE}\n',
    "a setting": SETTINGS.replace("64", "VALUE"),
    "a record": f"{SETTINGS}VALUE\n",
    "key": SETTINGS + '{"key": VALUE, "group": "order", "scores": {}}\n',
    "group": SETTINGS + '{"key": "KEY", "group": VALUE, "scores": {ARMS}}\n',
    "scores": SETTINGS + '{"key": "KEY", "group": "order", "scores": VALUE}\n',
    "an arm": SETTINGS + '{"key": "KEY", "group": "order", "scores": {"by rank": VALUE}}\n',
    "a score": SETTINGS + '{"key": "KEY", "group": "order", "scores": {ARMS}}\n',
}


@pytest.mark.parametrize("place", SCORES)
def test_whatever_stands_in_the_scores_ends_in_one_line_or_is_asked_again(server, questions, place):
    servers.write(questions, servers.moved_questions(31))
    server.script = [servers.speaking(servers.reads_everything)]
    scores = questions.with_name("scores.jsonl")
    assert run(server.base_url, questions).exit_code == 1
    record = json.loads(scores.read_text().splitlines()[-1])
    for value in SOME:
        arms = ", ".join(f'"{arm}": {{"f1": {value if place == "a score" else 1.0}}}' for arm in record["scores"])
        scores.write_text(SCORES[place].replace("ARMS", arms).replace("KEY", record["key"]).replace("VALUE", value))
        done = run(server.base_url, questions, "--metric", "answers")
        assert one_line(done) or "of 31 questions changed" in done.stdout


def test_files_that_are_none_end_in_one_line(server, questions):
    server.script = [servers.speaking(servers.reads_everything)]
    odd = questions.with_name("odd.jsonl")
    for content in BROKEN.values():
        odd.write_bytes(content + b"\n")
        for done in (run(server.base_url, odd), run(server.base_url, questions, resume=odd)):
            assert one_line(done) and "secret" not in done.stderr
        assert odd.read_bytes() == content + b"\n"
    for path in ("/dev/full", "/dev/zero", "/dev/null", "x" * 5_000, "/proc/none/x", "two\nlines\x1b[31m/"):
        assert one_line(run(server.base_url, path, resume=odd.with_name("scores.jsonl")))
        if "lines" not in path:
            assert one_line(run(server.base_url, questions, resume=path))


@pytest.mark.parametrize(
    "url", ["http://[::1/v1", "http://host\n/v1", "", "http://\ud83d/v1", "http://me:secret@[::1/v1"]
)
def test_what_is_no_url_ends_in_one_line(questions, url):
    done = run(url, questions)
    assert one_line(done) and "secret" not in done.stderr


def test_a_server_without_tokens_is_scored_by_its_answers(server, questions):
    def without_tokens(exchange):
        if exchange.handler.path == "/tokenize":
            return servers.answer(exchange, {"tokens": []})
        servers.speaking(servers.reads_everything)(exchange)

    server.script = [without_tokens]
    assert "Order: safe to reorder" in run(server.base_url, questions).stdout
