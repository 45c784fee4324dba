"""Recorded prompts of all response modes and stock engines: no document in them ends in a note, none costs more.

`NOTED` says which of them show the note of a template that asks for it: only prompts with all nodes of their call.
"""

import asyncio
import itertools
import random
import re

import pytest

from tests.conftest import require

require("llama_index.core")

from llama_index.core import Settings  # noqa: E402
from llama_index.core.agent.workflow import FunctionAgent, ReActAgent  # noqa: E402
from llama_index.core.base.llms.types import ChatMessage, MessageRole, ToolCallBlock  # noqa: E402
from llama_index.core.base.response.schema import Response  # noqa: E402
from llama_index.core.chat_engine import (  # noqa: E402
    CondensePlusContextChatEngine,
    CondenseQuestionChatEngine,
    ContextChatEngine,
)
from llama_index.core.chat_engine.multi_modal_context import MultiModalContextChatEngine  # noqa: E402
from llama_index.core.evaluation.base import BaseEvaluator, EvaluationResult  # noqa: E402
from llama_index.core.indices.query.query_transform.base import StepDecomposeQueryTransform  # noqa: E402
from llama_index.core.llms.mock import MockFunctionCallingLLM  # noqa: E402
from llama_index.core.postprocessor import LongContextReorder, SimilarityPostprocessor  # noqa: E402
from llama_index.core.prompts import ChatPromptTemplate, PromptTemplate  # noqa: E402
from llama_index.core.query_engine import (  # noqa: E402
    CitationQueryEngine,
    MultiStepQueryEngine,
    RetrieverQueryEngine,
    RetryQueryEngine,
    RouterQueryEngine,
    SubQuestionQueryEngine,
)
from llama_index.core.question_gen.types import BaseQuestionGenerator, SubQuestion  # noqa: E402
from llama_index.core.response_synthesizers import ResponseMode, get_response_synthesizer  # noqa: E402
from llama_index.core.schema import ImageNode, NodeWithScore  # noqa: E402
from llama_index.core.selectors import LLMSingleSelector  # noqa: E402
from llama_index.core.tools import QueryEngineTool  # noqa: E402

from contextpilot_integrations.llama_index import ContextPilotPostprocessor  # noqa: E402
from tests.integrations.llama_index_fakes import Recorder, TableRetriever, chatml, common, document  # noqa: E402

_CHANCE = random.Random(3)
POOL = [document(f"P{n}", 400) for n in range(6)]
TABLE = {f"q{n}": _CHANCE.sample(POOL, 4) for n in range(6)}
NOTE = re.compile(r"\n\nDocuments above by relevance: (.+)")
QA = "Use this:\n{context_str}{order_note}\n\nAnswer {query_str}"


@pytest.fixture(autouse=True)
def a_model_for_what_takes_none():
    """Some modes never ask a model, and some engines make a part of theirs with that of the settings."""
    before, Settings.llm = Settings._llm, Recorder()
    yield
    Settings._llm = before


class Setup:
    """One pipeline: with our hook or without, with the note in its template or not."""

    def __init__(self, hooked, noted=False, **llm):
        self.hook = ContextPilotPostprocessor()
        self.hooks = [self.hook] if hooked else []
        self.llm = Recorder(self.reply, **llm)
        self.template = PromptTemplate(
            QA if noted else QA.replace("{order_note}", ""),
            function_mappings={"order_note": self.hook.order_note} if noted else None,
        )
        self.retriever = TableRetriever(TABLE)
        self.numbers = itertools.count()

    def reply(self, messages):
        text = messages[-1].content or ""
        if "New question" in text:  # a step of a question, or a question asked again
            return re.findall(r"q\d", text)[-1]
        if "choices" in text:
            return '[{"choice": 1, "reason": "it is the one"}]'
        if "Observation:" in text:
            return "Thought: I can answer without using any more tools.\nAnswer: yes"
        if "Action Input" in chatml(messages):
            return f'Thought: I look.\nAction: docs\nAction Input: {{"input": "{re.findall("q[0-9]", text)[-1]}"}}'
        return "an answer"

    def engine(self, mode="compact", **options):
        templates = {"text_qa_template": self.template, "summary_template": self.template}
        synthesizer = get_response_synthesizer(llm=self.llm, response_mode=mode, **templates, **options)
        return RetrieverQueryEngine(self.retriever, synthesizer, node_postprocessors=self.hooks)

    @property
    def prompts(self):
        return self.llm.prompts


