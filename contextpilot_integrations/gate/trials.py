"""From a user's questions to trials: which of them reordering or de-duplication changes, and their prompts."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from contextpilot_core import ContextRequest, EngineConfig, ReuseEngine
from contextpilot_core.types import cached_property
from contextpilot_integrations.gate.arms import Messages, dedup_prompts, order_prompts
from contextpilot_integrations.gate.cases import Case
from contextpilot_integrations.gate.records import Record, ScoreFile, Scores


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A question, ready to be asked in every arm; ``cluster`` as in `Case`."""

    group: str
    answers: tuple[str, ...]
    prompts: Mapping[str, Messages]
    cluster: str = ""

    @cached_property
    def key(self) -> str:
        """A name that follows from what is asked: scores are found again, and never those of other prompts."""
        content = json.dumps([self.answers, dict(self.prompts)], sort_keys=True)
        return hashlib.sha256(content.encode("ascii")).hexdigest()[:16]


class Scorer(Protocol):
    """A model that is asked; higher scores are better."""

    def score(self, prompts: Mapping[str, Messages], answers: Sequence[str]) -> Mapping[str, Scores]:
        """Return the scores of every arm of one question."""


def evaluate(trials: Sequence[Trial], scorer: Scorer, scores: ScoreFile) -> Iterator[Record]:
    """Yield the record of every trial, in order; those that the file holds, arm for arm, are not asked again."""
    for trial in trials:
        known = scores.records.get(trial.key)
        if known is None or known.group != trial.group or known.scores.keys() != trial.prompts.keys():
            found = scorer.score(trial.prompts, trial.answers)
            scores.add(Record(key=trial.key, group=trial.group, scores=found))
        yield scores.records[trial.key]


Mode = Literal["online", "batch"]


def engine_orders(
    contexts: Sequence[Sequence[str]], *, mode: Mode = "online", cache_tokens: int | None = 40_000
) -> list[tuple[int, ...]]:
    """Return, per context, the positions of its distinct documents in the order of the prompt.

    "online": one request after the other, in the order given; "batch": all of them planned together. The engine moves
    whatever gains one cached token: more than in use, where it weighs the note and whole KV blocks. An evaluation
    wants every order that could come.
    """
    engine = ReuseEngine(EngineConfig(cache_tokens=cache_tokens, note="none", kv_block=1))
    if mode == "batch":
        return [plan.order for plan in engine.plan_batch([ContextRequest(blocks=blocks) for blocks in contexts])]
    return [engine.plan(blocks).order for blocks in contexts]


ORDER, DEDUP = "order", "de-duplication"
"""The groups of trials."""


def make_trials(
    cases: Sequence[Case], *, mode: Mode, cache_tokens: int | None, instructions: str, seed: int
) -> list[Trial]:
    """Return the trials that can tell something, in the order of the file.

    Questions without earlier turns are replayed through the engine as ``mode`` says, and take part when it moves their
    documents; those with earlier turns when a document of theirs stands there already.
    """
    single = [case for case in cases if not case.earlier]
    orders = engine_orders([case.documents for case in single], mode=mode, cache_tokens=cache_tokens)
    order_of = {case.key: order for case, order in zip(single, orders, strict=True)}
    trials = []
    for case in cases:
        if case.earlier:
            group, prompts = DEDUP, dedup_prompts(case, instructions=instructions)
        elif order_of[case.key] == tuple(range(len(case.documents))):
            continue
        else:
            group = ORDER
            prompts = order_prompts(case, order_of[case.key], instructions=instructions, seed=seed)
        if prompts:
            trials.append(Trial(group=group, answers=case.answers, prompts=prompts, cluster=case.cluster))
    return trials
