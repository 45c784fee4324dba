"""The index of one namespace: which order a request should take, given what is cached and what was learnt.

It composes the interned blocks, the view of the cache, the paper's tree of contexts (strategy "paper" only) and the
orders learnt by ``warm``. Paths begin with the *head*: what stands in the prompt before the context of this turn.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contextpilot_core.cache.blocks import BlockTable
from contextpilot_core.cache.tree import PrefixTree
from contextpilot_core.cache.view import View
from contextpilot_core.clustering.paper.tree import ContextTree
from contextpilot_core.clustering.values import Arranged, Lead, Path
from contextpilot_core.config import EngineConfig
from contextpilot_core.errors import IntegrityError

_AGAIN = 0.25
"""What a token of an evicted path is worth that is likely to be sent again: a cached one goes first (measured)."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """What a request may use: ids by rank; ``allowance`` of the ``optional`` ones at most (selection)."""

    wanted: Path
    optional: frozenset[int] = frozenset()
    allowance: int = 0


def _allowed(blocks: Sequence[int], candidates: Candidates) -> Path:
    """Return the leading ``blocks`` that hold no more optional ones than selection allows."""
    left = candidates.allowance
    for place, block in enumerate(blocks):
        if block in candidates.optional:
            if not left:
                return tuple(blocks[:place])
            left -= 1
    return tuple(blocks)


class ContextIndex:
    """Match, insert and evict by namespace; one owner each for ids, cache view, paper trees and learnt orders.

    ``new_view`` makes the view over the interned blocks.
    """

    def __init__(self, config: EngineConfig, new_view: Callable[[BlockTable], View]) -> None:
        self._config = config
        self.blocks = BlockTable()
        self.view = new_view(self.blocks)
        self._learnt = PrefixTree(self.blocks.tokens)
        self._trees: dict[Path, ContextTree] = {}
        self._tree_of: dict[str, Path] = {}
        self.evictions = 0

    def lead(self, head: Path, candidates: Candidates) -> Lead:
        """Return the blocks that should come first after ``head``: the longest reusable path, or the paper's match."""
        if self._config.strategy == "none":
            return Lead()
        if self._config.strategy == "paper":
            tree = self._trees.get(head)
            return Lead(_allowed(tree.matched(candidates.wanted), candidates) if tree is not None else ())
        search: dict[str, Any] = {
            "max_visits": self._config.max_visits,
            "optional": candidates.optional,
            "allowance": candidates.allowance,
        }
        wanted = candidates.wanted
        best = Lead(self.view.longest(head, wanted, **search))
        best = self._better(head, best, self.view.usual(head, wanted, **search), _AGAIN)
        if not self._learnt.tokens:
            return best
        node, used, matched = self._learnt.walk(head)
        if matched < len(head):
            return best
        # Learnt paths pay only if they stay cached until then.
        capacity = self._config.cache_tokens
        stays = 1.0 if capacity is None else min(1.0, capacity / self._learnt.tokens)
        return self._better(head, best, self._learnt.longest(node, used, wanted, **search), stays / 2)

    def _better(self, head: Path, best: Lead, path: Path, share: float) -> Lead:
        """Choose between ``best`` and ``path``, whose tokens that are not cached now count by ``share``."""
        if not path:
            return best
        weights = self.blocks.tokens
        held = max(0, self.view.cached_blocks(head + path) - len(head))
        worth = sum(weights[block] for block in path[:held])
        worth += int(sum(weights[block] for block in path[held:]) * share)
        return Lead(path, worth) if worth > max(best.promise, sum(weights[block] for block in best.blocks)) else best

    def insert(self, request_id: str, head: Path, context: Path) -> None:
        """Let ``request_id`` hold ``head + context`` as the latest path."""
        if self._config.strategy == "paper" and context and request_id not in self._tree_of:
            self._trees.setdefault(head, ContextTree(self._config.alpha)).insert(
                request_id, tuple(dict.fromkeys(context))
            )
            self._tree_of[request_id] = head
        self.cut(self.view.admit(head + context, request_id))

    def cut(self, request_ids: Sequence[str]) -> None:
        """Take note of requests whose last blocks left the view."""
        self.evictions += len(request_ids)
        for request_id in request_ids:
            self.leave_tree(request_id)

    def install(self, head: Path, tree: ContextTree, contexts: Mapping[str, Path]) -> bool:
        """Strategy "paper": take over a tree that was clustered from ``contexts``; False when there is one already."""
        if head in self._trees or not len(tree):
            return False
        self._trees[head] = tree
        self._tree_of.update(dict.fromkeys(contexts, head))
        return True

    def extend(self, head: Path, contexts: Mapping[str, Path]) -> Arranged:
        """Strategy "paper": order the contexts of a batch by the tree below ``head``, and insert them."""
        tree = self._trees.setdefault(head, ContextTree(self._config.alpha))
        shared = [len(tree.matched(context)) for context in contexts.values()]
        orders = [tree.order(context) for context in contexts.values()]
        for request_id, context in contexts.items():
            tree.insert(request_id, context)
        self._tree_of.update(dict.fromkeys(contexts, head))
        # read last: a later insert may lengthen an earlier path
        return Arranged(orders, [tree.path(request_id) for request_id in contexts], shared)

    def has_tree(self, head: Path) -> bool:
        """Strategy "paper": tell whether there is a tree below ``head``."""
        return head in self._trees

    def evict(self, request_id: str) -> int | None:
        """Forget a request: the tokens that left the view, or None when the id is unknown."""
        self.leave_tree(request_id)
        freed = self.view.release(request_id)
        self.evictions += freed is not None
        return freed

    def learn(self, head: Path, orders: Sequence[Path]) -> None:
        """Remember ``orders`` as what is usually asked for after ``head``."""
        for order in orders:
            _, fresh = self._learnt.insert(head + order)
            self.blocks.acquire(fresh)

    def leave_trees(self) -> None:
        """Strategy "paper": take the requests that are not live any more out of their trees."""
        for request_id in [name for name in self._tree_of if not self.view.holds(name)]:
            self.leave_tree(request_id)

    def leave_tree(self, request_id: str) -> None:
        """Strategy "paper": take a request out of its tree, if it is in one."""
        head = self._tree_of.pop(request_id, None)
        if head is None:
            return
        tree = self._trees[head]
        tree.evict(request_id)
        if not len(tree):
            del self._trees[head]

    def check_integrity(self) -> None:
        """Raise `IntegrityError` unless the parts agree with each other."""
        self.view.check_integrity()
        self._learnt.check_integrity()
        held: Counter[int] = self.view.references()
        held.update(block for node in self._learnt.nodes() for block in node.blocks)
        self.blocks.check_integrity(held)
        for tree in self._trees.values():
            tree.check_integrity()
        if sum(len(tree) for tree in self._trees.values()) != len(self._tree_of):
            raise IntegrityError("a request of the paper's trees is not recorded, or the reverse")
