"""What the tests rest on: the server answers, reports cached tokens, and starts again with an empty cache."""

PROMPT = "The lighthouse keeper counts the ships that pass. " * 12


def ask(server):
    body = {"model": server.model, "prompt": PROMPT, "max_tokens": 1}
    usage = server.post("/v1/completions", body)["usage"]
    return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


def test_a_repeat_is_cached_and_a_restart_forgets(server):
    tokens, first = ask(server)
    assert (first, ask(server)[1]) == (0, (tokens - 1) // server.block_size * server.block_size)
    server.restart()
    assert ask(server) == (tokens, 0)
