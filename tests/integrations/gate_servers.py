"""Servers for the gate's tests: behaviours of `chat_server`, and questions whose documents the engine moves."""

import json
import math
import re
import socket

CODES = 72  # one more than are moved; with answers that are right or wrong, some 60 are needed


def answer(exchange, value, status=200):
    data = json.dumps(value).encode()
    # Header and body are sent apart; waiting for the header's acknowledgement would take 40 ms.
    exchange.handler.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    exchange.handler.send_response(status)
    exchange.handler.send_header("Content-Type", "application/json")
    exchange.handler.send_header("Content-Length", str(len(data)))
    exchange.handler.end_headers()
    exchange.handler.wfile.write(data)


def speaking(reader):
    """An OpenAI-compatible server without any way to likelihoods: its model finds the answer by ``reader(prompt)``."""

    def behave(exchange):
        if exchange.handler.path != "/v1/chat/completions":
            return answer(exchange, {"error": {"message": "no such path"}}, 404)
        text = reader(exchange.body["messages"][-1]["content"])
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        answer(exchange, {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})

    return behave


def saying(text, status):
    """Whatever is asked."""

    def behave(exchange):
        data = text.encode()
        exchange.handler.send_response(status)
        exchange.handler.send_header("Content-Type", "text/html" if text.startswith("<") else "application/json")
        exchange.handler.send_header("Content-Length", str(len(data)))
        exchange.handler.end_headers()
        exchange.handler.wfile.write(data)

    return behave


def documents(prompt):
    """The bodies of a prompt by label."""
    return {int(label): body for label, body in re.findall(r"\[Doc (\d+)\]\n===\n(.*?)\n===", prompt, re.DOTALL)}


def code(text):
    found = re.search(r"K\d+", text)
    return found[0] if found else "unknown"


def reads_everything(prompt):
    return code("\n".join(documents(prompt).values()))


def reads_the_first(prompt):
    return code(documents(prompt).get(1, ""))


def follows_the_note(prompt):
    named = re.search(r"(?:Relevance: |relevance: \[Doc )(\d+)", prompt)
    return code(documents(prompt).get(int(named[1]) if named else 1, ""))


def ignores_documents(prompt):
    return "K1"


def like_vllm(exchange):
    """Tokens are characters; the earlier one stands, the less likely it is: log p = -1 for the last, -2, -3, ..."""
    body, path = exchange.body, exchange.handler.path
    if path == "/tokenize":
        text = body.get("prompt") or "".join(message["content"] for message in body["messages"])
        return answer(exchange, {"tokens": [ord(letter) for letter in text]})
    assert path == "/v1/completions" and body["prompt_logprobs"] == 0
    tokens = body["prompt"]
    scored = [None] + [
        {str(token): {"logprob": float(place)}} for place, token in enumerate(tokens[1:], start=1 - len(tokens))
    ]
    choice = {"index": 0, "text": "x", "logprobs": None, "finish_reason": "length", "prompt_logprobs": scored}
    answer(exchange, {"id": "c", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]})


def moved_questions(number=CODES):
    """The engine moves the two shared documents before the one with the answer, in all but the first question."""
    shared = [
        "The cellar is locked at night, and nobody has the key.",
        "Boxes are kept in the cellar of the old house.",
    ]
    yield {"query": "Where are boxes kept?", "documents": [*shared, "K0 is a mountain."], "answers": ["the cellar"]}
    for place in range(1, number):
        box = f"Box {place} has the code K{math.factorial(place) % 9973 + place}."
        yield {"query": f"What is the code of box {place}?", "documents": [box, *shared], "answers": [code(box)]}


def repeated_questions(number=CODES):
    """Turns of conversations: the document with the answer stands in the turn before."""
    for place in range(number):
        box = f"Box {place} has the code K{place}, as everybody knows who has ever opened one of these boxes."
        earlier = [{"query": "Which boxes are there?", "documents": [box], "answer": f"Box {place}."}]
        other = f"House {place} is old."
        yield {"query": "Its code?", "documents": [box, other], "answers": [f"K{place}"], "earlier": earlier}


def write(path, questions):
    path.write_text("".join(json.dumps(question) + "\n" for question in questions))
    return path
