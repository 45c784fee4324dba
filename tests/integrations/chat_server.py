"""A real HTTP server on this machine that speaks the chat-completions stream, and misbehaves when a test says so."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

GOOD_USAGE = {"prompt_tokens": 100, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 64}}


class Exchange:
    """One request, and the means to answer it."""

    def __init__(self, handler: BaseHTTPRequestHandler, body: dict):
        self.handler, self.body = handler, body

    def refuse(self, status: int, message: str = "no") -> None:
        self.answer({"error": {"message": message}}, status)

    def answer(self, content: dict, status: int = 200) -> None:
        self.page(json.dumps(content), "application/json", status)

    def page(self, text: str, kind: str = "text/html", status: int = 200) -> None:
        data = text.encode()
        self.handler.send_response(status)
        self.handler.send_header("Content-Type", kind)
        self.handler.send_header("Content-Length", str(len(data)))
        self.handler.send_header("Connection", "close")  # asynchronous tests ask from several event loops
        self.handler.end_headers()
        self.handler.wfile.write(data)

    def start(self, *, chunked: bool = True) -> None:
        self.chunked = chunked
        self.handler.send_response(200)
        self.handler.send_header("Content-Type", "text/event-stream")
        self.handler.send_header(*(("Transfer-Encoding", "chunked") if chunked else ("Connection", "close")))
        self.handler.end_headers()
        self.handler.wfile.flush()

    def send(self, text: str) -> None:
        data = text.encode()
        frame = f"{len(data):x}\r\n".encode() + data + b"\r\n" if self.chunked else data
        self.handler.wfile.write(frame)
        self.handler.wfile.flush()

    def chunk(self, delta: dict, finish: str | None = None, **more) -> None:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        base = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        self.send(f"data: {json.dumps({**base, 'choices': choices, **more})}\n\n")

    def usage(self, usage: dict | None) -> None:
        base = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        self.send(f"data: {json.dumps({**base, 'choices': [], 'usage': usage})}\n\n")

    def end(self) -> None:
        self.send("data: [DONE]\n\n")
        if self.chunked:
            self.handler.wfile.write(b"0\r\n\r\n")

    def hang_up(self) -> None:
        self.handler.close_connection = True
        self.handler.connection.close()


Behaviour = Callable[[Exchange], None]


def good(*pieces: str, usage: dict | None = GOOD_USAGE, **last) -> Behaviour:
    def behave(exchange: Exchange) -> None:
        exchange.start()
        exchange.chunk({"role": "assistant", "content": None})
        for piece in pieces or ("Hello", " there"):
            exchange.chunk({"content": piece})
        exchange.chunk({}, "stop", **last)
        if "stream_options" in exchange.body:
            exchange.usage(usage)
        exchange.end()

    return behave


def reporting(*usages: dict | None) -> Behaviour:
    """A stream whose pieces carry these usages, as servers with continuous statistics send them."""

    def behave(exchange: Exchange) -> None:
        exchange.start()
        exchange.chunk({"role": "assistant", "content": None})
        for usage in usages:
            exchange.chunk({"content": "so "}, usage=usage)
        exchange.chunk({}, "stop")
        exchange.end()

    return behave


def completing(*pieces: str, usage: dict | None = GOOD_USAGE) -> Behaviour:
    """The stream of ``/v1/completions``."""

    def behave(exchange: Exchange) -> None:
        assert exchange.handler.path == "/v1/completions"
        exchange.start()
        base = {"id": "c", "object": "text_completion", "created": 1, "model": "m"}
        for number, piece in enumerate(pieces):
            finish = "stop" if number == len(pieces) - 1 else None
            choice = {"index": 0, "text": piece, "logprobs": None, "finish_reason": finish}
            exchange.send(f"data: {json.dumps({**base, 'choices': [choice]})}\n\n")
        exchange.send(f"data: {json.dumps({**base, 'choices': [], 'usage': usage})}\n\n")
        exchange.end()

    return behave


def refusing(status: int, message: str = "no") -> Behaviour:
    return lambda exchange: exchange.refuse(status, message)


def breaking_off(*pieces: str, chunked: bool = True) -> Behaviour:
    """Half an answer, then a closed connection: an error for chunked bodies, a silent end for others."""

    def behave(exchange: Exchange) -> None:
        exchange.start(chunked=chunked)
        for piece in pieces:
            exchange.chunk({"content": piece})
        exchange.hang_up()

    return behave


class ChatServer:
    """Answers each question with the next behaviour of ``script``, then with the last one for ever.

    ``models`` answers whoever asks for the models that it serves.
    """

    def __init__(self) -> None:
        self.script: list[Behaviour] = [good()]
        self.models: Behaviour = refusing(501)
        self.requests: list[dict] = []
        self.base_url = ""
        self._lock = threading.Lock()

    def next_behaviour(self, body: dict) -> Behaviour:
        with self._lock:
            self.requests.append(body)
            return self.script.pop(0) if len(self.script) > 1 else self.script[0]


@contextmanager
def chat_server(host: str = "127.0.0.1") -> Iterator[ChatServer]:
    state = ChatServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            state.models(Exchange(self, {}))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            state.next_behaviour(body)(Exchange(self, body))

        def log_message(self, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

        def handle_error(self, request, client_address) -> None:
            """Clients and tests hang up as they like."""

    server = Server((host, 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    name = f"[{host}]" if ":" in host else host
    state.base_url = f"http://{name}:{server.server_address[1]}/v1"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
