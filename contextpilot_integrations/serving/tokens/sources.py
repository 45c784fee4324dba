"""Where exact token ids come from: the model's tokenizer, the server's endpoints, or the response itself."""

from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any, Literal, Protocol

from contextpilot_core import ConfigError, Message
from contextpilot_core.checks import able, kind_of, number
from contextpilot_core.mirror import ProcessLock
from contextpilot_integrations import extras


class TokenSource(Protocol):
    """Tokenises as the serving engine does. It may raise anything: the tokens are unknown then."""

    def chat(
        self, messages: Sequence[Message], *, tools: Sequence[Any] | None, template_options: Mapping[str, Any]
    ) -> Sequence[int]:
        """Return the token ids of a chat prompt, up to where the answer begins."""
        ...

    def text(self, prompt: str) -> Sequence[int]:
        """Return the token ids of a text prompt, with the special tokens that the engine puts before it."""
        ...

    def piece(self, text: str) -> Sequence[int]:
        """Return the token ids of a part of a prompt, without special tokens around it."""
        ...


def check_source(tokens: object) -> None:
    """Raise `ConfigError` unless ``tokens`` is a `TokenSource`, or None."""
    if tokens is not None:
        able("tokens", tokens, ("chat", "text", "piece"), "a HuggingFaceTokens, a ServerTokens or the like")


class HuggingFaceTokens:
    """A local ``transformers`` tokenizer (or anything with ``apply_chat_template`` and ``encode``); thread-safe.

        HuggingFaceTokens(AutoTokenizer.from_pretrained(model))

    Its chat template must be the one that the engine uses.
    """

    def __init__(self, tokenizer: Any) -> None:
        """Wrap ``tokenizer``. Raises `ConfigError` when it lacks a method."""
        for name in ("apply_chat_template", "encode"):
            if not callable(getattr(tokenizer, name, None)):
                raise ConfigError(
                    f"tokenizer is a {type(tokenizer).__name__} without {name}; give a tokenizer of transformers"
                )
        self._tokenizer = tokenizer
        self._lock = ProcessLock()  # fast tokenizers refuse two threads at a time

    def chat(
        self, messages: Sequence[Message], *, tools: Sequence[Any] | None, template_options: Mapping[str, Any]
    ) -> Sequence[int]:
        """Return the token ids of a chat prompt. Raises `ConfigError` for contents that are no text."""
        if not all(isinstance(message.get("content") or "", str) for message in messages):
            raise ConfigError("the contents of messages must be texts: how engines render parts differs")
        options = {**template_options, "add_generation_prompt": True, "tokenize": False}
        with self._lock:
            prompt = self._tokenizer.apply_chat_template(list(messages), tools=tools, **options)
            ids: list[int] = self._tokenizer.encode(prompt, add_special_tokens=False)
        return ids

    def text(self, prompt: str) -> Sequence[int]:
        """Return the token ids of a text prompt."""
        with self._lock:
            ids: list[int] = self._tokenizer.encode(prompt)
        return ids

    def piece(self, text: str) -> Sequence[int]:
        """Return the token ids of a part of a prompt."""
        with self._lock:
            ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids


class ServerTokens:
    """The serving engine's own endpoints: ``/tokenize`` of vLLM and SGLang, or llama.cpp's; thread-safe.

    Which of them is found out with the first question. One request per prompt, and one per new piece of it.
    """

    def __init__(
        self,
        base_url: str,
        *,
        model: str | None = None,
        api_key: str | None = None,
        timeout: float = 2.0,
        http_client: Any = None,
    ) -> None:
        """Connect to nothing yet.

        Args:
            base_url: of the OpenAI-compatible endpoint; a ``/v1`` at its end is cut off.
            model: the server's name for its model, where it has several.
            api_key: sent as the bearer token.
            timeout: seconds for each request.
            http_client: an ``httpx.Client`` to use instead of a new one; it stays yours to close.

        Raises:
            MissingExtraError: ``httpx`` is not installed.
            ConfigError: a value breaks its rule.
        """
        kind_of("base_url", base_url, str, "a str: that of the endpoint, http://HOST:PORT/v1")
        for name, value in (("model", model), ("api_key", api_key)):
            kind_of(name, value, (str, NoneType), "a str, or None for none")
        if http_client is not None:
            able("http_client", http_client, ["post"], "an httpx.Client, or None for a new one")
        self._root = base_url.rstrip("/").removesuffix("/v1")
        self._model = {} if model is None else {"model": model}
        self._headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._timeout = number("timeout", timeout, "give seconds for each request, 2 is usual", above=0)
        self._client = http_client or extras.load("httpx", extra="client").Client()
        self._found: Literal["openai", "llama.cpp"] | None = None

    def chat(
        self, messages: Sequence[Message], *, tools: Sequence[Any] | None, template_options: Mapping[str, Any]
    ) -> Sequence[int]:
        """Return the token ids of a chat prompt."""
        body: dict[str, Any] = {"messages": list(messages), "add_generation_prompt": True}
        if tools:
            body["tools"] = list(tools)
        if template_options:
            body["chat_template_kwargs"] = dict(template_options)
        if self._kind == "openai":
            return self._tokens(body)
        prompt = self._post("/apply-template", body)["prompt"]
        return self._tokens({"content": prompt, "add_special": True, "parse_special": True})

    def text(self, prompt: str) -> Sequence[int]:
        """Return the token ids of a text prompt."""
        return self._plain(prompt, special=True)

    def piece(self, text: str) -> Sequence[int]:
        """Return the token ids of a part of a prompt."""
        return self._plain(text, special=False)

    @property
    def _kind(self) -> Literal["openai", "llama.cpp"]:
        if self._found is None:  # each server reads the field that it knows, and ignores the other
            answer = self._post("/tokenize", {"prompt": "a", "content": "a"})
            self._found = "openai" if "count" in answer else "llama.cpp"
        return self._found

    def _plain(self, text: str, *, special: bool) -> Sequence[int]:
        if self._kind == "openai":
            return self._tokens({"prompt": text, "add_special_tokens": special})
        return self._tokens({"content": text, "add_special": special, "parse_special": True})

    def _tokens(self, body: Mapping[str, Any]) -> Sequence[int]:
        tokens: list[int] = self._post("/tokenize", body)["tokens"]
        return tokens

    def _post(self, path: str, body: Mapping[str, Any]) -> Any:
        url = f"{self._root}{path}"
        response = self._client.post(url, json={**self._model, **body}, headers=self._headers, timeout=self._timeout)
        response.raise_for_status()
        return response.json()


def read_token_ids(response: Any) -> Sequence[int] | None:
    """Read the prompt's token ids from a response, or from a chunk of a stream; None when it has none.

    Servers send them when asked with ``extra_body={"return_token_ids": True}``. vLLM: in the response of a chat, in the
    choices of a text completion, of a stream in its first chunk. SGLang: in the choices, and not in streams of chats.
    """
    choices = _get(response, "choices")
    for holder in (response, *(choices if isinstance(choices, (list, tuple)) else ())):
        ids = _get(holder, "prompt_token_ids")
        if isinstance(ids, Sequence) and ids and all(isinstance(token, int) for token in ids):
            return ids
    return None


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
