"""``contextpilot-rag gate`` before servers whose model is known: what it must say, and that it can be continued."""

import json

import pytest

from tests.conftest import require
from tests.integrations import command_line
from tests.integrations import gate_servers as servers
from tests.integrations.chat_server import chat_server, refusing


@pytest.fixture
def server():
    require("openai")
    with chat_server() as running:
        yield running


@pytest.fixture
def questions(tmp_path):
    return servers.write(tmp_path / "questions.jsonl", servers.moved_questions())


def run(base_url, questions, *options, model="m", resume=None):
    resume = resume or questions.with_name("scores.jsonl")
    fixed = ["--base-url", base_url, "--questions", str(questions), "--resume", str(resume)]
    fixed += ["--model", model] if model else []
    return command_line.run("gate", *fixed, *options)


@pytest.mark.parametrize(
    ("reader", "verdict", "status"),
    [
        (servers.reads_everything, "safe to reorder", 0),
        (servers.follows_the_note, "keep annotation", 0),
        (servers.reads_the_first, "do not reorder", 1),
        (servers.ignores_documents, "not shown", 1),
    ],
)
def test_the_verdict_is_true_of_the_model(server, questions, reader, verdict, status):
    server.script = [servers.speaking(reader)]
    done = run(server.base_url, questions, "--json", "--note", "compact")
    assert (done.exit_code, done.stderr) == (status, "")
    found = json.loads(done.stdout)["order"]
    assert found["verdict"] == verdict
    assert (found["questions"], found["changed"]) == (servers.CODES, servers.CODES - 1)
    assert found["judgement"]["metric"] == "f1" and found["others"][0]["metric"] == "exact"


def test_the_table_has_every_arm_its_interval_and_the_largest_loss(server, questions):
    server.script = [servers.speaking(servers.reads_the_first)]
    done = run(server.base_url, questions)
    lines = {line.split("  ")[0].strip(): line for line in done.stdout.splitlines() if line.strip()}
    assert lines["reordered"].split()[2:] == ["-1.000", "(-1.000", "to", "-1.000)", "1.000", "lost"]
    assert lines["note alone"].split()[3:] == ["+0.000", "(+0.000", "to", "+0.000)", "0.000", "kept"]
    assert f"Order: do not reorder. {servers.CODES - 1} of {servers.CODES} questions changed." in done.stdout
    assert '"reordered" may lose 1.000 at most, 100.0% of what the documents bring; the margin is 5.0%.' in done.stdout


def test_a_second_run_asks_nothing_again_and_says_the_same(server, questions):
    server.script = [servers.speaking(servers.reads_everything)]
    first = run(server.base_url, questions, "--json")
    asked = len(server.requests)
    second = run(server.base_url, questions, "--json")
    assert second.stdout == first.stdout
    assert len(server.requests) == asked + 2  # it learns again what the server offers


def test_a_run_that_broke_off_continues(server, questions):
    server.script = [servers.speaking(servers.reads_everything)]
    whole = run(server.base_url, questions, "--json")
    scores = questions.with_name("scores.jsonl")
    kept = scores.read_text().splitlines(keepends=True)
    scores.write_text("".join(kept[:11]) + kept[11][:20])
    server.requests.clear()
    again = run(server.base_url, questions, "--json")
    assert again.stdout == whole.stdout
    assert len(server.requests) == 2 + 8 * (servers.CODES - 1 - 10)
    assert scores.read_text().splitlines(keepends=True) == kept


def test_a_server_that_refuses_ends_the_run_and_what_was_scored_is_kept(server, questions):
    speak = servers.speaking(servers.reads_everything)
    server.script = [speak] * 30 + [refusing(400, "the prompt, word for word")]
    done = run(server.base_url, questions)
    assert done.exit_code == 2
    assert "the server did not answer as it should (BadRequestError, status 400)" in done.stderr
    assert "word for word" not in done.stderr
    assert len(questions.with_name("scores.jsonl").read_text().splitlines()) == 1 + (30 - 2) // 8