def mode_of(mode, **options):
    return lambda setup: setup.engine(mode, **options).query


def citing(setup):
    return CitationQueryEngine.from_args(
        None,
        retriever=setup.retriever,
        llm=setup.llm,
        node_postprocessors=setup.hooks,
        citation_qa_template=setup.template,
        citation_chunk_size=64,
        citation_chunk_overlap=5,
    ).query


def routing(setup):
    tool = QueryEngineTool.from_defaults(setup.engine(), name="docs", description="Documents.")
    return RouterQueryEngine(LLMSingleSelector.from_defaults(llm=setup.llm), [tool], llm=setup.llm).query


class Halves(BaseQuestionGenerator):
    def generate(self, tools, query):
        key = re.search(r"q(\d)", query.query_str)
        return [SubQuestion(sub_question=f"q{(int(key.group(1)) + n) % 6} part", tool_name="docs") for n in range(2)]

    async def agenerate(self, tools, query):
        return self.generate(tools, query)

    def _get_prompts(self):
        return {}

    def _update_prompts(self, prompts):
        pass


def sub_questions(setup):
    tool = QueryEngineTool.from_defaults(setup.engine(), name="docs", description="Documents.")
    synthesizer = get_response_synthesizer(llm=setup.llm, text_qa_template=setup.template)
    return SubQuestionQueryEngine(Halves(), synthesizer, [tool], verbose=False, use_async=False).query


def multi_step(setup):
    return MultiStepQueryEngine(
        setup.engine(),
        StepDecomposeQueryTransform(llm=setup.llm),
        response_synthesizer=get_response_synthesizer(llm=setup.llm, text_qa_template=setup.template),
        num_steps=1,
    ).query


class SecondTry(BaseEvaluator):
    calls = 0

    async def aevaluate(self, query=None, response=None, contexts=None, **options):
        self.calls += 1
        return EvaluationResult(passing=self.calls % 2 == 0, feedback="again", response=response)

    def _get_prompts(self):
        return {}

    def _update_prompts(self, prompts):
        pass


def retrying(setup):
    return RetryQueryEngine(setup.engine(), SecondTry()).query


def context_chat(setup):
    return ContextChatEngine.from_defaults(
        setup.retriever, llm=setup.llm, node_postprocessors=setup.hooks, context_template=setup.template
    ).chat


def condense_plus(setup):
    return CondensePlusContextChatEngine.from_defaults(
        setup.retriever,
        llm=setup.llm,
        node_postprocessors=setup.hooks,
        context_prompt=setup.template,
        condense_prompt="{chat_history} New question {question}",
    ).chat


def multi_modal(setup):
    return MultiModalContextChatEngine.from_defaults(
        setup.retriever,
        multi_modal_llm=setup.llm,
        node_postprocessors=setup.hooks,
        context_template=setup.template,
    ).chat


def condense_question(setup):
    chat = CondenseQuestionChatEngine.from_defaults(
        setup.engine(), llm=setup.llm, condense_question_prompt=PromptTemplate("{chat_history} New question {question}")
    )
    return chat.chat


def react(setup):
    tool = QueryEngineTool.from_defaults(setup.engine(), name="docs", description="Documents.")
    agent = ReActAgent(tools=[tool], llm=setup.llm, streaming=False)

    async def run(question):
        return await agent.run(user_msg=question)

    return lambda question: asyncio.run(run(question))


