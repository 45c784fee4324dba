"""The doctor on real LlamaIndex pipelines: the prompt shapes of the docs, and what is wrong with each."""

import threading

import pytest

from contextpilot_integrations.doctor import probe, record
from tests.integrations.probed_pipelines import FOUND, NAMES, QUERIES, SHARED_FIRST, TEXTS, query_engine


def test_llama_index_query_engine(li):
    before = probe(query_engine(li), QUERIES)
    assert before.kinds == ("document_order", "document_set")
    after = probe(query_engine(li, retriever=li.retriever(SHARED_FIRST)), QUERIES)
    assert after.fine
    assert after.pairs[0].documents_before == 3
    assert after.reused_tokens > before.reused_tokens + 100


def test_llama_index_after_our_postprocessor(li):
    from contextpilot_integrations.llama_index import ContextPilotPostprocessor

    diagnosis = probe(query_engine(li, node_postprocessors=[ContextPilotPostprocessor()]), QUERIES)
    assert diagnosis.fine
    assert diagnosis.pairs[0].documents_before == 3


@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize("streaming", [True, False])
def test_llama_index_calls_are_recorded_once(li, chat, streaming):
    engine = query_engine(li, model=li.model if chat else li.completions, streaming=streaming)
    recording = record(engine, QUERIES)
    assert len(recording.prompts) == 2
    assert all(isinstance(prompt.prompt, str) is not chat for prompt in recording.prompts)
    assert set(recording.documents) == set(TEXTS.values())
    assert [prompt.question for prompt in recording.prompts] == QUERIES


def test_llama_index_scores_in_the_metadata(li):
    assert probe(query_engine(li, retriever=li.retriever(SHARED_FIRST, li.scores)), QUERIES).kinds == ("score",)


def test_llama_index_question_first_template(li):
    from llama_index.core.prompts import PromptTemplate

    template = PromptTemplate("Question: {query_str}\nContext:\n{context_str}\nAnswer: ")
    engine = query_engine(li, retriever=li.retriever(SHARED_FIRST), text_qa_template=template)
    diagnosis = probe(engine, QUERIES)
    assert diagnosis.findings[0].kind == "question_before_context"
    assert diagnosis.pairs[0].precedes_documents


def test_llama_index_context_chat_engine(li):
    from llama_index.core.chat_engine import ContextChatEngine

    def engine(table):
        return ContextChatEngine.from_defaults(retriever=li.retriever(table), llm=li.model, system_prompt="Be brief.")

    assert "document_order" in probe(engine(FOUND), QUERIES).kinds
    same = probe(engine({"A": NAMES[:4], "B": NAMES[:4]}), QUERIES)
    assert [f.kind for f in same.findings] == ["appended"]
    assert same.pairs[0].reused_tokens_upper >= same.pairs[0].reused_tokens > 200


def test_llama_index_condense_plus_context_chat_engine(li):
    from llama_index.core.chat_engine import CondensePlusContextChatEngine

    table = {**SHARED_FIRST, "S": SHARED_FIRST["B"]}  # the model condenses every question to "So it is."
    engine = CondensePlusContextChatEngine.from_defaults(retriever=li.retriever(table), llm=li.model)
    recording = record(engine, QUERIES)
    assert len(recording.prompts) == 3
    engine.reset()
    assert probe(engine, QUERIES).pairs


def test_llama_index_events_of_others_are_not_recorded(li):
    from llama_index.core.instrumentation import get_dispatcher

    before = list(get_dispatcher().event_handlers)
    other = query_engine(li)
    engine = query_engine(li)
    original = engine.retriever._retrieve

    def with_company(bundle):
        thread = threading.Thread(target=lambda: other.query("A and another one"))
        thread.start()
        thread.join()
        return original(bundle)

    engine.retriever._retrieve = with_company
    assert [prompt.question for prompt in record(engine, QUERIES).prompts] == QUERIES
    assert list(get_dispatcher().event_handlers) == before


def test_llama_index_listener_goes_away_after_an_error(li):
    from llama_index.core.instrumentation import get_dispatcher

    before = list(get_dispatcher().event_handlers)
    with pytest.raises(KeyError):
        record(query_engine(li), ["Zzz?"])
    assert list(get_dispatcher().event_handlers) == before
