"""What the chat engine takes from its LLM: the room for a prompt, and what goes along with requests."""

from collections.abc import Mapping
from typing import Any

from llama_index.core.llms.llm import LLM
from llama_index.core.memory import BaseMemory, ChatSummaryMemoryBuffer, SimpleComposableMemory, VectorMemory

from contextpilot_core import ConfigError
from contextpilot_core.checks import kind_of, whole_number
from contextpilot_integrations.serving.chat import Tenants

_ANSWER_TOKENS = 256


def extra_body(llm: LLM) -> Mapping[str, Any]:
    """Return what stands in the ``extra_body`` of every request, as OpenAI-compatible LLMs have it."""
    return getattr(llm, "additional_kwargs", {}).get("extra_body") or {}


def salted(llm: LLM, tenants: Tenants, namespace: str) -> LLM:
    """Return a copy of ``llm`` that sends the salt of a namespace. Raises `ConfigError`."""
    options = getattr(llm, "additional_kwargs", None)
    if not isinstance(options, dict):
        raise ConfigError(
            f"llm is a {type(llm).__name__}, whose requests have no additional_kwargs to hold the salt of tenants; "
            "give an OpenAI or OpenAILike, or leave tenants out"
        )
    return llm.model_copy(update={"additional_kwargs": tenants.salted(options, namespace)})


def window_and_room(max_context_tokens: int | None, llm: LLM, memory: BaseMemory | None) -> tuple[int, int]:
    """Return the tokens of prompt and answer together, and the most of a prompt. Raises `ConfigError`."""
    check_memory(memory)
    answer = max(_ANSWER_TOKENS if max_context_tokens is None else 0, llm.metadata.num_output)
    window = llm.metadata.context_window if max_context_tokens is None else max_context_tokens
    whole_number("max_context_tokens", window, "give None for that of the LLM")
    most = getattr(memory, "token_limit", window)
    return min(window, most), min(max(1, window - min(window // 2, answer)), most)


def check_memory(memory: BaseMemory | None) -> None:
    """Refuse what adds to the messages that it holds, or leaves some out. Raises `ConfigError`."""
    if isinstance(memory, SimpleComposableMemory) and not memory.secondary_memory_sources:
        return check_memory(memory.primary_memory)
    reason = ""
    if getattr(memory, "memory_blocks", None):
        reason = "has memory_blocks, whose text would change the head of every prompt"
    elif isinstance(memory, SimpleComposableMemory):
        reason = "has secondary_memory_sources, whose text would change the head of every prompt"
    elif isinstance(memory, ChatSummaryMemoryBuffer) and memory.llm is not None:
        reason = "summarises, which would change the head of every prompt"
    elif isinstance(memory, VectorMemory):
        reason = "shows some of its messages, others for every question"
    if reason:
        raise ConfigError(
            f"memory is a {type(memory).__name__} that {reason}; give a ChatMemoryBuffer, or a Memory without "
            "memory_blocks, or keep ContextChatEngine with a ContextPilotPostprocessor"
        )


def check_list(name: str, values: object, kind: type) -> None:
    """Raise `ConfigError` unless ``values`` is a list or a tuple of objects of this ``kind``."""
    kind_of(name, values, (list, tuple), f"a list of {kind.__name__}")
    for value in values:  # type: ignore[attr-defined]
        kind_of(f"one of {name}", value, kind, f"a {kind.__name__}")
