"""Tool results as a retriever's tool makes them."""

from langchain_core.messages import ToolMessage

from tests.integrations.langchain_fakes import document


def result(*documents, content=None, call="c", **fields):
    found = [document(each) if isinstance(each, str) else each for each in documents]
    shown = "\n\n".join(each.page_content for each in found) if content is None else content
    return ToolMessage(shown, tool_call_id=call, artifact=found, **fields)


def contents(messages):
    return [message.content for message in messages]