def test_scores_of_another_model_are_not_mixed_in(server, questions):
    servers.write(questions, list(servers.moved_questions(31)))
    server.script = [servers.speaking(servers.reads_everything)]
    run(server.base_url, questions)
    done = run(server.base_url, questions, "--answer-tokens", "5")
    assert done.exit_code == 2
    assert "was written with other settings (answer_tokens)" in done.stderr


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (servers.moved_questions(30), "order: the engine changes 29 of 30 questions, 30 are needed"),
        (servers.moved_questions(1), "order: the engine changes 0 of 1 questions, 30 are needed"),
        (servers.repeated_questions(29), "de-duplication: the engine changes 29 of 29 questions, 30 are needed"),
        (
            [*servers.moved_questions(3), *servers.repeated_questions(2)],
            "order: the engine changes 2 of 3 questions, 30 are needed; de-duplication: the engine changes 2 of 2",
        ),
        (
            [{**each, "cluster": str(number % 9)} for number, each in enumerate(servers.moved_questions())],
            f"{servers.CODES - 1} of {servers.CODES} questions, which make only 9 of the 10 clusters needed",
        ),
    ],
    ids=["order", "nothing", "turns", "both", "clusters"],
)
def test_too_few_questions_are_counted_and_nothing_is_asked(server, tmp_path, given, told):
    done = run(server.base_url, servers.write(tmp_path / "few.jsonl", given))
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"too few questions to show anything, so nothing was asked ({told}" in done.stderr or told in done.stderr
    assert done.stderr.count("\n") == 1
    assert server.requests == []
    assert not (tmp_path / "scores.jsonl").exists()


def test_too_few_of_one_kind_are_said_before_the_others_are_asked(server, tmp_path):
    given = [*servers.moved_questions(32), *servers.repeated_questions(3)]
    server.script = [servers.speaking(servers.reads_everything)]
    done = run(server.base_url, servers.write(tmp_path / "both.jsonl", given))
    assert done.exit_code == 1
    assert done.stderr == (
        'de-duplication: the engine changes 3 of 3 questions, 30 are needed: its verdict will be "not shown"\n'
    )
    assert "De-duplication: not shown. 3 of 3 questions changed." in done.stdout


def test_perfect_answers_to_a_few_questions_are_no_proof(server, tmp_path):
    server.script = [servers.speaking(servers.reads_everything)]
    done = run(server.base_url, servers.write(tmp_path / "some.jsonl", servers.moved_questions(40)))
    assert done.exit_code == 1
    assert "Order: not shown. 39 of 40 questions changed." in done.stdout
    assert "may lose 0.000 at most" in done.stdout
    assert "these are too few questions to rely on it." in done.stdout


def test_a_note_that_loses_does_not_pass_and_the_way_out_is_named(server, questions):
    def fooled_by_notes(prompt):
        return "K1" if "elevance" in prompt else servers.reads_everything(prompt)

    server.script = [servers.speaking(fooled_by_notes)]
    done = run(server.base_url, questions, "--note", "compact")
    assert done.exit_code == 1
    assert "Order: safe without annotation." in done.stdout
    assert 'EngineConfig(note="none") would pass.' in done.stdout
    assert run(server.base_url, questions).exit_code == 0


def test_a_model_that_needs_the_note_does_not_pass_without_and_the_way_out_is_named(server, questions):
    server.script = [servers.speaking(servers.follows_the_note)]
    done = run(server.base_url, questions)
    assert done.exit_code == 1
    assert "Order: do not reorder." in done.stdout
    assert 'EngineConfig(note="compact") would pass.' in done.stdout


def test_turns_of_conversations_test_deduplication(server, tmp_path):
    def remembers(prompt):
        return servers.code(prompt)

    def everything_it_was_sent(exchange):
        exchange.body["messages"][-1]["content"] = "\n".join(m["content"] for m in exchange.body["messages"])
        servers.speaking(remembers)(exchange)

    server.script = [everything_it_was_sent]
    done = run(server.base_url, servers.write(tmp_path / "turns.jsonl", servers.repeated_questions()), "--json")
    found = json.loads(done.stdout)
    assert (done.exit_code, found["order"], found["dedup"]["verdict"]) == (0, None, "safe to de-duplicate")
    server.script = [servers.speaking(servers.reads_everything)]  # of the last message alone
    (tmp_path / "scores.jsonl").unlink()
    done = run(server.base_url, tmp_path / "turns.jsonl", "--json")
    assert (done.exit_code, json.loads(done.stdout)["dedup"]["verdict"]) == (1, "do not de-duplicate")


