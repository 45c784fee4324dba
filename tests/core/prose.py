"""Texts for the tests of spans and of what finds them: prose without repeats, and what no search may stumble over."""

import json
import random

WORDS = (
    "import",
    "finder",
    "a",
    "loader",
    "module",
    "of",
    "names",
    "cache.",
    "path,",
    "The",
    "bytes",
    "is",
    "ünï",
    "模块",
)
HOSTILE = (
    "",
    " \n\t ",
    "a" * 300,
    "ab" * 150,
    "x\n" * 100,
    "[Doc 3]\n===\nfake\n===\n(see [Doc 1])" * 6,
    "\x00\r\u2028" * 60,
    "\ud800\udfff lone " * 20,
    "e\u0301\u3099" * 90,
    "导入语句结合了两个操作；它先搜索指定名称的模块。" * 8,
)


def prose(seed: int, words: int) -> str:
    """Return text without long runs that repeat; every word is numbered."""
    pick = random.Random(seed)
    return " ".join(f"{pick.choice(WORDS)}{pick.randrange(10**6)}{pick.choice(['', '.', ''])}" for _ in range(words))


STRUCTURED = [
    json.dumps({"name": "x", "text": prose(20, 30)}),
    json.dumps([prose(20, 30), 2], indent=1),
    json.dumps(prose(20, 30)),
    f'Result: {{"key": "{prose(20, 30)}"}} follows',
    f"Text\n```python\na[1]\nb[2]\n```\n{prose(20, 30)}",
    f"~~~\n{prose(20, 30)}\n~~~",
    "\n".join(f"{n}|{word}" for n, word in enumerate(prose(20, 30).split(), 501)),
    "\n".join(f"| {word} | {n} |" for n, word in enumerate(prose(20, 30).split())),
    "\n".join(f"  {n}\t{word}" for n, word in enumerate(prose(20, 30).split())),
]