def function_agent(setup):
    def reply(messages, **options):
        if messages[-1].role == MessageRole.TOOL:
            return ChatMessage(role=MessageRole.ASSISTANT, content="yes")
        call = ToolCallBlock(
            tool_call_id=f"c{next(setup.numbers)}", tool_name="docs", tool_kwargs={"input": messages[-1].content}
        )
        return ChatMessage(role=MessageRole.ASSISTANT, blocks=[call])

    def streamed(messages, **options):
        async def one():
            yield reply(messages)

        return one()

    tool = QueryEngineTool.from_defaults(setup.engine(), name="docs", description="Documents.")
    agent = FunctionAgent(tools=[tool], llm=MockFunctionCallingLLM(response_generator=streamed, is_chat_model=True))

    async def run(question):
        return await agent.run(user_msg=question)

    return lambda question: asyncio.run(run(question))


NOTED = {
    "compact": (mode_of("compact"), True),
    "simple_summarize": (mode_of("simple_summarize"), True),
    "tree_summarize": (mode_of("tree_summarize"), True),
    "compact_accumulate": (mode_of("compact_accumulate"), True),
    "refine": (mode_of("refine"), False),
    "accumulate": (mode_of("accumulate"), False),
    "generation": (mode_of("generation"), False),
    "no_text": (mode_of("no_text"), False),
    "context_only": (mode_of("context_only"), False),
    "citations": (citing, False),
    "router": (routing, True),
    "sub-questions": (sub_questions, True),
    "multi-step": (multi_step, True),
    "retry": (retrying, True),
    "context chat": (context_chat, True),
    "condense plus context": (condense_plus, False),
    "multi-modal context chat": (multi_modal, True),
    "condense question": (condense_question, True),
    "ReAct agent": (react, True),
    "function agent": (function_agent, True),
}
"""Engine -> how it is made, and whether the note of a template reaches its prompts."""


def prefilled(prompts):
    """Characters that none of the prompts before starts with."""
    shared = [max([common(prompt, other) for other in prompts[:n]], default=0) for n, prompt in enumerate(prompts)]
    return sum(map(len, prompts)) - sum(shared)


def asked(make, **setup):
    made = Setup(**setup)
    ask = make(made)
    return made, [ask(f"{key} what?") for key in TABLE]


def nodes_in(response):
    return [item.node.get_content() for item in getattr(response, "source_nodes", None) or ()]


@pytest.mark.parametrize("name", [*NOTED])
def test_no_engine_prefills_more_and_no_document_is_lost_or_changed(name):
    make, _ = NOTED[name]
    plain, before = asked(make, hooked=False)
    ours, after = asked(make, hooked=True)
    assert len(ours.prompts) == len(plain.prompts)
    print(f"{name}: {prefilled(plain.prompts)} characters prefilled without us, {prefilled(ours.prompts)} with us")
    assert prefilled(ours.prompts) <= prefilled(plain.prompts)
    for text in POOL:
        assert "".join(ours.prompts).count(text) == "".join(plain.prompts).count(text)
    assert not any("by relevance" in prompt for prompt in ours.prompts)
    if name != "citations":  # its nodes are parts, numbered in their order
        assert [sorted(nodes_in(response)) for response in after] == [sorted(nodes_in(response)) for response in before]


@pytest.mark.parametrize("name", [*NOTED])
def test_a_template_shows_the_note_where_it_holds_and_nowhere_else(name):
    make, expected = NOTED[name]
    made, answers = asked(make, hooked=True, noted=True)
    notes = [found for prompt in made.prompts if (found := NOTE.search(prompt))]
    assert bool(notes) == expected
    for prompt in made.prompts:
        assert len(NOTE.findall(prompt)) <= 1
        assert "{order_note}" not in prompt
    orders = {tuple(found) for found in TABLE.values()}
    for found in notes:
        shown = sorted([text for text in POOL if text in found.string], key=found.string.index)
        best_first = tuple(shown[int(re.match(r"\d+", place).group()) - 1] for place in found.group(1).split(", "))
        assert best_first in orders
    assert not any("by relevance" in text for response in answers for text in nodes_in(response))


