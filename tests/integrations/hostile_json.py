"""JSON that no field expects, to be put at every place of a file."""

NOTHING = ("null", "5", "-5", "1.5", "true", "NaN", "Infinity", "1e400", "9" * 400, '""', '"abc"', '"\\u0000"')
PARTS = ("[]", "[5]", "[null]", "[[]]", "[{}]", '["a"]', "{}", '{"a": 5}', '"\\ud83d"', '["\\ud83d"]')
DEEP = ("[" * 99 + "]" * 99, '{"a":' * 99 + "1" + "}" * 99, "[" * 3_000 + "]" * 3_000)
VALUES = (*NOTHING, *PARTS, *DEEP)
"""Each is JSON, or what Python takes for it; some are of the right type somewhere."""

BROKEN = {
    "nested lists": b"[" * 200_000,
    "nested objects": b'{"a":' * 200_000,
    "5,000 digits": b"9" * 5_000,
    "no UTF-8": b'"\xff\xfe\xfa"',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "zeros": b"\0\0\0\n",
    "half an object": b'{"query": "secret',
}
"""Files that hold no JSON."""


def one_line(done):
    """Tell whether a command ended as it should: done, or refused with one line; never with a traceback."""
    assert done.exit_code in (0, 1, 2), done
    assert "Traceback" not in done.stderr
    if done.exit_code == 2:
        assert done.stderr.startswith("contextpilot-rag: ") and done.stderr.count("\n") == 1, done
        assert len(done.stderr) < 3_000
    return done.exit_code == 2
