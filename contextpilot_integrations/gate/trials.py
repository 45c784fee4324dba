"""From a user's questions to trials: which of them reordering or de-duplication changes, and their prompts."""

from collections.abc import Sequence

from contextpilot_integrations.gate.arms import dedup_prompts, order_prompts
from contextpilot_integrations.gate.cases import Case
from contextpilot_integrations.gate.evaluate import Trial
from contextpilot_integrations.gate.orders import Mode, engine_orders

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
