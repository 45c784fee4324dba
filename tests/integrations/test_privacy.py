"""No word of a document, a question or a key stands in what goes wrong: errors, those behind them, or logs."""

import json
import traceback
from dataclasses import dataclass

import pytest

from contextpilot_core import (
    ConfigError,
    ContextBlock,
    ContextPilotError,
    ContextRequest,
    EngineConfig,
    ReuseEngine,
    Served,
)
from contextpilot_core.diagnose import canonical_tools, diagnose
from contextpilot_core.replay import load_corpus, load_trace
from contextpilot_integrations.doctor import read_prompts
from contextpilot_integrations.gate import ScoreFile, read_cases
from tests.conftest import require
from tests.integrations.chat_server import chat_server, good, refusing
from tests.integrations.gate_servers import saying

WORD = "MARKER7421"
TEXT = f"{WORD} is the word. " * 20
PROMPT = [{"role": "user", "content": TEXT}]


def engine(**options):
    return ReuseEngine(EngineConfig(), **options)


def planned_twice():
    made = engine()
    made.plan([TEXT], query=TEXT, request_id="r")
    made.plan([TEXT + "2"], query=TEXT, request_id="r")


REQUESTS = {
    "a document of another type": lambda: engine().plan([TEXT, {"text": TEXT}], query=TEXT),
    "a text of another type": lambda: engine().plan([ContextBlock(text=TEXT.encode())], query=TEXT),
    "a text instead of a list": lambda: engine().plan(TEXT, query=TEXT),
    "a question of another type": lambda: engine().plan([TEXT], query=[TEXT]),
    "messages of another type": lambda: engine().plan([TEXT], query="q", messages=TEXT),
    "a message of another type": lambda: engine().plan([TEXT], query="q", messages=[TEXT]),
    "a role of another type": lambda: engine().plan([TEXT], query="q", messages=[{"role": [TEXT], "content": TEXT}]),
    "a name of another type": lambda: engine().plan([TEXT], query=TEXT, namespace=[TEXT]),
    "an id twice": planned_twice,
    "a batch with a wrong one": lambda: engine().plan_batch([ContextRequest(blocks=[TEXT]), TEXT]),
    "a wrong one of a batch": lambda: engine().plan_batch([ContextRequest(blocks=[TEXT], query=[TEXT])]),
    "tools that JSON cannot hold": lambda: canonical_tools([{"name": TEXT, "values": {TEXT}}]),
    "one prompt": lambda: diagnose([TEXT]),
    "mixed prompts": lambda: diagnose([TEXT, PROMPT]),
    "a prompt of another type": lambda: diagnose([TEXT, {TEXT}]),
}

FILES = {
    "half an object": f'{{"{TEXT}": "{TEXT}"'.encode(),
    "no JSON": TEXT.encode(),
    "a bare text": json.dumps(TEXT).encode(),
    "no UTF-8": TEXT.encode() + b"\xff",
    "UTF-16": json.dumps({"text": TEXT}).encode("utf-16"),
    "a value of another type": json.dumps(
        {"id": [TEXT], "doc_ids": TEXT, "query": [TEXT], "messages": {"a": TEXT}}
    ).encode(),
    "nested": json.dumps(TEXT).encode()[:-1] + b'": ' + b"[" * 200_000,
}
READERS = {
    "corpus": lambda path: load_corpus([path]),
    "trace": load_trace,
    "questions": read_cases,
    "scores": lambda path: ScoreFile(path, {}),
    "prompts": lambda path: diagnose(read_prompts(path)),
}


def told(call, caplog):
    """Return all that is told of a failure, as a log or a report of it would show it."""
    with pytest.raises(ContextPilotError) as caught:
        call()
    error = caught.value
    shown = [str(error), repr(error), "".join(traceback.format_exception(error)), caplog.text]
    while error is not None:
        shown += [str(error), repr(error)]
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\n".join(shown)


@pytest.mark.parametrize("call", REQUESTS.values(), ids=REQUESTS)
def test_a_request_that_is_refused_tells_nothing(call, caplog):
    assert WORD not in told(call, caplog)


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("content", FILES.values(), ids=FILES)
def test_a_file_that_is_refused_tells_nothing(tmp_path, caplog, read, content):
    path = tmp_path / "file.jsonl"
    path.write_bytes(content + b"\n")
    assert WORD not in told(lambda: read(path), caplog)


