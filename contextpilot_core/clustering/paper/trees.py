"""The trees of strategy "paper" in one namespace: one for everything that stands behind the same head."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from contextpilot_core.cache import Path
from contextpilot_core.clustering.orders import prefix_first
from contextpilot_core.clustering.paper.tree import ContextTree
from contextpilot_core.clustering.values import Arranged
from contextpilot_core.errors import IntegrityError


class PaperTrees:
    """Owns the trees, and which of them holds which request. ``alpha`` as in eq. 1."""

    def __init__(self, alpha: float) -> None:
        self._alpha = alpha
        self._trees: dict[Path, ContextTree] = {}
        self._tree_of: dict[str, Path] = {}

    def matched(self, head: Path, wanted: Sequence[int]) -> Path:
        """Return the prefix that the tree behind ``head`` has for ``wanted`` (algorithm 1); none without a tree."""
        tree = self._trees.get(head)
        return () if tree is None else tree.matched(wanted)

    def insert(self, request_id: str, head: Path, context: Path) -> None:
        """Put a request into its tree, unless it is in one."""
        if context and request_id not in self._tree_of:
            self._trees.setdefault(head, ContextTree(self._alpha)).insert(request_id, tuple(dict.fromkeys(context)))
            self._tree_of[request_id] = head

    def knows(self, head: Path) -> bool:
        """Tell whether there is a tree behind ``head``."""
        return head in self._trees

    def arrange(self, head: Path, contexts: Mapping[str, Path], built: tuple[ContextTree, Arranged] | None) -> Arranged:
        """Insert the contexts of a batch: the tree that was ``built`` for them, or each into the one that is there."""
        if built is not None and head not in self._trees and len(built[0]):
            self._trees[head], arranged = built
            self._tree_of.update(dict.fromkeys(contexts, head))
            return arranged
        tree = self._trees.setdefault(head, ContextTree(self._alpha))
        matched = [tree.matched(context) for context in contexts.values()]
        orders = [prefix_first(context, prefix) for context, prefix in zip(contexts.values(), matched, strict=True)]
        for request_id, context in contexts.items():
            tree.insert(request_id, context)
        self._tree_of.update(dict.fromkeys(contexts, head))
        # read last: a later insert may lengthen an earlier path
        return Arranged(orders, [tree.path(request_id) for request_id in contexts], list(map(len, matched)))

    def leave(self, request_id: str) -> None:
        """Take a request out of its tree, if it is in one."""
        head = self._tree_of.pop(request_id, None)
        if head is None:
            return
        tree = self._trees[head]
        tree.evict(request_id)
        if not len(tree):
            del self._trees[head]

    def keep_only(self, is_live: Callable[[str], bool]) -> None:
        """Take the requests that are not live any more out of their trees."""
        for request_id in [name for name in self._tree_of if not is_live(name)]:
            self.leave(request_id)

    def check_integrity(self) -> None:
        """Raise `IntegrityError` unless trees and requests agree."""
        for tree in self._trees.values():
            tree.check_integrity()
        if Counter(self._tree_of.values()) != {head: len(tree) for head, tree in self._trees.items()}:
            raise IntegrityError("a request of the paper's trees is not recorded, or the reverse")