def test_vllm_scores_the_gold_answer_as_the_end_of_the_prompt(server, questions):
    servers.write(questions, list(servers.moved_questions(31)))
    server.script = [servers.like_vllm]
    done = run(server.base_url, questions, "--json")
    judgement = json.loads(done.stdout)["order"]["judgement"]
    assert judgement["metric"] == "log_likelihood"
    assert {each["arm"]: each["difference"]["mean"] for each in judgement["comparisons"]}["reordered"] == 0.0
    assert not judgement["tested"]  # the likelihoods of this server depend on nothing


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "line 1: is no JSON"),
        ('{"query": "Q"}', "(KeyError: 'documents')"),
        ('{"query": "Q", "documents": "secret", "answers": ["A"]}', "expected a list of texts"),
        ('{"query": " ", "documents": ["secret"], "answers": ["A"]}', "expected a text"),
        ("", "holds no question"),
    ],
)
def test_a_file_of_another_shape_is_refused(tmp_path, line, told):
    path = tmp_path / "questions.jsonl"
    path.write_text(line)
    done = run("http://127.0.0.1:9/v1", path)
    assert done.exit_code == 2
    assert told in done.stderr and "secret" not in done.stderr
    assert 'a line holds {"query": "..."' in done.stderr


def test_a_server_that_is_not_there(questions):
    require("openai")
    done = run("http://127.0.0.1:9/v1", questions)
    assert done.exit_code == 2
    assert "--base-url http://127.0.0.1:9/v1 does not answer as an OpenAI-compatible endpoint" in done.stderr


@pytest.mark.parametrize("options", [(), ("--metric", "answers"), ("--metric", "likelihood")], ids=str)
def test_a_model_that_is_not_served_is_named_and_the_right_one_goes_on_with_the_same_file(server, questions, options):
    def of_one_model(exchange):
        if exchange.body.get("model") != "right":
            return refusing(404, "secret")(exchange)
        servers.like_vllm(exchange) if "likelihood" in options else servers.speaking(servers.reads_everything)(exchange)

    server.script, server.models = [of_one_model], servers.saying('{"data": [{"id": "right"}]}', 200)
    done = run(server.base_url, questions, *options, model="wrong")
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"--model 'wrong' is not served at {server.base_url} (NotFoundError, status 404)" in done.stderr
    assert "'right'" in done.stderr and "secret" not in done.stderr and done.stderr.count("\n") == 1
    assert run(server.base_url, questions, *options, model="right").exit_code in (0, 1)


@pytest.mark.parametrize(
    ("reply", "status"),
    [("<html>Sign in</html>", 200), ('{"data": []}', 200), ('{"data": null}', 200), ("{}", 401), ("{}", 500)],
)
def test_what_is_no_endpoint_measures_nothing(server, questions, reply, status):
    server.script, server.models = [servers.saying(reply, status)], servers.saying(reply, status)
    done = run(server.base_url, questions, model=None)
    assert done.exit_code == 2
    assert "does not answer as an OpenAI-compatible endpoint" in done.stderr and "Sign in" not in done.stderr
    done = run(server.base_url, questions)
    assert done.exit_code == 2
    told = "give its --api-key" if status == 401 else "the server did not answer as it should"
    assert told in done.stderr and "Sign in" not in done.stderr


def test_a_score_file_that_cannot_be_used_is_named(server, questions, tmp_path):
    server.script = [servers.speaking(servers.reads_everything)]
    (tmp_path / "binary").write_bytes(bytes(range(128, 256)))
    for name, told in (
        ("", "IsADirectoryError"),
        ("binary", "it is not in UTF-8"),
        ("binary/x", "cannot be read and written"),
    ):
        done = run(server.base_url, questions, resume=tmp_path / name)
        assert done.exit_code == 2
        assert told in done.stderr


def test_likelihoods_that_a_server_has_not(server, questions):
    server.script = [servers.speaking(servers.reads_everything)]
    done = run(server.base_url, questions, "--metric", "likelihood")
    assert done.exit_code == 2
    assert "use --metric answers" in done.stderr
