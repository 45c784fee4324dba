"""The client, LangChain's chat and LlamaIndex's chat engine behind one face, each with every way of asking it."""

import asyncio
import json
import re
import threading
from typing import Any

from contextpilot_core import ReuseEngine
from contextpilot_core.testing import ManualClock
from contextpilot_integrations.serving import AsyncContextPilotClient, ContextPilotClient
from contextpilot_integrations.serving.chat import whole
from tests.conftest import require
from tests.integrations.chat_server import Exchange, good
from tests.parsing import ParsedBlock, parse_context

openai = require("openai")
require("langchain_core")
require("llama_index.core")

from langchain_core.documents import Document  # noqa: E402
from langchain_core.messages import AIMessage, AIMessageChunk  # noqa: E402
from langchain_core.outputs import ChatGenerationChunk  # noqa: E402
from langchain_core.runnables import RunnableLambda  # noqa: E402
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, MessageRole  # noqa: E402
from llama_index.core.llms.callbacks import llm_chat_callback  # noqa: E402
from llama_index.core.memory import ChatMemoryBuffer  # noqa: E402
from llama_index_instrumentation.dispatcher import instrument_tags  # noqa: E402

from contextpilot_integrations.langchain import create_contextpilot_chat  # noqa: E402
from contextpilot_integrations.langchain.chat.history import MemoryHistories  # noqa: E402
from contextpilot_integrations.llama_index import ContextPilotChatEngine  # noqa: E402
from tests.integrations import langchain_fakes, llama_index_fakes  # noqa: E402

WINDOW = 100_000


def words(text):
    return len(text.split())


class Model:
    """What answers in all three: ``says`` ok after what is to happen ``meanwhile``, and when the ``gate`` is open.

    In ``trouble`` it "fails" before the first piece, "breaks" off after it, is "empty": no piece comes at all, or
    "silent": its pieces say nothing.
    """

    def __init__(self):
        self.prompts: list[list[tuple[str, str]]] = []
        self.meanwhile = lambda: None
        self.says = ("ok",)
        self.reports = None  # tokens of the prompt
        self.trouble = None
        self.gate = threading.Event()
        self.gate.set()
        self.busy = self.most_busy = 0

    @property
    def usage(self):
        return None if self.reports is None else {"prompt_tokens": self.reports, "completion_tokens": 1}

    @property
    def usage_metadata(self):
        if self.reports is None:
            return None
        return {"input_tokens": self.reports, "output_tokens": 1, "total_tokens": self.reports + 1}

    def asked(self, prompt):
        self.busy += 1
        self.most_busy = max(self.busy, self.most_busy)
        json.dumps(prompt, ensure_ascii=False).encode()  # as client libraries send it
        self.prompts.append(prompt)
        self.meanwhile()

    def answered(self):
        self.busy -= 1

    async def passing(self):
        while not self.gate.is_set():
            await asyncio.sleep(0.002)

    def pieces(self):
        if self.trouble == "fails":
            raise ConnectionError("failed")
        if self.trouble == "silent":
            yield from ("", " ", "\n")
        elif self.trouble != "empty":
            yield from self.says
        if self.trouble == "breaks":
            raise ConnectionError("broke off")

    def serve(self, exchange: Exchange) -> None:
        """Behave like a model server."""
        self.asked([(each["role"], each["content"]) for each in exchange.body["messages"]])
        self.gate.wait(20)
        self.answered()  # the client may ask again before this thread goes on behind the last piece
        if self.trouble in (None, "silent"):
            good(*self.pieces(), usage=self.usage)(exchange)
        elif self.trouble == "fails":
            exchange.refuse(500)
        else:
            exchange.start()
            if self.trouble == "breaks":
                exchange.chunk({"content": "ok"})
                exchange.hang_up()
            else:
                exchange.end()


class _LangChainModel(langchain_fakes.Recorder):
    model: Any

    def _prompt(self, messages):
        roles = {"human": "user", "ai": "assistant"}
        return [(roles.get(each.type, each.type), each.content) for each in messages]

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        self.model.asked(self._prompt(messages))
        try:
            self.model.gate.wait(20)
            said = "".join(self.model.pieces())
            self.answer = lambda _: AIMessage(said, usage_metadata=self.model.usage_metadata)
            return super()._generate(messages, stop, run_manager, **kwargs)
        finally:
            self.model.answered()

    async def _agenerate(self, messages, stop=None, run_manager=None, **kwargs):
        await self.model.passing()
        return self._generate(messages, stop, run_manager, **kwargs)

    def _stream(self, messages, stop=None, run_manager=None, **kwargs):
        self.model.asked(self._prompt(messages))
        try:
            self.model.gate.wait(20)
            for piece in self.model.pieces():
                yield ChatGenerationChunk(message=AIMessageChunk(content=piece))
            if self.model.reports is not None:
                yield ChatGenerationChunk(message=AIMessageChunk(content="", usage_metadata=self.model.usage_metadata))
        finally:
            self.model.answered()

    async def _astream(self, messages, stop=None, run_manager=None, **kwargs):
        await self.model.passing()
        for chunk in self._stream(messages, stop, run_manager, **kwargs):
            yield chunk


