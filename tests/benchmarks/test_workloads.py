"""What real engines are sent: every arm asks the same questions about the same documents."""

import pytest

from benchmarks import peer
from tests.conftest import absent


@pytest.fixture(scope="module")
def sent(data_dir):
    """The workloads by their name, with the prompts of every arm."""
    if not peer.is_prepared():
        absent(f"there is no environment with contextpilot {peer.VERSION}; run: python -m benchmarks.peer")
    from benchmarks.workloads import ARMS, workloads

    return {
        name: (workload, {arm: build(workload, 32) for arm, build in ARMS.items()})
        for name, workload in workloads().items()
    }


def text(prompt):
    return "\n\n".join(message["content"] for message in prompt)


def test_every_arm_asks_every_question_once(sent):
    for workload, prompts in sent.values():
        asked = sorted(turn.question for _, turn in workload.arrivals())
        for arm in prompts.values():
            assert sorted(prompt[-1]["content"].rsplit("\n", 1)[-1] for prompt in arm) == asked


def test_every_prompt_shows_every_document_of_its_question(sent):
    for workload, prompts in sent.values():
        needed = {turn.question: workload.texts(turn.documents) for _, turn in workload.arrivals()}
        for arm, given in prompts.items():
            for prompt in given:
                shown = " ".join(text(prompt).split())
                for document in needed[prompt[-1]["content"].rsplit("\n", 1)[-1]]:
                    # Ours leaves out what stands elsewhere in the prompt; only where it cuts, words part.
                    assert missing(document, shown) <= (0.1 if arm == "ours" else 0), arm


def missing(document, shown):
    """The share of its runs of five words that the prompt does not show."""
    words = document.split()
    runs = [" ".join(words[first : first + 5]) for first in range(max(1, len(words) - 4))]
    return sum(run not in shown for run in runs) / len(runs)


def test_all_arms_have_one_layout(sent):
    for _, prompts in sent.values():
        shapes = [sorted(tuple(message["role"] for message in prompt) for prompt in arm) for arm in prompts.values()]
        assert shapes[0] == shapes[1] == shapes[2]
        assert len({str(prompt[0]) for arm in prompts.values() for prompt in arm}) == 1
