"""A typo in an argument is an error, in every class and function that an application makes."""

import importlib
import inspect
import pkgutil

import pytest

import contextpilot_integrations
from tests.conftest import require

pydantic = require("pydantic")
for package in ("langchain.agents", "langchain_classic", "llama_index.core"):
    require(package)

from llama_index.core.instrumentation.events import BaseEvent  # noqa: E402
from llama_index.core.llms import MockLLM  # noqa: E402

from contextpilot_core import ReuseEngine  # noqa: E402
from contextpilot_integrations import langchain, llama_index  # noqa: E402
from contextpilot_integrations.retrieval import Bm25Index  # noqa: E402
from tests.integrations.langchain_fakes import Lists  # noqa: E402
from tests.integrations.llama_index_fakes import TableRetriever  # noqa: E402


def models():
    """Every public class of ours that is a pydantic model."""
    path, name = contextpilot_integrations.__path__, contextpilot_integrations.__name__
    for found in pkgutil.walk_packages(path, f"{name}."):
        if not found.name.endswith("__main__"):
            module = importlib.import_module(found.name)
            for cls in vars(module).values():
                if inspect.isclass(cls) and cls.__module__ == found.name and issubclass(cls, pydantic.BaseModel):
                    if not cls.__name__.startswith("_"):
                        yield cls


MODELS = sorted(models(), key=lambda cls: cls.__name__)


def test_the_models_are_found():
    names = {cls.__name__ for cls in MODELS}
    assert names >= {"ContextPilotRetriever", "ContextPilotCompressor", "ContextPilotPostprocessor", "IndexRetriever"}


@pytest.mark.parametrize("cls", MODELS, ids=lambda cls: cls.__name__)
def test_a_model_refuses_what_it_does_not_know(cls):
    with pytest.raises(pydantic.ValidationError, match=r"notes\n  Extra inputs are not permitted"):
        cls(notes="none")
    with pytest.raises(ValueError, match="no field|notes"):
        cls.model_construct().notes = "none"


MAKERS = {
    "retriever tool": lambda **more: langchain.create_contextpilot_retriever_tool(Lists(), "n", "d", **more),
    "chat": lambda **more: langchain.create_contextpilot_chat(Lists(), MockLLM(), **more),
    "prompt": lambda **more: langchain.create_contextpilot_prompt(**more),
    "step": lambda **more: langchain.reorder_documents(ReuseEngine(), **more),
    "middleware": lambda **more: langchain.ContextPilotMiddleware(**more),
    "chat engine": lambda **more: llama_index.ContextPilotChatEngine(TableRetriever(), llm=MockLLM(), **more),
    "chat engine from defaults": lambda **more: llama_index.ContextPilotChatEngine.from_defaults(
        TableRetriever(), llm=MockLLM(), **more
    ),
    "LangChain retriever": lambda **more: Bm25Index(["a"]).as_langchain_retriever(**more),
    "LlamaIndex retriever": lambda **more: Bm25Index(["a"]).as_llama_index_retriever(**more),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_function_refuses_what_it_does_not_know(make):
    with pytest.raises(TypeError, match="notes"):
        make(notes="none")


def test_what_a_framework_writes_is_read_again():
    """LlamaIndex adds the name of the class to the fields."""
    postprocessor = llama_index.ContextPilotPostprocessor(session_id="s", namespace="n")
    for copy in (
        llama_index.ContextPilotPostprocessor.from_dict(postprocessor.to_dict()),
        llama_index.ContextPilotPostprocessor.from_json(postprocessor.to_json()),
        llama_index.ContextPilotPostprocessor(**postprocessor.model_dump()),
        llama_index.ContextPilotPostprocessor.model_validate(postprocessor),
    ):
        assert (copy.session_id, copy.namespace) == ("s", "n")


def test_an_event_holds_what_all_events_hold():
    assert set(BaseEvent.model_fields) < set(llama_index.TurnEvent.model_fields)
