"""A chat server with a prefix cache per salt, whose events a mirror hears; a token is a character."""

import json

from contextpilot_core.mirror.mirror import KVMirror
from tests.core.kv_engine import Engine
from tests.integrations.chat_server import Exchange, good

SIZE = 16


def rendered(messages, tools=None, **options):
    """The prompt, as a chat template would write it."""
    turns = [f"<{message['role']}>{message['content']}" for message in messages]
    return "".join([json.dumps([tools, options]), *turns, "<assistant>"])


class Characters:
    """The `TokenSource` that fits."""

    def __init__(self):
        self.asked = []

    def chat(self, messages, *, tools, template_options):
        self.asked.append(messages)
        return self.piece(rendered(messages, tools, **template_options))

    def piece(self, text):
        return [ord(character) for character in text]

    text = piece


class Broken(Characters):
    def chat(self, messages, *, tools, template_options):
        raise RuntimeError(str(messages))


class CachingChat:
    """The behaviour of a `ChatServer`, for streams and whole answers."""

    def __init__(self):
        self.mirror = KVMirror(block_size=SIZE)
        self.serving = Engine(size=SIZE)
        self.reported: list[int] = []
        self.bodies: list[dict] = []

    def __call__(self, exchange: Exchange) -> None:
        body = exchange.body
        prompt = rendered(body["messages"], body.get("tools"), **body.get("chat_template_kwargs", {}))
        ids, salt = [ord(character) for character in prompt], body.get("cache_salt")
        cached = SIZE * self.serving.hit(ids, salt)
        self.serving.admit(ids, salt)
        self.mirror.apply(self.serving.take())
        self.reported.append(cached)
        self.bodies.append(body)
        details = {"prompt_tokens_details": {"cached_tokens": cached}}
        usage = {"prompt_tokens": len(ids), "completion_tokens": 1, "total_tokens": len(ids) + 1, **details}
        if body.get("stream"):
            good("ok", usage=usage)(exchange)
        else:
            message = {"role": "assistant", "content": "ok"}
            choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
            exchange.answer(
                {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": choices, "usage": usage}
            )
