"""What one namespace knows of a request: what its messages show, what is cached, which orders are usual.

Paths begin with the *head*: what stands in the prompt before the context of this turn.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain

from contextpilot_core.cache import BlockTable, Path, PrefixTree, View, Wanted
from contextpilot_core.clustering import Lead, PaperTrees
from contextpilot_core.config import EngineConfig
from contextpilot_core.plan.request import Job
from contextpilot_core.prompt import Conversations, MessageRecord, Sections, Visible, label_lines
from contextpilot_core.tokens import TokenCounter

_AGAIN = 0.25
"""What a token of an evicted path is worth that is likely to be sent again: a cached one goes first (measured)."""


class ContextIndex:
    """Match, insert and evict in one namespace; one owner each for ids, cache view, learnt orders and paper's trees.

    ``paper``: None but for strategy "paper". ``lock``: the engine's. Its questions and `intern` take it themselves: a
    request is decided between them without it. What changes more than ids is done by who holds it.
    """

    def __init__(
        self,
        config: EngineConfig,
        blocks: BlockTable,
        view: View,
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        self._config, self.blocks, self.view = config, blocks, view
        self._lock = lock or nullcontext()
        self.paper = PaperTrees(config.alpha) if config.strategy == "paper" else None
        self._learnt = PrefixTree(blocks.tokens)
        self._lent: dict[Job, Path] = {}  # by request that was looked up, and is not let go yet
        self.evictions = 0

    def lead(self, head: Path, wanted: Path, optional: frozenset[int], allowance: int) -> Lead:
        """Return the blocks that should come first after ``head``: the longest reusable path, or the paper's match.

        ``wanted``: ids by rank. The lead holds at most ``allowance`` of the ``optional`` ones (selection).
        """
        if self._config.strategy == "none":
            return Lead()
        with self._lock:
            return self._lead(head, wanted, optional, allowance)

    def _lead(self, head: Path, wanted: Path, optional: frozenset[int], allowance: int) -> Lead:
        if self.paper is not None:
            return Lead(_allowed(self.paper.matched(head, wanted), optional, allowance))
        search = Wanted(wanted, self._config.max_visits, optional, allowance)
        best = Lead(self.view.longest(head, search))
        best = self._better(head, best, self.view.usual(head, search), _AGAIN)
        if not self._learnt.tokens:
            return best
        node, used, matched = self._learnt.walk(head)
        if matched < len(head):
            return best
        # Learnt paths pay only if they stay cached until then.
        capacity = self._config.cache_tokens
        stays = 1.0 if capacity is None else min(1.0, capacity / self._learnt.tokens)
        return self._better(head, best, self._learnt.longest(node, used, search), stays / 2)

    def _better(self, head: Path, best: Lead, path: Path, share: float) -> Lead:
        """Choose between ``best`` and ``path``, whose tokens that are not cached now count by ``share``."""
        if not path:
            return best
        held = max(0, self.view.cached_blocks(head + path) - len(head))
        worth = self.tokens(path[:held]) + int(self.tokens(path[held:]) * share)
        return Lead(path, worth) if worth > max(best.promise, self.tokens(best.blocks)) else best

    def cached_blocks(self, path: Path) -> int:
        """Return how many leading blocks of ``path`` are cached."""
        with self._lock:
            return self.view.cached_blocks(path)

    def cached_tokens(self, head: Path, blocks: Path) -> int:
        """Return the tokens of the leading ``blocks`` that are cached behind ``head``."""
        with self._lock:
            held = self.view.cached_blocks(head + blocks) - len(head)
            return self.tokens(blocks[: max(0, held)])

    def tokens(self, blocks: Sequence[int]) -> int:
        """Return the tokens of interned blocks."""
        weights = self.blocks.tokens
        return sum([weights[block] for block in blocks])

    def lend(self, job: Job, path: Sequence[tuple[bytes, int]]) -> Path:
        """Return the ids of (digest, tokens), each with one reference more until the job gives them `back`."""
        with self._lock:
            ids = self._lent[job] = tuple(self.blocks.intern_path(path))
            return ids

    def back(self, job: Job) -> None:
        """Release what was lent to a job; the engine holds the lock."""
        self.blocks.release(self._lent.pop(job))

    def insert(self, request_id: str, head: Path, context: Path) -> None:
        """Let ``request_id`` hold ``head + context`` as the latest path."""
        if self.paper is not None:
            self.paper.insert(request_id, head, context)
        self.cut(self.view.admit(head + context, request_id))

    def cut(self, request_ids: Sequence[str]) -> None:
        """Take note of requests whose last blocks left the view."""
        self.evictions += len(request_ids)
        for request_id in request_ids:
            self.leave(request_id)

    def leave(self, request_id: str) -> None:
        """Take a request out of the tree that it was clustered into."""
        if self.paper is not None:
            self.paper.leave(request_id)

    def keep_live(self) -> None:
        """Take the requests that are not live any more out of the trees that they were clustered into."""
        if self.paper is not None:
            self.paper.keep_only(self.view.holds)

    def evict(self, request_id: str) -> int | None:
        """Forget a request: the tokens that left the view, or None when the id is unknown."""
        self.leave(request_id)
        freed = self.view.release(request_id)
        self.evictions += freed is not None
        return freed

    def learn(self, head: Path, orders: Sequence[Path]) -> None:
        """Remember ``orders`` as what is usually asked for after ``head``."""
        for order in orders:
            _, fresh = self._learnt.insert(head + order)
            self.blocks.acquire(fresh)

    def check_integrity(self) -> None:
        """Raise `IntegrityError` unless the parts agree with each other."""
        self.view.check_integrity()
        self._learnt.check_integrity()
        held: Counter[int] = self.view.references()
        held.update(block for node in self._learnt.nodes() for block in node.blocks)
        held.update(chain.from_iterable(self._lent.values()))
        self.blocks.check_integrity(held)
        if self.paper is not None:
            self.paper.check_integrity()


def look_up(
    job: Job, index: ContextIndex, conversations: Conversations, config: EngineConfig, count: TokenCounter
) -> None:
    """Find what the messages already show, and intern the rest; its ids stay known until `let_go`.

    Reads texts and asks the counter, so nobody holds a lock around it.
    """
    visible = conversations.view(job.history, label_lines([*job.bodies, job.request.query]))
    hints = visible.hints(job.positions, job.bodies, job.digests, job.tokens, config, count)
    sent = [position for position in job.positions if position not in hints]
    head = list(_head(job, visible))
    ids = index.lend(job, [*head, *[(job.digests[position], job.tokens[position]) for position in sent]])
    job.visible, job.hints = visible, hints
    job.sections = Sections(job.bodies, job.positions, hints, visible, config, count)
    job.hinted_tokens = sum([job.tokens[position] for position in hints])
    job.head, job.ids = ids[: len(head)], dict(zip(sent, ids[len(head) :], strict=True))
    job.head_tokens = index.tokens(job.head) if job.head else 0


def let_go(job: Job, index: ContextIndex) -> None:
    """Release the ids that `look_up` interned."""
    index.back(job)


def _head(job: Job, visible: Visible) -> Iterator[tuple[bytes, int]]:
    """Yield (digest, tokens) of what stands before the new context: of our own messages the blocks, then the rest."""
    for message, tokens, (_, known) in zip(job.history, job.history_tokens, visible.known, strict=True):
        path = known.path if isinstance(known, MessageRecord) else ()
        yield from path
        yield b"message:" + message.digest, tokens - sum(weight for _, weight in path)


def _allowed(blocks: Sequence[int], optional: frozenset[int], allowance: int) -> Path:
    """Return the leading ``blocks`` that hold no more optional ones than selection allows."""
    for place, block in enumerate(blocks):
        if block in optional:
            if not allowance:
                return tuple(blocks[:place])
            allowance -= 1
    return tuple(blocks)