@dataclass
class Observer:
    """Raises with all that it was told."""

    def attached(self, stats):
        pass

    def planned(self, plan, seconds):
        raise ValueError(str(plan.messages))

    def observed(self, plan, observation):
        raise KeyError(TEXT)


def test_an_observer_that_raises_is_logged_without_its_words(caplog):
    made = engine(observer=Observer())
    made.observe(made.plan([TEXT], query=TEXT), Served(prompt_tokens=100, cached_tokens=0))
    assert "ValueError" in caplog.text and WORD not in caplog.text


@pytest.mark.parametrize("key", [f"{WORD}\n{WORD}", f"{WORD}é", f"{WORD}\ud83d"])
def test_a_key_is_shown_nowhere(caplog, key):
    require("openai")
    from contextpilot_integrations.serving.endpoint import reached

    with chat_server() as server:
        call = reached(server.base_url, "m", key, lambda client, model: client)
        assert WORD not in told(call.__enter__, caplog)


@pytest.mark.parametrize("server", ["http://me:WORD@127.0.0.1:9/v1", "http://127.0.0.1:9/v1?key=WORD", "me:WORD@x"])
def test_what_is_secret_in_a_url_is_shown_nowhere(caplog, server):
    require("openai")
    from contextpilot_integrations.serving.endpoint import reached

    call = reached(server.replace("WORD", WORD), None, WORD, lambda client, model: client, max_retries=0)
    assert WORD not in told(call.__enter__, caplog).replace(server.replace("WORD", WORD), "")


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500])
def test_the_words_of_a_server_are_shown_nowhere(caplog, status):
    require("openai")
    from contextpilot_integrations.gate import choose_scorer, connect

    with chat_server() as server, connect(server.base_url, "m", WORD) as connected:
        connected.client.max_retries = 0
        server.script, server.models = [refusing(status, TEXT)], saying(json.dumps({"error": TEXT}), 200)
        scorer = choose_scorer(connected, "answers", answer_tokens=7)
        assert WORD not in told(lambda: scorer.score({"arm": PROMPT}, ["a"]), caplog)


def test_secrets_of_the_shared_log_are_shown_nowhere(caplog):
    require("redis")
    require("msgspec")
    from contextpilot_integrations.stores import RedisStore

    wrong = {"server": f"redis://:{WORD}@host:port", "secret": "s" * 16}, {"server": "redis://host", "secret": WORD}
    for options in (*wrong, {"server": f"redis://:{WORD}@host?unknown={WORD}", "secret": "s" * 16}):
        assert WORD not in told(lambda options=options: RedisStore(**options), caplog)
    assert WORD not in repr(RedisStore(f"redis://:{WORD}@host", secret=WORD * 2))


def test_an_index_that_cannot_be_saved_or_read_tells_nothing(tmp_path, caplog):
    require("rank_bm25")
    from contextpilot_integrations.retrieval import Bm25Index

    odd = Bm25Index([ContextBlock(text=TEXT, metadata={"a": {TEXT}})])
    assert WORD not in told(lambda: odd.save(tmp_path), caplog)
    for content in FILES.values():
        (tmp_path / "documents.json").write_bytes(content)
        assert WORD not in told(lambda: Bm25Index.load(tmp_path), caplog)


def test_a_client_logs_nothing_of_what_it_sends(caplog):
    require("openai")
    import openai

    from contextpilot_integrations.serving.client import ContextPilotClient

    with chat_server() as server:
        server.script = [refusing(500, TEXT), refusing(400, TEXT), good(TEXT)]
        with openai.OpenAI(base_url=server.base_url, api_key=WORD, max_retries=0) as client:
            chats = ContextPilotClient(client, model="m")
            for _ in range(3):
                try:
                    chats.chat([TEXT], TEXT, session_id="s")
                except openai.OpenAIError:
                    pass
            assert WORD not in repr(chats)
    assert WORD not in caplog.text


def test_the_marker_would_be_found(caplog):
    def fail():
        try:
            json.loads(TEXT)
        except ValueError as error:
            raise ConfigError(f"no JSON: {TEXT[:20]}") from error

    assert WORD in told(fail, caplog)
