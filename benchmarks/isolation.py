"""Two tenants of one engine, client, router or window: does anything that one is told depend on the other?

A program is a list of random steps of both. It is played with both tenants, and with each of them alone; what a tenant
was told (orders, texts, labels, notes, hints, ids, expected tokens, errors, figures) must be the same, byte for byte.
Time and the server's cache events are the same in all three.
"""

import asyncio
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry

from contextpilot_core import ContextBlock, ContextRequest, EngineConfig, Plan, PromptTokens, ReuseEngine, Served
from contextpilot_core.engine import WindowScheduler
from contextpilot_core.mirror import AllBlocksCleared, BlockStored, KVMirror
from contextpilot_core.testing import ManualClock
from contextpilot_integrations.serving.metrics import EngineMetrics

TENANTS = ("attacker", "victim")
WORDS = [f"{stem}{number}" for stem in ("oak", "fir", "elm", "ash", "yew", "box", "bay", "fig") for number in range(12)]
SHARED = " ".join(WORDS[:40])
DOCUMENTS = [
    *(" ".join(WORDS[start : start + 30]) for start in range(0, 64, 8)),
    f"{SHARED} first",
    f"Title\n\n{SHARED}",
    "short",
    "[Doc 1]\n===\nforged\n===",
]
IDS = (None, None, "x", "r2", "r7")


@dataclass(frozen=True)
class Step:
    """``who`` does it; None: it happens to both. ``seed`` decides all the rest."""

    who: str | None
    action: str
    seed: int


def program(seed: int, actions: Sequence[str], world: Sequence[str] = (), most: int = 30) -> list[Step]:
    """Return random steps: ``actions`` of tenants, and what happens in the ``world``."""
    rng = random.Random(seed)
    steps = []
    for _ in range(rng.randrange(6, most)):
        outside = world and rng.random() < 0.15
        who = None if outside else rng.choice(TENANTS)
        steps.append(Step(who, rng.choice(world if outside else actions), rng.randrange(2**32)))
    return steps


def told_of(plan: Plan) -> tuple[Any, ...]:
    """Return everything that a plan says."""
    sources = {label: [str(block.text) for block in source.blocks] for label, source in plan.sources.items()}
    return (
        plan.request_id,
        plan.order,
        plan.dropped,
        plan.labels,
        plan.hints,
        plan.annotation,
        plan.messages,
        plan.expected_reused_tokens,
        plan.expected_share,
        plan.recognised,
        plan.report,
        plan.explain(),
        sources,
    )


def picked(rng: random.Random) -> list[Any]:
    """Return some documents."""
    found = [rng.choice(DOCUMENTS) for _ in range(rng.randrange(6))]
    return [ContextBlock(text=text, id=text[:5]) if rng.random() < 0.3 else text for text in found]


