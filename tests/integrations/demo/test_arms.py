"""What each arm of the demo sends, seen by a client that only records it."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from contextpilot_core.types import ContextBlock
from contextpilot_integrations.demo.arms import BATCH_ARMS, CHAT_ARMS, Question, batch_steps, chat_steps, run_arm
from contextpilot_integrations.demo.endpoint import Endpoint
from contextpilot_integrations.demo.page.prompts import shared_prefix


class RecordingClient:
    """Answers every prompt with its number; reports no usage unless it is given one."""

    def __init__(self, usage: dict[str, Any] | None = None) -> None:
        self.chat = self.completions = self
        self.prompts: list[list[dict[str, Any]]] = []
        self.usage = usage

    def create(self, *, messages: list[dict[str, Any]], **options: Any) -> Iterator[Any]:
        self.prompts.append(messages)
        delta = SimpleNamespace(content=f" Answer {len(self.prompts)}. ", tool_calls=None)
        yield SimpleNamespace(choices=[SimpleNamespace(index=0, delta=delta, finish_reason="stop")], usage=None)
        yield SimpleNamespace(choices=[], usage=self.usage)


def endpoint(client: RecordingClient, *, clear: bool = True) -> Endpoint:
    return Endpoint(client=client, model="m", where="here", clear=(lambda: None) if clear else None)


def questions(*contexts: str) -> list[Question]:
    return [
        Question(
            number=number,
            text=f"Question {number}?",
            blocks=tuple(ContextBlock(text=f"Document {name}.\n" + f"All about {name}. " * 30) for name in context),
        )
        for number, context in enumerate(contexts)
    ]


def documents(message: dict[str, Any]) -> str:
    lines = message["content"].splitlines()
    return "".join(line.removeprefix("Document ").rstrip(".") for line in lines if line.startswith("Document "))


def test_plain_batch_keeps_retrieval_order_and_arrival() -> None:
    client = RecordingClient()
    arm = run_arm("plain", batch_steps("plain", questions("ABC", "XYZ", "CAB"), endpoint(client)), lambda *_: None)
    assert [documents(prompt[-1]) for prompt in client.prompts] == ["ABC", "XYZ", "CAB"]
    assert [answer.number for answer in arm.sent] == [0, 1, 2]


def test_contextpilot_batch_sends_the_same_documents_so_that_neighbours_share() -> None:
    client, asked = RecordingClient(), questions("ABC", "XYZ", "CAB", "ZYX")
    arm = run_arm("contextpilot", batch_steps("contextpilot", asked, endpoint(client)), lambda *_: None)
    assert [sorted(documents(answer.messages[-1])) for answer in arm.answers] == [list("ABC"), list("XYZ")] * 2
    assert [answer.number for answer in arm.sent] != [0, 1, 2, 3], "equal contexts are neighbours"
    shared = [shared_prefix(arm, answer) for answer in arm.sent]
    assert sum(size > 1000 for size in shared) == 2


@pytest.mark.parametrize("arm", BATCH_ARMS)
def test_every_batch_arm_answers_the_same_questions(arm: str) -> None:
    done = run_arm(arm, batch_steps(arm, questions("AB", "BA", "CD"), endpoint(RecordingClient())), lambda *_: None)
    assert [answer.question for answer in done.answers] == ["Question 0?", "Question 1?", "Question 2?"]
    assert all(answer.question in answer.messages[-1]["content"] for answer in done.sent)


def test_plain_chat_has_documents_in_the_last_message_only() -> None:
    client = RecordingClient()
    run_arm("plain", chat_steps("plain", questions("ABC", "BCD"), endpoint(client)), lambda *_: None)
    system, question, answer, last = client.prompts[1]
    assert system["role"] == "system"
    assert question == {"role": "user", "content": "Question 0?"}
    assert answer["content"].strip() == "Answer 1."
    assert documents(last) == "BCD"
    assert "[Doc 1]" in last["content"]


@pytest.mark.parametrize(("arm", "second"), [("plain_append_only", "BCD"), ("contextpilot", "D")])
def test_append_only_chats_extend_the_prompt_before(arm: str, second: str) -> None:
    client = RecordingClient()
    run_arm(arm, chat_steps(arm, questions("ABC", "BCD"), endpoint(client)), lambda *_: None)
    first, then = client.prompts
    assert then[: len(first)] == first
    assert documents(then[-1]) == second


@pytest.mark.parametrize("arm", CHAT_ARMS)
def test_chat_arms_tell_of_every_turn(arm: str) -> None:
    told: list[tuple[str, int]] = []
    steps = chat_steps(arm, questions("A", "B", "A"), endpoint(RecordingClient()))
    run_arm(arm, steps, lambda name, answer: told.append((name, answer.number)))
    assert told == [(arm, 0), (arm, 1), (arm, 2)]


def test_arms_share_nothing_where_the_server_cannot_be_emptied() -> None:
    client, asked = RecordingClient(), questions("AB", "AB")
    for arm in BATCH_ARMS:
        run_arm(arm, batch_steps(arm, asked, endpoint(client, clear=False)), lambda *_: None)
    beginnings = [prompt[0]["content"].splitlines()[0] for prompt in client.prompts]
    assert beginnings[0] == beginnings[1] != beginnings[2] == beginnings[3]
    assert len({line.split()[1] for line in beginnings}) == 2, "they differ before they name the arm"


@pytest.mark.parametrize("arm", CHAT_ARMS)
def test_usage_is_the_servers_and_unknown_stays_unknown(arm: str) -> None:
    usage = {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 0}}
    known = run_arm(arm, chat_steps(arm, questions("A"), endpoint(RecordingClient(usage))), lambda *_: None)
    silent = run_arm(arm, chat_steps(arm, questions("A"), endpoint(RecordingClient())), lambda *_: None)
    assert (known.prompt_tokens, known.cached_tokens, known.prefilled_tokens) == (100, 0, 100)
    assert (silent.prompt_tokens, silent.cached_tokens, silent.prefilled_tokens) == (None, None, None)
    assert known.sent[0].ttft_ms is not None and known.sent[0].text == "Answer 1."
