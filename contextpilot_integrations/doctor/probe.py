"""Asks a pipeline a few questions and diagnoses the prompts that reach its model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from contextpilot_core import RequestError, RequestTypeError, TokenCounter, estimate_tokens
from contextpilot_core.diagnose import Diagnosis, PromptRecord, diagnose
from contextpilot_integrations.doctor.recording import Recorder, Recording
from contextpilot_integrations.extras import load


def probe(
    pipeline: Any,
    queries: Sequence[str],
    *,
    kv_block: int = 16,
    count: TokenCounter = estimate_tokens,
    make_input: Callable[[str], Any] | None = None,
    config: Mapping[str, Any] | None = None,
) -> Diagnosis:
    """Run a pipeline with two or more questions and say where and why its prompts stop sharing a prefix.

    The questions should be unlike each other but retrieve some of the same documents. Arguments and errors are those
    of `record` and of `contextpilot_core.diagnose.diagnose`. When both texts and messages were sent (several models),
    those of the last prompt's kind are compared. ``remarks`` say which results of an agent's tools cannot be taken
    apart, and so not be de-duplicated.
    """
    if len(queries) < 2:
        raise RequestError("queries must be a list of at least two questions, whose prompts are compared")
    recording = record(pipeline, queries, make_input=make_input, config=config)
    prompts = _one_kind(recording.prompts)
    if len(prompts) < 2:
        raise RequestError(
            f"{len(queries)} questions made {len(prompts)} calls to a model; give the whole chain or engine, with its "
            "model (a fake one will do)"
        )
    diagnosis = diagnose(prompts, kv_block=kv_block, count=count, documents=recording.documents)
    return replace(diagnosis, remarks=recording.remarks)


def record(
    pipeline: Any,
    queries: Sequence[str],
    *,
    make_input: Callable[[str], Any] | None = None,
    config: Mapping[str, Any] | None = None,
) -> Recording:
    """Run a pipeline once per question and return the prompts that its model was sent and the texts retrieved.

    The pipeline runs as it is, its model included: put a fake model into it to pay for nothing.

    Args:
        pipeline: a LangChain runnable (chain, agent), or a LlamaIndex query engine or chat engine.
        queries: the questions, in order.
        make_input: question to the input of a LangChain runnable; by default judged by its schema.
        config: for a LangChain runnable, passed to every call.

    Raises:
        RequestTypeError: ``pipeline`` is of neither framework, or ``queries`` is one text.
        RequestError: a chain does not say which key of its input takes the question.
    """
    if isinstance(queries, str):
        raise RequestTypeError("queries is one text, which would be asked letter by letter; give a list of questions")
    recorder = Recorder()
    run = _runner(pipeline, recorder, make_input, config)
    for query in queries:
        recorder.question = query
        run(query)
    return recorder.recording()


def _runner(
    pipeline: Any, recorder: Recorder, make_input: Callable[[str], Any] | None, config: Mapping[str, Any] | None
) -> Callable[[str], None]:
    """Return what asks ``pipeline`` one question; only its own framework is imported."""
    homes = {base.__module__.split(".")[0] for base in type(pipeline).__mro__}
    if "langchain_core" in homes and hasattr(pipeline, "invoke"):
        load("langchain_core", extra="langchain")
        from contextpilot_integrations.doctor import langchain_probe

        def ask(query: str) -> None:
            value = make_input(query) if make_input else langchain_probe.as_input(pipeline, query)
            langchain_probe.run(pipeline, value, recorder, config)

        return ask
    if "llama_index" in homes and (hasattr(pipeline, "query") or hasattr(pipeline, "chat")):
        if make_input or config:
            raise RequestTypeError("make_input and config are for LangChain runnables; leave them out for LlamaIndex")
        load("llama_index.core", extra="llama-index")
        from contextpilot_integrations.doctor import llama_index_probe

        return lambda query: llama_index_probe.run(pipeline, query, recorder)
    raise RequestTypeError(
        f"pipeline is a {type(pipeline).__name__}; give a LangChain runnable, a LlamaIndex query engine or chat "
        "engine, or give the prompts themselves to diagnose()"
    )


def _one_kind(prompts: Sequence[PromptRecord]) -> list[PromptRecord]:
    """Return the prompts that are texts, or lists of messages, as the last one is."""
    return [prompt for prompt in prompts if isinstance(prompt.prompt, str) == isinstance(prompts[-1].prompt, str)]