class EngineWorld:
    """One engine, with or without the server's events, and the metrics of it."""

    ACTIONS = ("plan", "plan", "turn", "turn", "flight", "batch", "window", "expect", "commit", "abandon", "evict")
    MORE = ("observe", "observe", "lie", "lie", "wrong", "order", "warm", "reset", "figures")
    WORLD = ("wait", "event", "cleared", "together", "together")

    def __init__(self, seed: int, tenants: Sequence[str]) -> None:
        rng = random.Random(f"config {seed}")
        config = EngineConfig(
            strategy=rng.choice(["greedy", "greedy", "paper"]),
            note=rng.choice(["compact", "full", "none"]),
            kv_block=rng.choice([1, 16]),
            cache_tokens=rng.choice([None, 150, 600]),
            max_requests=rng.choice([3, 1_000]),
            max_messages=rng.choice([2, 1_000]),
        )
        self.tenants, self.clock = tenants, ManualClock()
        self.mirror = KVMirror(16) if rng.random() < 0.5 else None
        self.metrics = EngineMetrics(namespaces=TENANTS)
        self.engine = ReuseEngine(config, clock=self.clock, mirror=self.mirror, observer=self.metrics.meter("engine"))
        self.told: dict[str, list[Any]] = {who: [] for who in tenants}
        self.plans: dict[str, list[Plan]] = {who: [] for who in tenants}

    @classmethod
    def program(cls, seed: int) -> list[Step]:
        return program(seed, cls.ACTIONS + cls.MORE, cls.WORLD)

    def play(self, steps: Sequence[Step]) -> dict[str, list[str]]:
        """Return what each tenant was told."""
        for step in steps:
            if step.who is None:
                getattr(self, f"_{step.action}")(random.Random(step.seed))
            elif step.who in self.tenants:
                self._tenant(step.who, step.action, random.Random(step.seed))
        self.engine.check_integrity()
        registry = CollectorRegistry()
        registry.register(self.metrics)
        for family in registry.collect():
            for sample in family.samples:
                if sample.labels.get("namespace") in self.tenants and not sample.name.endswith("_created"):
                    self.told[sample.labels["namespace"]].append((sample.name, sample.value))
        return {who: [repr(each) for each in told] for who, told in self.told.items()}

    def _tenant(self, who: str, action: str, rng: random.Random) -> None:
        try:
            answer = self._does(who, action, rng)
        except Exception as error:  # noqa: BLE001  # errors are part of what is told
            answer = type(error).__name__, str(error)
        plans = [each for each in (answer if isinstance(answer, list) else [answer]) if isinstance(each, Plan)]
        self.plans[who] += plans
        self.told[who].append((action, [told_of(plan) for plan in plans] or answer))

    def _does(self, who: str, action: str, rng: random.Random) -> Any:  # noqa: C901
        engine, mine, own = self.engine, self.plans[who], {"namespace": who}
        last = rng.choice(mine) if mine else None
        fields = {"query": rng.choice(["q", "why?"]), "request_id": rng.choice(IDS), **own}
        match action:
            case "plan" | "flight":
                return engine.plan(picked(rng), **fields, commit=action == "plan")
            case "turn":
                history = [] if last is None else [*last.messages, {"role": "assistant", "content": "yes [Doc 1]"}]
                return engine.plan(picked(rng), **fields, messages=history, session_id="s")
            case "batch" | "window":
                requests = [ContextRequest(blocks=picked(rng), query="q", **own) for _ in range(3)]
                planned = getattr(engine, f"plan_{action}")(requests, commit=rng.random() < 0.5)
                return [*planned.plans, planned.schedule]
            case "expect":
                return engine.expected_reuse(ContextRequest(blocks=picked(rng), **own))
            case "commit" | "abandon" if last is not None:
                return getattr(engine, action)(last)
            case "evict":
                return engine.evict([rng.choice(["x", "r1", "r2", "r3"])], **own)
            case "observe" | "lie" if last is not None:
                return engine.observe(last, self._served(last, rng, lies=action == "lie"))
            case "wrong":
                return engine.plan(rng.choice([5, "text", [None]]), **fields)
            case "order" if last is not None:
                return engine.plan(last.request.blocks, query="q", order=last.order[::-1], **own)
            case "warm":
                return engine.warm([ContextRequest(blocks=picked(rng), **own) for _ in range(3)])
            case "reset":
                return engine.reset(who) if rng.random() < 0.2 else None
            case "figures":
                return engine.stats(who)
        return None

    def _served(self, plan: Plan, rng: random.Random, *, lies: bool) -> Served:
        ids = token_ids(plan.text)
        cached = rng.choice([0, len(ids), 10**9, -1, 10**15]) if lies else len(ids) // 2
        ends = [end // 4 for end in plan.context.ends]
        tokens = PromptTokens(token_ids=ids, start=0, ends=ends[::-1] if lies else ends)
        return Served(prompt_tokens=len(ids), cached_tokens=cached, tokens=tokens)

    def _wait(self, rng: random.Random) -> None:
        self.clock.advance(rng.choice([0.5, 2.0, 61.0, 4_000.0]))

    def _event(self, rng: random.Random) -> None:
        if self.mirror is not None:
            ids = token_ids(ReuseEngine().plan(picked(rng)).text)
            ids = ids[: len(ids) // 16 * 16]
            names = tuple(hash(ids[: end + 16]) for end in range(0, len(ids), 16))
            if names:
                stored = BlockStored(block_hashes=names, parent_block_hash=None, token_ids=ids, block_size=16)
                self.mirror.apply([stored])

    def _cleared(self, rng: random.Random) -> None:
        if self.mirror is not None and rng.random() < 0.3:
            self.mirror.apply([AllBlocksCleared()])

    def _together(self, rng: random.Random) -> None:
        """Plan for both in one call, as a server does that batches."""
        requests = [ContextRequest(blocks=picked(rng), query="q", namespace=who) for who in TENANTS * 2]
        present = [request for request in requests if request.namespace in self.tenants]
        planned = getattr(self.engine, rng.choice(["plan_batch", "plan_window"]))(present)
        for plan in planned.in_schedule():
            self.told[plan.request.namespace].append(("together", told_of(plan)))
            self.plans[plan.request.namespace].append(plan)


class WindowWorld:
    """A scheduler: rounds of questions that wait for each other, and in which order they go."""

    def __init__(self, seed: int, tenants: Sequence[str]) -> None:
        config = EngineConfig(cache_tokens=random.Random(seed).choice([150, 600]), kv_block=1)
        self.tenants, self.scheduler = tenants, WindowScheduler(ReuseEngine(config), max_wait_ms=60_000, max_requests=3)
        self.told: dict[str, list[str]] = {who: [] for who in tenants}

    @classmethod
    def program(cls, seed: int) -> list[Step]:
        return program(seed, ("round",), most=12)

    def play(self, steps: Sequence[Step]) -> dict[str, list[str]]:
        asyncio.run(self._rounds(steps))
        return self.told

    async def _rounds(self, steps: Sequence[Step]) -> None:
        """Let two steps at a time run beside each other."""
        for start in range(0, len(steps), 2):
            mine = [step for step in steps[start : start + 2] if step.who in self.tenants]
            asked = {step.who: step for step in mine}  # one window of each: a second would wait for the first
            await asyncio.gather(*[self._ask(step, number) for step in asked.values() for number in range(3)])

    async def _ask(self, step: Step, number: int) -> None:
        rng, who = random.Random(f"{step.seed} {number}"), str(step.who)
        request = ContextRequest(blocks=picked(rng), query=f"q{number}", namespace=who)
        self.told[who].append(f"overlap {self.scheduler.overlap(request)}")
        async with self.scheduler.turn(request) as plan:
            self.told[who].append(repr(told_of(plan)))


def token_ids(text: str) -> tuple[int, ...]:
    """Return a token for every fourth character."""
    return tuple(map(ord, text[::4]))


def differences(world: Any, seed: int) -> Iterator[tuple[str, int]]:
    """Yield (tenant, place) of the first thing that a tenant is told differently because of the other."""
    steps = world.program(seed)
    both = world(seed, TENANTS).play(steps)
    for who in TENANTS:
        alone = world(seed, (who,)).play(steps)[who]
        if alone != both[who]:
            pairs = enumerate(zip(alone, both[who], strict=False))
            yield who, next((place for place, (one, other) in pairs if one != other), min(len(alone), len(both[who])))
