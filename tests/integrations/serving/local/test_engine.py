"""The embedded server as its users meet it: in this process, and in a child."""

import asyncio
import signal
import socket
import subprocess
import sys
import textwrap
import time

import pytest

from contextpilot_core.errors import ConfigError, MissingExtraError
from contextpilot_integrations.serving.client.client import AsyncContextPilotClient, ContextPilotClient
from contextpilot_integrations.serving.local.engine import LocalEngine
from contextpilot_integrations.serving.local.model import packaged_model
from tests.conftest import require, require_local_model

require("openai")
require_local_model()

QUESTION = "What is the capital of France? " + "Answer in one word, please. " * 12


def ask(engine, question=QUESTION, **options):
    messages = [{"role": "user", "content": question}]
    with engine.client() as client:
        answer = client.chat.completions.create(model=engine.model, messages=messages, max_tokens=8, **options)
    return answer.choices[0].message.content, answer.usage.prompt_tokens_details.cached_tokens


def answers(base_url):
    port = int(base_url.split(":")[2].split("/")[0])
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module", params=[False, True], ids=["in-process", "child"])
def engine(request):
    with LocalEngine(process=request.param, threads=1) as running:  # two threads wait for each other on a busy machine
        yield running


def test_listens_on_loopback_and_says_where(engine):
    assert engine.base_url.startswith("http://127.0.0.1:")
    assert engine.base_url.endswith("/v1")
    with engine.client() as client:
        assert [entry.id for entry in client.models.list()] == [engine.model] == ["smollm2"]


