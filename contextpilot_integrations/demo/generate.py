"""Questions about a folder nobody has written questions for: made from its most telling terms, always the same."""

from collections import Counter
from collections.abc import Sequence

from contextpilot_integrations.demo.documents import Chunk
from contextpilot_integrations.demo.questions import QuestionBank, Topic
from contextpilot_integrations.demo.retrieval import terms

TOPICS = 8
SHORTEST_TERM = 4
FILLERS = frozenset(
    "about above after again also always another because been before being below best between both come could each "
    "even every first given gives good here just last like made make many more most much must need never next only "
    "other over real same should since some still such take them they though those through today under until very want "
    "well were while within without would".split()
)
"""Words that are no subject of a question."""
BATCH_WORDING = (
    'What is said about "{term}" and "{first}"?',
    'How does "{term}" go together with "{second}"?',
    'What should I know about "{term}" when I care about "{first}"?',
    'What does "{term}" have to do with "{third}"?',
    'What is "{term}", and where does "{second}" come in?',
    'What holds for "{term}" with regard to "{first}" and "{third}"?',
)
CHAT_WORDING = (
    'What is said about "{term}"?',
    'How is "{term}" connected with "{first}"?',
    'What does "{second}" mean for "{term}"?',
    'What else should I know about "{term}" and "{third}"?',
)


def questions_about(chunks: Sequence[Chunk]) -> QuestionBank:
    """Make a bank of questions around the terms that many, but not most, of the chunks mention.

    A term weighs as many chunks as hold it, times the titles that name it; its companions are the terms found most
    often beside it. Ties go by the alphabet, so equal documents give equal questions.
    """
    words = [set(_telling(chunk.text)) for chunk in chunks]
    frequency = Counter(word for held in words for word in held)
    titled = Counter(word for title in {chunk.title for chunk in chunks} for word in set(_telling(title)))
    common = {word for word, count in frequency.items() if count > max(2, len(chunks) // 8)}
    candidates = [word for word in frequency if word not in common] or list(frequency)
    ranked = sorted(candidates, key=lambda word: (-frequency[word] * (1 + titled[word]), word))
    batch, chat = list[Topic](), list[Topic]()
    for term in ranked[:TOPICS]:
        beside = Counter(word for held in words if term in held for word in held if word != term and word not in common)
        names = _companions(term, beside)
        batch.append(Topic(name=term, questions=_worded(BATCH_WORDING, names)))
        chat.append(Topic(name=term, questions=_worded(CHAT_WORDING, names)))
    if not batch:
        fallback = Topic(name="documents", questions=("What do these documents say?", "What are they about?"))
        return QuestionBank(batch=(fallback,), chat=(fallback,))
    return QuestionBank(batch=tuple(batch), chat=tuple(chat))


def _telling(text: str) -> list[str]:
    return [word for word in terms(text) if len(word) >= SHORTEST_TERM and word.isalpha() and word not in FILLERS]


def _companions(term: str, beside: Counter[str]) -> dict[str, str]:
    best = sorted(beside, key=lambda word: (-beside[word], word))[:3]
    first, second, third = (best + ["the rest"] * 3)[:3]
    return {"term": term, "first": first, "second": second, "third": third}


def _worded(wordings: Sequence[str], names: dict[str, str]) -> tuple[str, ...]:
    return tuple(wording.format_map(names) for wording in wordings)