class _LlamaIndexModel(llama_index_fakes.Recorder):
    model: Any
    additional_kwargs: dict[str, Any] = {}

    def _said(self, messages):
        self.model.asked([(each.role.value, each.content) for each in messages])
        said = ""
        try:
            self.model.gate.wait(20)
            for piece in self.model.pieces():
                said += piece
                yield self._response(said, delta=piece)
        finally:
            self.model.answered()

    def _whole(self, messages):
        return self._response("".join([response.delta for response in self._said(messages)]))

    def _response(self, said, **more):
        message = ChatMessage(role=MessageRole.ASSISTANT, content=said)
        return ChatResponse(message=message, raw={"usage": self.model.usage}, **more)

    @llm_chat_callback()
    def chat(self, messages, **options):
        return self._whole(messages)

    @llm_chat_callback()
    async def achat(self, messages, **options):
        await self.model.passing()
        return self._whole(messages)

    @llm_chat_callback()
    def stream_chat(self, messages, **options):
        return self._said(messages)

    @llm_chat_callback()
    async def astream_chat(self, messages, **options):
        async def chunks():
            await self.model.passing()
            for response in self._said(messages):
                yield response

        return chunks()


class Talk:
    """One conversation, asked in one way: ``ask`` waits, ``aask`` is awaited. ``close`` it at the end."""

    kind = ""
    ways: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    """Where a session may be named, the nearest first; "around" is a ``with`` block."""
    names: dict[str, str] = {}

    def __init__(
        self, way, server, *, engine=None, window=WINDOW, instructions="Be brief.", names=None, count=words, extra=None
    ):
        self.way, self.server, self.model = way, server, Model()
        self.window, self.instructions, self.count = window, instructions, count
        self.bodies = {} if extra is None else {"extra_body": extra}
        self.names = self.names if names is None else names
        self.documents: dict[str, list[str]] = {}
        self.loop = asyncio.new_event_loop() if self.is_async else None
        self.use(engine or ReuseEngine(clock=ManualClock()))

    @property
    def is_async(self):
        return self.way.startswith("a")

    @property
    def is_stream(self):
        return "stream" in self.way

    def use(self, engine):
        """Go on with another engine, as another process would."""
        self.engine = engine
        plan = engine.plan

        def noted(*args, **options):
            self.sessions.append(options.get("session_id"))
            return plan(*args, **options)

        self.sessions, engine.plan = [], noted
        self.build()

    def ask(self, question, documents):
        if self.is_async:
            return self.loop.run_until_complete(self.aask(question, documents))
        self._prepare(question, documents)
        return self.asked(question)

    async def aask(self, question, documents):
        self._prepare(question, documents)
        return await self.awaited(question)

    def _prepare(self, question, documents):
        self.documents[question] = self.documents[whole(question)] = list(documents)
        self.server.script = [self.model.serve]

    @property
    def prompts(self):
        return self.model.prompts

    @property
    def users(self):
        """The user messages of the history, as they were sent."""
        return [content for role, content in self.history() if role == "user"]

    def close(self):
        self.model.gate.set()
        if self.loop is not None:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    def check(self):
        """Nothing is on its way, and the engine is sound."""
        assert self.engine.stats().in_flight == 0
        self.engine.check_integrity()


class ClientTalk(Talk):
    kind, ways = "client", ("chat", "achat", "stream", "astream")
    places, names = ("argument", "around"), {"argument": "u"}

    def build(self):
        kind, library = ContextPilotClient, openai.OpenAI
        if self.is_async:
            kind, library = AsyncContextPilotClient, openai.AsyncOpenAI
        before = getattr(self, "client", None)
        wrapped = library(base_url=self.server.base_url, api_key="-", max_retries=0, timeout=20)
        self.client = kind(
            wrapped, model="m", engine=self.engine, max_context_tokens=self.window, token_counter=self.count
        )
        if before is not None:  # a history has no other way to another client
            self.client._chats.sessions = before._chats.sessions

    @property
    def options(self):
        return {"session_id": self.names.get("argument"), "instructions": self.instructions, **self.bodies}

    def asked(self, question):
        call = self.client.stream if self.is_stream else self.client.chat
        answer = call(self.documents[question], question, **self.options)
        return "".join(answer) if self.is_stream else answer.answer

    async def awaited(self, question):
        if not self.is_stream:
            return (await self.client.chat(self.documents[question], question, **self.options)).answer
        stream = self.client.stream(self.documents[question], question, **self.options)
        async with stream:
            return "".join([piece async for piece in stream])

    def history(self):
        return [(each["role"], each["content"]) for each in self.client.history("u") if each["role"] != "system"]

    def reset(self):
        return self.client.reset("u")


