"""Other ways to order and schedule contexts, for comparison: global frequency, and greedy groups.

Both take contexts (distinct document names, best first) and return them as they would be sent.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

Context = Sequence[str]


@dataclass(frozen=True)
class Sent:
    """One request as it was sent: its number among the given contexts, and its documents in the order of the prompt."""

    number: int
    documents: tuple[str, ...]


def in_arrival(contexts: Sequence[Context]) -> list[Sent]:
    """Send what was retrieved, as it was retrieved."""
    return [Sent(number, tuple(context)) for number, context in enumerate(contexts)]


def by_frequency(contexts: Sequence[Context]) -> list[Sent]:
    """Put the documents that most contexts hold first everywhere, and send the contexts in lexicographic order."""
    frequency = Counter(document for context in contexts for document in context)  # in the order of first appearance
    place = {document: number for number, (document, _) in enumerate(frequency.most_common())}
    sent = [Sent(number, tuple(sorted(context, key=place.__getitem__))) for number, context in enumerate(contexts)]
    return sorted(sent, key=lambda request: ([place[document] for document in request.documents], request.number))


def by_greedy_groups(contexts: Sequence[Context], weights: Mapping[str, int]) -> list[Sent]:
    """Apply greedy group recursion (GGR) of "Optimizing LLM Queries in Relational Data Analytics Workloads".

    GGR reorders the rows and the fields of a table: the value with the highest score, squared length times (rows that
    hold it - 1), goes first in these rows, which are ordered in the same way by their other fields; so are the rows
    that do not hold it, behind them. Here a request is a row and its documents are its fields. A document may stand in
    any place of a context, so no columns tell values apart, and there are no functional dependencies between columns.
    What no other row holds stays in the order of retrieval.
    """
    numbered: dict[str, int] = {}
    for context in contexts:
        for document in context:
            numbered.setdefault(document, len(numbered))
    rest = {number: dict.fromkeys(context) for number, context in enumerate(contexts)}
    return list(_groups(rest, (), weights, numbered))


def _groups(
    rest: dict[int, dict[str, None]], head: tuple[str, ...], weights: Mapping[str, int], numbered: Mapping[str, int]
) -> Iterator[Sent]:
    """Yield the rows of ``rest`` (row -> documents that have no place yet), all of which begin with ``head``."""
    holders: dict[str, dict[int, None]] = {}
    for row, documents in rest.items():
        for document in documents:
            holders.setdefault(document, {})[row] = None

    def entry(document: str) -> tuple[int, int, str]:
        return -(weights[document] ** 2) * (len(holders[document]) - 1), numbered[document], document

    queue = [entry(document) for document in holders]
    heapq.heapify(queue)
    while queue:
        score, _, document = heapq.heappop(queue)
        if entry(document)[0] != score:  # rows have left since; scores only fall
            heapq.heappush(queue, entry(document))
        elif score < 0:
            group = {row: rest.pop(row) for row in list(holders[document])}
            for row, documents in group.items():
                for other in documents:
                    del holders[other][row]
                del documents[document]
            yield from _groups(group, (*head, document), weights, numbered)
    for row, documents in rest.items():
        yield Sent(row, (*head, *documents))


@dataclass(frozen=True)
class Faults:
    """What is wrong with an order: how many, and the number of the first request that shows it (None: none does).

    lost, added: documents that the prompt lacks, or has too often. requests: contexts sent never, or more than once.
    """

    lost: int
    first_lost: int | None
    added: int
    first_added: int | None
    requests: int
    first_request: int | None


def faults(contexts: Sequence[Context], sent: Iterable[Sent]) -> Faults:
    """Compare what was sent with what was given."""
    sent = list(sent)
    lost: list[int] = []
    added: list[int] = []
    for request in sent:
        given, got = Counter(contexts[request.number]), Counter(request.documents)
        lost += [request.number] * (given - got).total()
        added += [request.number] * (got - given).total()
    times = Counter(request.number for request in sent)
    wrong = [number for number in range(len(contexts)) if times[number] != 1]
    return Faults(len(lost), _first(lost), len(added), _first(added), len(wrong), _first(wrong))


def _first(numbers: Sequence[int]) -> int | None:
    return min(numbers, default=None)