def test_a_proxy_of_the_environment_is_not_asked(engine, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    assert ask(engine)[0]


def test_clear_empties_every_cache(engine):
    engine.clear()
    first, cold = ask(engine)
    _, warm = ask(engine)
    assert cold == 0
    assert warm > 60
    where = engine.base_url
    engine.clear()
    again, cold = ask(engine)
    assert engine.base_url == where
    assert cold == 0
    assert again == first  # the same answer from the same state: temperature 0


def test_prompts_that_left_their_slot_are_still_cached(engine):
    engine.clear()
    for number in range(4):  # more prompts than slots
        ask(engine, f"{number}. {QUESTION}")
    _, cached = ask(engine, f"0. {QUESTION}")
    assert cached > 60


def test_close_stops_it_and_may_be_repeated():
    engine = LocalEngine()
    assert answers(engine.base_url)
    engine.close()
    engine.close()
    assert not answers(engine.base_url)
    with pytest.raises(ConfigError, match="closed"):
        engine.clear()


@pytest.mark.parametrize("process", [False, True], ids=["in-process", "child"])
def test_close_does_not_wait_for_answers_under_way(process):
    engine = LocalEngine(process=process, threads=1)
    client = ContextPilotClient(engine.client(max_retries=0), model=engine.model)
    stream = client.stream(["Dragons live."], "Tell a long story.", max_tokens=4_000)
    next(stream)
    started = time.monotonic()
    engine.close()
    assert time.monotonic() - started < 25  # a hang, not a speed, is what this looks for
    with pytest.raises(Exception, match=r"(?i)connection|peer|incomplete|read|server"):
        list(stream)


def test_two_at_once_have_ports_of_their_own(engine):
    with LocalEngine(threads=1) as other:
        assert other.base_url != engine.base_url
        assert ask(other, "Hello")[1] == 0


@pytest.mark.parametrize("process", [False, True], ids=["in-process", "child"])
@pytest.mark.parametrize("ending", ["exit", "error", "kill", "terminate"])
def test_gone_with_its_process(process, ending):
    script = f"""
        import os, signal, sys
        from contextpilot_integrations.serving.local import LocalEngine
        engine = LocalEngine(process={process})
        print(engine.base_url, flush=True)
        sys.stdin.readline()
        if {ending!r} == "error": raise KeyError
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    base_url = child.stdout.readline().strip()
    assert answers(base_url)
    if ending in ("kill", "terminate"):
        child.send_signal(signal.SIGKILL if ending == "kill" else signal.SIGTERM)
    _, errors = child.communicate("\n", timeout=60)
    deadline = time.monotonic() + 30
    while answers(base_url) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not answers(base_url)
    expected = {"exit": 0, "error": 1, "kill": -signal.SIGKILL, "terminate": -signal.SIGTERM}
    assert child.returncode == expected[ending]
    if ending == "exit":
        assert errors == ""  # P15: llama.cpp's log stays quiet


def test_the_client_plans_and_the_cache_is_hit(engine):
    engine.clear()
    documents = [" ".join(f"{name} number {n} is kept in box {n * 7}." for n in range(12)) for name in ("Tea", "Salt")]
    with engine.client() as openai_client:
        client = ContextPilotClient(openai_client, model=engine.model)
        first = client.chat(documents, "Where is tea number 3?", session_id="u", max_tokens=8)
        second = client.chat(documents[::-1], "And salt number 4?", session_id="u", max_tokens=8)
    assert first.usage.cached_tokens == 0
    assert len(second.plan.hints) == 2
    assert second.usage.cached_tokens >= first.usage.prompt_tokens - 1
    assert second.usage.prefilled_tokens < 60
    assert first.ttft_ms > 0


def test_text_prompts_hit_the_cache_and_report_it(engine):
    engine.clear()
    document = " ".join(f"Tea number {n} is kept in box {n * 7}." for n in range(12))
    with engine.client() as openai_client:
        client = ContextPilotClient(openai_client, model=engine.model)
        first = client.complete([document], "Tea number 3 is kept in box", max_tokens=4)
        with client.stream_completion([document], "Tea number 5 is kept in box", max_tokens=4) as stream:
            pieces = list(stream)
    assert first.answer
    assert "".join(pieces) == stream.result.answer
    assert first.usage.cached_tokens == 0
    assert stream.result.usage.cached_tokens > 100
    assert stream.result.finish_reason == "length"


def test_the_asynchronous_client(engine):
    async def talk():
        async with engine.async_client() as openai_client:
            client = AsyncContextPilotClient(openai_client, model=engine.model)
            return await client.chat(["Tea grows in Assam."], "Where does tea grow?", max_tokens=8)

    assert asyncio.run(talk()).answer


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"slots": 0}, "slots=0 must be a whole number of at least 1"),
        ({"context_size": 1.5}, "context_size=1.5 must"),
        ({"threads": True}, "threads=True must"),
        ({"cache_ram_mib": -1}, "cache_ram_mib=-1 must be a whole number of at least 0"),
    ],
)
def test_refuses_bad_settings(options, rule):
    with pytest.raises(ConfigError, match=rule):
        LocalEngine(**options)


@pytest.mark.parametrize("process", [False, True], ids=["in-process", "child"])
def test_a_damaged_gguf_is_an_error(tmp_path, process):
    damaged = tmp_path / "model.gguf"
    damaged.write_bytes(packaged_model().read_bytes()[:1_000_000])
    with pytest.raises(ConfigError, match="must be a whole GGUF model"):
        LocalEngine(damaged, process)


def test_any_gguf_works(tmp_path):
    linked = tmp_path / "mine.gguf"
    linked.symlink_to(packaged_model())
    with LocalEngine(model=linked, slots=1, context_size=512, threads=1, cache_ram_mib=0) as engine:
        assert engine.model == "mine"
        assert ask(engine, "Hello")[0]


@pytest.mark.parametrize(("package", "extra"), [("xllamacpp", "local"), ("openai", "client")])
def test_a_missing_extra_names_the_line_that_brings_it(monkeypatch, package, extra):
    engine = LocalEngine() if package == "openai" else None
    monkeypatch.setitem(sys.modules, package, None)
    line = rf'pip install "contextpilot-rag\[{extra}\]"'
    with pytest.raises(MissingExtraError, match=line):
        engine.client() if engine else LocalEngine()
    if engine:
        engine.close()