class LangChainTalk(Talk):
    kind, ways = "langchain", ("invoke", "ainvoke", "stream", "astream")
    places, names = ("argument", "config", "around", "field"), {"config": "u"}

    def build(self):
        self.store = getattr(self, "store", None) or MemoryHistories(10)
        find = RunnableLambda(lambda question: [Document(page_content=text) for text in self.documents[question]])
        self.chat = create_contextpilot_chat(
            find,
            _LangChainModel(model=self.model),
            self.engine,
            history=self.store,
            instructions=self.instructions,
            session_id=self.names.get("field"),
            max_context_tokens=self.window,
            token_counter=self.count,
        )
        self.config = {"configurable": {"session_id": self.names.get("config")}}
        self.options = {"session_id": self.names["argument"]} if "argument" in self.names else {}
        self.options |= self.bodies

    def asked(self, question):
        if not self.is_stream:
            return self.chat.invoke(question, self.config, **self.options).content
        return "".join([chunk.content for chunk in self.chat.stream(question, self.config, **self.options)])

    async def awaited(self, question):
        if not self.is_stream:
            return (await self.chat.ainvoke(question, self.config, **self.options)).content
        return "".join([chunk.content async for chunk in self.chat.astream(question, self.config, **self.options)])

    def history(self):
        roles = {"human": "user", "ai": "assistant"}
        return [(roles[each.type], each.content) for each in self.chat.history("u")]

    def spoil(self, record):
        """Put something else where the records of the questions are, as another application may."""
        for message in self.store("u").messages[::2]:
            message.additional_kwargs["contextpilot"] = record

    def cut(self, keep):
        """Leave the messages at the places ``keep`` of the history, as an application may."""
        history = self.store("u")
        messages = history.messages
        history.clear()
        history.add_messages([messages[place] for place in keep])

    def reset(self):
        return self.chat.reset("u")


class LlamaIndexTalk(Talk):
    kind, ways = "llama_index", ("chat", "achat", "stream_chat", "astream_chat")
    places = ("config", "around", "field")

    def build(self):
        memory = getattr(self, "memory", None)
        self.memory = memory or ChatMemoryBuffer.from_defaults(
            token_limit=WINDOW, tokenizer_fn=lambda text: range(self.count(text))
        )
        self.retriever = llama_index_fakes.TableRetriever({})
        self.retriever.table = self.documents
        self.chat = ContextPilotChatEngine.from_defaults(
            self.retriever,
            llm=_LlamaIndexModel(model=self.model, additional_kwargs=self.bodies),
            engine=self.engine,
            memory=self.memory,
            system_prompt=self.instructions,
            session_id=self.names.get("field"),
            max_context_tokens=self.window,
        )

    def asked(self, question):
        with instrument_tags({"session_id": self.names.get("config")}):
            answer = getattr(self.chat, self.way)(question)
        return "".join(answer.response_gen) if self.is_stream else answer.response

    async def awaited(self, question):
        with instrument_tags({"session_id": self.names.get("config")}):
            answer = await getattr(self.chat, self.way)(question)
        if not self.is_stream:
            return answer.response
        return "".join([piece async for piece in answer.async_response_gen()])

    def history(self):
        return [(each.role.value, each.content) for each in self.memory.get_all()]

    def spoil(self, record):
        for message in self.memory.get_all()[::2]:
            message.additional_kwargs["contextpilot"] = record

    def cut(self, keep):
        messages = self.memory.get_all()
        self.memory.set([messages[place] for place in keep])

    def reset(self):
        return self.chat.reset()


KINDS = {each.kind: each for each in (ClientTalk, LangChainTalk, LlamaIndexTalk)}
WAYS = [(kind, way) for kind, each in KINDS.items() for way in each.ways]


def document(name, length=40):
    """A text of which no run stands in another one's."""
    return " ".join(f"{name}-{number}" for number in range(length))


def check_prompt(prompt):
    """Every label of a prompt stands for one block, and every hint names a block that stands before it.

    Returns what each user message shows or names: bodies as they stand there; None for a hint without a label.
    """
    bodies: dict[int, str] = {}
    found = []
    for content in [content for role, content in prompt if role == "user"]:
        found.append([])
        context, *note = re.split(r"\n\n(?=Relevance: |Read the documents)", content.rpartition("\n\n")[0])
        for item in parse_context(context):
            if isinstance(item, ParsedBlock):
                assert item.label not in bodies, f"[Doc {item.label}] stands twice"
                for label in re.findall(r"\(see \[Doc (\d+)\]\)", item.body):
                    assert int(label) in bodies, f"a run in [Doc {item.label}] is said to stand in {label}"
                bodies[item.label] = item.body
                found[-1].append(item.body)
            elif named := re.fullmatch(r"See \[Doc (\d+)\] above\.", item.line):
                assert int(named[1]) in bodies, f"{item.line!r} names what does not stand before it"
                found[-1].append(bodies[int(named[1])])
            else:
                assert item.line == "Same text as in an earlier message.", item.line
                found[-1].append(None)
        assert {int(label) for each in note for label in re.findall(r"\d+", each)} <= bodies.keys(), note
    return found


def extends(longer, shorter):
    """Whether a prompt starts with the whole of another one."""
    return longer[: len(shorter)] == shorter
