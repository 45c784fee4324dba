"""Tool results as a retriever's tool makes them."""

from langchain_core.messages import ToolMessage

from tests.integrations.langchain_fakes import document
from tests.parsing import ParsedHint, parse_context


def result(*documents, content=None, call="c", **fields):
    found = [document(each) if isinstance(each, str) else each for each in documents]
    shown = "\n\n".join(each.page_content for each in found) if content is None else content
    return ToolMessage(shown, tool_call_id=call, artifact=found, **fields)


def contents(messages):
    return [message.content for message in messages]


def items(text):
    """What stands in a rendered result, but for the blank lines that the tool put between."""
    return [item for item in parse_context(text) if item != ParsedHint("")]
