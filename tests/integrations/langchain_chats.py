"""LangChain's chat over fakes, one face for all ways of asking it, and what its prompts bring."""

import asyncio
import json

from langchain_core.documents import Document
from langchain_core.messages import messages_from_dict, messages_to_dict
from langchain_core.runnables import RunnableLambda

from contextpilot_integrations.langchain import create_contextpilot_chat
from tests.integrations.langchain_fakes import Lists, Recorder, chatml, names_in
from tests.parsing import ParsedBlock, parse_context

U = {"configurable": {"session_id": "u"}}
HOWS = ["invoke", "ainvoke", "stream", "astream"]


def chat_of(model=None, retriever=None, engine=None, **options):
    model = model or Recorder()
    return create_contextpilot_chat(retriever or Lists(), model, engine, **options), model


def fixed(*texts):
    return RunnableLambda(lambda query: [Document(page_content=text) for text in texts])


def asking(chat, how):
    """One face for all ways of asking: returns the text of the answer."""

    async def aread(question, config, options):
        return "".join([getattr(chunk, "content", chunk) async for chunk in chat.astream(question, config, **options)])

    def ask(question, config=None, **options):
        if how == "invoke":
            return chat.invoke(question, config, **options).content
        if how == "ainvoke":
            return asyncio.run(chat.ainvoke(question, config, **options)).content
        if how == "stream":
            return "".join(getattr(chunk, "content", chunk) for chunk in chat.stream(question, config, **options))
        return asyncio.run(aread(question, config, options))

    return ask


def extending(prompts):
    texts = [chatml(prompt) for prompt in prompts]
    return all(later.startswith(earlier) for earlier, later in zip(texts, texts[1:], strict=False))


def resolved(messages):
    """Names of the documents that each user message brings, its hints followed to blocks that stand before them."""
    shown, found = {}, []
    for message in messages:
        if message.type != "human":
            continue
        context = message.content.rpartition("\n\n")[0].split("\n\nRelevance: ")[0]
        bodies = []
        for item in parse_context(context):
            if isinstance(item, ParsedBlock):
                assert item.label not in shown
                shown[item.label] = item.body
                bodies.append(item.body)
            else:
                bodies.append(shown[int(item.line.split("[Doc ")[1].split("]")[0])])
        found.append({name for body in bodies for name in names_in(body)})
    return found


class Stored:
    """A history that keeps JSON, with asynchronous methods of its own."""

    def __init__(self, store):
        self.store, self.calls = store, []

    @property
    def messages(self):
        return messages_from_dict(json.loads(self.store[0])) if self.store else []

    def add_messages(self, messages):
        self.store[:] = [json.dumps(messages_to_dict([*self.messages, *messages]))]

    def clear(self):
        self.store.clear()

    async def aget_messages(self):
        self.calls.append("get")
        return self.messages

    async def aadd_messages(self, messages):
        self.calls.append("add")
        self.add_messages(messages)

    async def aclear(self):
        self.calls.append("clear")
        self.clear()
