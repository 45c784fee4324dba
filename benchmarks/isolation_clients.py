"""As `benchmarks.isolation`, for the clients: real OpenAI clients, whose server answers by what it is sent alone."""

import hashlib
import json
import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import httpx
import openai

from benchmarks.isolation import TENANTS, Step, picked, program, told_of
from contextpilot_core import EngineConfig, ReuseEngine
from contextpilot_core.testing import ManualClock
from contextpilot_integrations.serving.chat import Tenants
from contextpilot_integrations.serving.client import ContextPilotClient, ReplicaRouter

ACTIONS = ("chat", "chat", "chat", "chat", "stream", "complete", "dropped", "wrong", "reset", "history", "last")
KEY = "a secret of the tenants, long enough"


def answer(request: httpx.Request) -> httpx.Response:
    """Answer by the digest of host and body: now and then with trouble, a refusal, or a lie about tokens."""
    body = json.loads(request.content)
    digest = hashlib.sha256(request.url.host.encode() + request.content).digest()
    if digest[0] < 12:
        return httpx.Response(500 if digest[1] % 2 else 404, json={"error": {"message": "no"}})
    size = len(request.content) // 4
    cached = 10**15 if digest[2] < 20 else size // 2
    usage = {"prompt_tokens": size, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": cached}}
    text = f"as [Doc 1] says {digest.hex()[:4]}"
    piece = {"text": text} if "prompt" in body else {"delta": {"content": text}}
    chunks: list[dict[str, Any]] = [{"choices": [{"index": 0, **piece, "finish_reason": None}]}]
    if digest[3] >= 12:  # else the stream breaks off
        end: dict[str, Any] = {"text": ""} if "prompt" in body else {"delta": {}}
        chunks += [{"choices": [{"index": 0, **end, "finish_reason": "stop"}]}, {"choices": [], "usage": usage}]
    lines = "".join(f"data: {json.dumps({'id': 'c', 'created': 1, 'model': 'm', **chunk})}\n\n" for chunk in chunks)
    return httpx.Response(200, text=lines + "data: [DONE]\n\n", headers={"content-type": "text/event-stream"})


def server(name: str) -> openai.OpenAI:
    """Return a client of a server in this process."""
    transport = httpx.Client(transport=httpx.MockTransport(answer))
    return openai.OpenAI(base_url=f"http://{name}/v1", api_key="-", max_retries=0, http_client=transport)


class ClientWorld:
    """One client, and the sessions of its tenants."""

    def __init__(self, seed: int, tenants: Sequence[str]) -> None:
        self.tenants, self.clock, rng = tenants, ManualClock(), random.Random(f"config {seed}")
        self.config = EngineConfig(
            note=rng.choice(["compact", "none"]), kv_block=rng.choice([1, 16]), max_messages=rng.choice([3, 1_000])
        )
        self.options = {
            "model": "m",
            "max_sessions": rng.choice([1, 2, 100]),
            "max_context_tokens": rng.choice([None, 400]),
            "clock": self.clock,
        }
        self.told: dict[str, list[str]] = {who: [] for who in tenants}
        self.engines = [ReuseEngine(self.config, clock=self.clock) for _ in range(self.servers)]
        self.client = self.made()

    servers = 1

    def made(self) -> Any:
        return ContextPilotClient(server("one"), engine=self.engines[0], **self.options)

    @classmethod
    def program(cls, seed: int) -> list[Step]:
        return program(seed, ACTIONS, ("wait",), most=24)

    def play(self, steps: Sequence[Step]) -> dict[str, list[str]]:
        """Return what each tenant was told."""
        for step in steps:
            if step.who is None:
                self.clock.advance(random.Random(step.seed).choice([1.0, 61.0, 4_000.0]))
            elif step.who in self.tenants:
                try:
                    answer = self._does(step.who, step.action, random.Random(step.seed))
                except Exception as error:  # noqa: BLE001  # errors are part of what is told
                    answer = type(error).__name__, str(error)
                self.told[step.who].append(f"{step.action}: {answer!r}")
        for engine in self.engines:
            engine.check_integrity()
        return self.told

    def _does(self, who: str, action: str, rng: random.Random) -> Any:
        client, session = self.client, {"session_id": rng.choice("uvw"), "namespace": who}
        question = f"question {rng.randrange(100)}"
        match action:
            case "chat":
                answered = client.chat(picked(rng), question, **session, instructions=rng.choice(["", "Be brief."]))
                return self._result(answered)
            case "stream":
                stream = client.stream(picked(rng), question, **session)
                return list(stream), self._result(stream.result)
            case "complete":
                return self._result(client.complete(picked(rng), question, namespace=who))
            case "dropped":
                stream = client.stream(picked(rng), question, **session)
                next(iter(stream), None)
                stream.close()
                return None
            case "wrong":
                return client.chat(5, question, **session)
            case "reset":
                return client.reset(**session)
            case "history":
                return client.history(**session)
        plan = client.last_plan(**session)
        return None if plan is None else told_of(plan)

    def _result(self, result: Any) -> tuple[Any, ...]:
        rest = (result.answer, result.prompt, result.usage, result.finish_reason, result.observation)
        return (*rest, told_of(result.plan), sorted(result.sources))


class RouterWorld(ClientWorld):
    """Two servers. Which one is chosen may depend on everybody's load: alone, it is the one of the common run."""

    servers = 2
    chosen: dict[str, list[int | None]] | None = None

    def made(self) -> Any:
        servers = [server("one"), server("two")]
        router = ReplicaRouter(servers, engines=self.engines, tenants=Tenants(KEY), max_imbalance=1, **self.options)
        replicas = router._chats.replicas  # noqa: SLF001
        choice, self.choices = replicas._choice, defaultdict(list)  # noqa: SLF001

        def choose(left: Any, request: Any, conversation: Any) -> Any:
            done = self.choices[request.namespace]
            done.append(None)  # what is refused is refused before or after the choice, as the load has it
            replica = choice(left, request, conversation)
            number = None if self.chosen is None else self.chosen[request.namespace][len(done) - 1]
            if number is not None:
                replica = next(each for each in left if each.engine is self.engines[number])
            done[-1] = self.engines.index(replica.engine)
            return replica

        replicas._choice = choose  # noqa: SLF001
        return router


def routed_differences(seed: int) -> list[str]:
    """Return the tenants that are told something else because of the other, with the same replicas chosen."""
    steps, both = RouterWorld.program(seed), RouterWorld(seed, TENANTS)
    told, found = both.play(steps), []
    for who in TENANTS:
        alone = RouterWorld(seed, (who,))
        alone.chosen = both.choices
        if alone.play(steps)[who] != told[who]:
            found.append(who)
    return found
