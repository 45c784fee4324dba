"""The earlier prompt with which a prompt shares most, found at the price of the prompt alone.

Prompts stand in a tree, part by part, and inside a part by its characters: what two of them share is one way from the
root. A way through a text is kept as the place of its characters in one of the prompts that go it.
"""

from collections.abc import Sequence

from contextpilot_core.diagnose.records import Part, common_from


class _Texts:
    """Texts that go on alike up to ``end`` (of ``text``); ``latest`` of the prompts that hold one of them."""

    __slots__ = ("children", "end", "latest", "start", "text", "whole")

    def __init__(self, text: str, start: int, end: int) -> None:
        self.text, self.start, self.end = text, start, end
        self.children: dict[str, _Texts] = {}
        self.whole: _Parts | None = None  # what stands behind the text that ends here
        self.latest = -1

    def split(self, at: int) -> "_Texts":
        """Return the upper part up to ``at``, which has this one as its child from now on."""
        upper = _Texts(self.text, self.start, at)
        upper.latest, self.start = self.latest, at
        upper.children[self.text[at]] = self
        return upper


class _Parts:
    """What stands behind equal parts, by role; ``latest`` of the prompts that begin with them."""

    __slots__ = ("latest", "roles")

    def __init__(self) -> None:
        self.latest = -1
        self.roles: dict[str, _Texts] = {}


class Earlier:
    """The prompts so far, by number."""

    def __init__(self) -> None:
        self._root = _Parts()

    def nearest(self, parts: Sequence[Part]) -> int:
        """Return the prompt that shares most with ``parts``; of equals, and where none shares anything, the latest."""
        node = self._root
        for part in parts:
            behind, found = _follow(node, part)
            if behind is None:
                return found
            node = behind
        return node.latest

    def add(self, parts: Sequence[Part], number: int) -> None:
        """Take a prompt in; numbers ascend."""
        node = self._root
        node.latest = number
        for part in parts:
            node = _insert(node, part, number)
            node.latest = number


def _follow(node: _Parts, part: Part) -> tuple[_Parts | None, int]:
    """Return what stands behind ``part``; or None, and the latest prompt of those that share most of it."""
    texts = node.roles.get(part.role)
    found = node.latest
    while texts is not None:
        at = texts.start + common_from(texts.text, part.text, texts.start, texts.end)
        if at:
            found = texts.latest
        if at < texts.end:
            break
        if at == len(part.text):
            return texts.whole, found
        texts = texts.children.get(part.text[at])
    return None, found


def _insert(node: _Parts, part: Part, number: int) -> _Parts:
    """Let a text stand behind ``node``, and return what stands behind the text."""
    text = part.text
    texts = node.roles.get(part.role)
    if texts is None:
        texts = node.roles[part.role] = _Texts(text, 0, 0)
    while True:
        texts.latest = number
        at = texts.end
        if at == len(text):
            break
        child = texts.children.get(text[at])
        if child is None:
            child = _Texts(text, at, len(text))
        else:
            same = at + common_from(child.text, text, at, child.end)
            if same < child.end:
                child = child.split(same)
        texts.children[text[at]] = child
        texts = child
    if texts.whole is None:
        texts.whole = _Parts()
    return texts.whole
