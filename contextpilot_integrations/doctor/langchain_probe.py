"""Runs a LangChain object and listens to its callbacks."""

from collections.abc import Mapping, Sequence
from typing import Any, cast
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.messages import BaseMessage, convert_to_openai_messages
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import merge_configs

from contextpilot_core import RequestError
from contextpilot_integrations.doctor.recording import Recorder
from contextpilot_integrations.langchain.agent.results import why_left

_QUESTION_KEYS = ("input", "question", "query", "messages")
_HISTORY_KEYS = ("chat_history", "history")


class _Listener(BaseCallbackHandler):
    """Hands what models and retrievers are given and give to a recorder."""

    raise_error = True
    run_inline = True

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._parents: dict[UUID, UUID | None] = {}
        self._retrieving: set[UUID] = set()

    def on_chain_start(
        self, serialized: dict[str, Any], inputs: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        self._parents[run_id] = parent_run_id

    def on_tool_start(
        self,
        serialized: dict[str, Any],
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        self._parents[run_id] = parent_run_id

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        reason = why_left(output, retriever=run_id in self._retrieving) if isinstance(output, BaseMessage) else None
        if reason is not None:
            self._recorder.remark(reason)

    def on_chat_model_start(self, serialized: dict[str, Any], messages: list[list[BaseMessage]], **kwargs: Any) -> None:
        tools = (kwargs.get("invocation_params") or {}).get("tools") or ()
        for prompt in messages:
            converted = convert_to_openai_messages(prompt)
            self._recorder.prompt(converted, [tool for tool in tools if isinstance(tool, Mapping)])

    def on_llm_start(self, serialized: dict[str, Any], prompts: list[str], **kwargs: Any) -> None:
        for prompt in prompts:
            self._recorder.prompt(prompt)

    def on_retriever_end(
        self, documents: Sequence[Document], *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        while parent_run_id is not None:
            self._retrieving.add(parent_run_id)
            parent_run_id = self._parents.get(parent_run_id)
        for document in documents:
            self._recorder.document(document.page_content)


def run(chain: Runnable[Any, Any], value: Any, recorder: Recorder, config: Mapping[str, Any] | None) -> None:
    """Invoke ``chain`` with a value and record what happens."""
    given = cast(RunnableConfig, dict(config or {}))
    chain.invoke(value, merge_configs(given, RunnableConfig(callbacks=[_Listener(recorder)])))


def as_input(chain: Runnable[Any, Any], query: str) -> Any:
    """Return what ``chain`` takes as its input for a question, judged by its schema.

    Raises:
        RequestError: it takes a mapping without a key that says where the question goes.
    """
    keys, required = _keys(chain)
    if keys is None:
        return query
    key = next((key for key in _QUESTION_KEYS if key in keys), None)
    if key is None and len(required) == 1:
        key = required[0]
    if key is None:
        raise RequestError(
            f"the chain takes a mapping with the keys {', '.join(map(repr, keys))}; say which holds the question: "
            "make_input=lambda query: {...}"
        )
    question: Any = [{"role": "user", "content": query}] if key == "messages" else query
    return {**{name: [] for name in _HISTORY_KEYS if name in keys}, key: question}


def _keys(chain: Runnable[Any, Any]) -> tuple[list[str] | None, list[str]]:
    """Return the keys of the input and those that are required; None when the input is no mapping."""
    given = getattr(chain, "input_keys", None)
    if isinstance(given, list):
        return given, given
    schema = chain.get_input_jsonschema()
    if schema.get("type") != "object":
        return None, []
    return list(schema.get("properties", {})), list(schema.get("required", ()))