@pytest.mark.parametrize("mode", ["compact", "tree_summarize"])
def test_where_not_all_nodes_fit_into_one_prompt_there_is_no_note(mode):
    made, _ = asked(mode_of(mode), hooked=True, noted=True, window=700)
    assert len(made.prompts) > len(TABLE)
    assert not any(NOTE.search(prompt) for prompt in made.prompts)


@pytest.mark.parametrize("way", ["async", "streamed", "async streamed"])
@pytest.mark.parametrize("mode", ["compact", "refine", "tree_summarize", "simple_summarize"])
def test_every_way_of_asking_sends_the_same(mode, way):
    one, _ = asked(mode_of(mode), hooked=True, noted=True)
    other = Setup(hooked=True, noted=True)
    engine = other.engine(mode, streaming="streamed" in way)
    for key in TABLE:
        question = f"{key} what?"
        answer = asyncio.run(_read(engine, question)) if way.startswith("async") else engine.query(question)
        assert str(answer)
    assert other.prompts == one.prompts


async def _read(engine, question):
    response = await engine.aquery(question)
    return str(response) if isinstance(response, Response) else str(await response.get_response())


@pytest.mark.parametrize("caption", ["", "a caption"])
def test_a_picture_among_the_nodes_is_neither_text_nor_lost(caption):
    hook = ContextPilotPostprocessor()
    picture = NodeWithScore(node=ImageNode(text=caption, image_url="http://x/1.png"), score=0.9)
    template = PromptTemplate(QA, function_mappings={"order_note": hook.order_note})
    retriever = TableRetriever({"q1": POOL[:3], "q2": [picture, POOL[1], POOL[0]]})
    llm = Recorder()
    chat = MultiModalContextChatEngine.from_defaults(
        retriever, multi_modal_llm=llm, node_postprocessors=[hook], context_template=template
    )
    chat.chat("q1")
    response = chat.chat("q2")
    (found,) = [item.node for item in response.source_nodes if isinstance(item.node, ImageNode)]
    assert (found.node_id, found.text, found.image_url) == (picture.node.node_id, caption, "http://x/1.png")
    sent = llm.messages[-1][-1]
    assert [block.block_type for block in sent.blocks] == ["image", "text"]
    # A caption is a text that this engine leaves out, so that the note would count what is not there.
    assert ("by relevance: 2nd, 1st" in sent.blocks[1].text) == (caption == "")


def test_a_chat_template_may_hold_the_note():
    made = Setup(hooked=True)
    template = ChatPromptTemplate.from_messages(
        [("system", "Be kind."), ("user", QA)], function_mappings={"order_note": made.hook.order_note}
    )
    made.template = template
    ask = made.engine().query
    for key in TABLE:
        ask(f"{key} what?")
    assert any(NOTE.search(prompt) for prompt in made.prompts)


def test_all_modes_of_the_framework_are_here():
    assert {mode.value for mode in ResponseMode} <= set(NOTED)


@pytest.mark.parametrize(
    ("placed", "expected"),
    [
        (lambda hook: [ContextPilotPostprocessor(engine=hook.engine), hook], True),
        (lambda hook: [SimilarityPostprocessor(similarity_cutoff=0.65), hook], True),
        (lambda hook: [hook, SimilarityPostprocessor(similarity_cutoff=0.75)], False),
        (lambda hook: [hook, LongContextReorder()], False),
    ],
    ids=["two hooks", "a cut before", "a cut behind", "another order behind"],
)
def test_a_note_holds_for_what_stands_in_the_prompt(placed, expected):
    made = Setup(hooked=True, noted=True)
    made.hooks = placed(made.hook)
    ask = made.engine().query
    for key in TABLE:
        ask(f"{key} what?")
    assert any(NOTE.search(prompt) for prompt in made.prompts) == expected
