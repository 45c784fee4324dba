"""LlamaIndex's chat engine over fakes, asked in one of its four ways, and what its prompts show."""

import asyncio
import json

from llama_index.core.base.llms.types import ChatMessage, MessageRole

from contextpilot_core import ReuseEngine
from contextpilot_integrations.llama_index import ContextPilotChatEngine
from tests.integrations.llama_index_fakes import TABLE, Recorder, TableRetriever
from tests.parsing import ParsedBlock, ParsedHint, parse_context

WAYS = ("chat", "achat", "stream_chat", "astream_chat")


class Chat:
    """A chat engine over the table, asked in one of the four ways, all in one event loop."""

    def __init__(self, way="chat", table=TABLE, llm=None, **options):
        self.llm = llm or Recorder()
        self.engine = options.pop("engine", None) or ReuseEngine()
        self.retriever = TableRetriever(table)
        self.chats = ContextPilotChatEngine.from_defaults(self.retriever, llm=self.llm, engine=self.engine, **options)
        self.way = way
        self.loop = asyncio.new_event_loop() if way.startswith("a") else None

    def __call__(self, question, **options):
        ask = getattr(self.chats, self.way)
        if self.loop:
            return self.loop.run_until_complete(self._ask(ask(question, **options)))
        response = ask(question, **options)
        return (response, "".join(response.response_gen)) if "stream" in self.way else (response, response.response)

    async def _ask(self, asked):
        response = await asked
        if "stream" in self.way:
            return response, "".join([piece async for piece in response.async_response_gen()])
        return response, response.response

    @property
    def prompts(self):
        return self.llm.prompts

    @property
    def history(self):
        """The memory's messages; read in the loop that uses them."""
        memory = self.chats._memory
        return self.loop.run_until_complete(memory.aget_all()) if self.loop else self.chats.chat_history

    def close(self):
        if self.loop:
            self.loop.close()


def shown(messages):
    """Label -> body of what user messages show, hints' labels by message; every hint names an earlier block."""
    bodies, hinted = {}, []
    for message in messages:
        named = []
        if message.role == MessageRole.USER and (message.content or "").startswith(("[Doc ", "See [Doc ")):
            for item in parse_context((message.content or "").split("\n\n")[0]):
                if isinstance(item, ParsedBlock):
                    assert item.label not in bodies
                    bodies[item.label] = item.body
                elif isinstance(item, ParsedHint):
                    label = int(item.line.removeprefix("See [Doc ").split("]")[0])
                    assert label in bodies
                    named.append(bodies[label])
        hinted.append(named)
    return bodies, hinted


def stored(messages):
    """Messages as they come back from a store."""
    return [ChatMessage.model_validate(json.loads(m.model_dump_json())) for m in messages]
