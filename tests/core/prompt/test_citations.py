"""From the labels in an answer back to the documents."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_core.errors import RequestTypeError
from contextpilot_core.prompt.citations import Shown, citations, read_documents, shown_documents, sources_of
from contextpilot_core.prompt.layout import BlockItem, render_context
from contextpilot_core.prompt.messages import body_digest
from contextpilot_core.prompt.visible import Given, message_record
from contextpilot_core.types import ContextBlock, Segment, Source

KNOWN = {label: f"source {label}" for label in (1, 2, 3, 12)}


@pytest.mark.parametrize(
    ("answer", "cited"),
    [
        ("Milk [Doc 2].", [2]),
        ("Milk [Doc 2], salt [Doc 1], milk [Doc 2].", [2, 1]),
        ("[doc 3] [DOC 1]", [3, 1]),
        ("[Doc 1, 3]", [1, 3]),
        ("[Doc 1, Doc 3]", [1, 3]),
        ("[Doc 1; Doc 12]", [1, 12]),
        ("[Docs 1 and 3]", [1, 3]),
        ("[Docs 1, 2, and 3]", [1, 2, 3]),
        ("[Doc 1][Doc 2]", [1, 2]),
        ("[Doc 1-3]", [1, 2, 3]),
        ("[Docs 1 \u2013 3, 12]", [1, 2, 3, 12]),
        ("[Doc 1 to Doc 2]", [1, 2]),
        ("[Doc 2: tea-manual.pdf, page 7]", [2]),
        ("[Doc 2, page 7]", [2]),
        ("\u3010Doc 2\u3011", [2]),
        ("[ Doc 2 ]", [2]),
        ("**[Doc 2]**\n- [Doc 1]", [2, 1]),
        ("[Doc 2](https://example.org/2)", [2]),
        ("no label: Doc 2, [2], [Doc], [Doc two], [Docker 2], [Doc 1", []),
        ("", []),
    ],
)
def test_forms_of_a_citation(answer, cited):
    found = citations(answer, KNOWN)
    assert list(found.sources.items()) == [(label, KNOWN[label]) for label in cited]
    assert found.unknown == ()


def test_a_long_answer_of_numbers_is_read_at_once():
    assert citations("[Doc " + "1" * 100_000 + " [Doc 1" + ", 1" * 100_000 + " [" * 100_000, KNOWN).unknown == ()


def test_unknown_numbers_are_reported_not_guessed():
    found = citations("[Doc 4] [Doc 2, 9] [Doc 4] [Doc 0]", KNOWN)
    assert (dict(found.sources), found.unknown) == ({2: "source 2"}, (4, 9, 0))
    assert citations("[Doc 3-5] [Doc 7-2] [Doc 1-999999999]", KNOWN).unknown == (4, 5, 7, 999999999)


@given(st.lists(st.sampled_from([1, 2, 3, 12, 4, 77])), st.text(alphabet="ab [].\n"))
def test_every_label_is_found_once_in_the_order_of_the_answer(labels, between):
    found = citations(between.join(f"[Doc {label}]" for label in labels), KNOWN)
    assert list(found.sources) == [label for label in dict.fromkeys(labels) if label in KNOWN]
    assert found.unknown == tuple(label for label in dict.fromkeys(labels) if label not in KNOWN)


def block(text, name):
    return ContextBlock(text=text, id=name)


def test_documents_of_a_message_with_what_had_the_same_text():
    blocks = ["milk", block("tea", "a"), block("tea", "b"), "salt"]
    digests = [body_digest(text) for text in ("milk", "tea", "tea", "salt")]
    milk, tea = ContextBlock(text="milk"), (blocks[1], blocks[2])
    assert shown_documents(Given((1, 0, 3), (7, 8, None), digests, blocks)) == (
        Shown(7, digests[1], tea),
        Shown(8, digests[0], (milk,)),
    )
    both = shown_documents(Given((1, 2), (1, 2), digests, blocks))  # without de-duplication, each has its own
    assert [shown.blocks for shown in both] == [(blocks[1],), (blocks[2],)]


def test_sources_over_several_messages():
    tea, milk = body_digest("tea"), body_digest("milk")
    first, again, elsewhere = block("tea", "a"), block("tea", "a"), block("tea", "b")
    found = sources_of(
        [
            (Shown(2, milk, (block("milk", "m"),)), Shown(1, tea, (first,))),
            (Shown(1, tea, (again, elsewhere)),),
        ]
    )
    assert list(found) == [1, 2]
    assert found[1] == Source(label=1, blocks=(first, elsewhere))
    assert found[1].block is first


def test_a_label_that_stands_for_two_texts_stands_for_none():
    messages = [(Shown(1, body_digest(text), (block(text, text),)),) for text in ("tea", "milk")]
    assert sources_of(messages) == {}


def test_metadata_that_cannot_be_compared_do_no_harm():
    blocks = tuple(ContextBlock(text="tea", metadata={"vector": np.zeros(3)}) for _ in range(2))
    assert sources_of([(Shown(1, b"t", blocks),)])[1].blocks == blocks


class Tensor:
    """Refuses to be compared as those of PyTorch do."""

    def __eq__(self, other):
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")

    __hash__ = None


def test_neither_do_those_that_refuse_in_their_own_way():
    blocks = tuple(ContextBlock(text="tea", metadata={"vector": Tensor()}) for _ in range(2))
    found = sources_of([(Shown(1, b"t", blocks),)])[1].blocks
    assert [block is given for block, given in zip(found, blocks, strict=True)] == [True, True]


def test_what_a_message_shows_is_read_from_it_where_nothing_else_is_known():
    cut = (Segment("mi"), Segment("lk", 1))
    runs = [(body_digest("tea"), 1, (Segment("tea"),)), (body_digest("milk"), 2, cut)]
    context = render_context(
        [BlockItem(label, run) for _, label, run in runs], hint="", unlabelled_hint="", span_hint=""
    )
    record = message_record(runs, (), context)
    (found,) = read_documents(record, context.text)
    assert (found.label, found.digest, found.blocks) == (1, body_digest("tea"), (ContextBlock(text="tea"),))


class Odd:
    def __eq__(self, other):
        raise ArithmeticError

    __hash__ = None


@pytest.mark.parametrize("name", [["list"], {"a": 1}, Odd(), None, 7])
def test_blocks_of_one_text_are_told_apart_whatever_their_ids_and_metadata_are(name):
    endless = {}
    endless["self"] = endless
    ids = [ContextBlock(text="tea", id=name), ContextBlock(text="tea", id=name, metadata={"page": 2})]
    odd = [ContextBlock(text="tea", metadata={"self": Odd()}), ContextBlock(text="tea", metadata=endless)]
    other = {}
    other["self"] = other  # to compare it with the first never ends
    again = [ContextBlock(text="tea", metadata={"self": Odd()}), ContextBlock(text="tea", metadata=other)]
    found = sources_of([(Shown(1, b"t", (*ids, *odd, *ids)),), (Shown(1, b"t", tuple(again)),)])[1].blocks
    assert len(found) == len({id(block) for block in found}) == 6
    assert all(any(block is each for each in found) for block in (*ids, *odd, *again))


def test_blocks_that_differ_in_metadata_alone_are_all_kept():
    blocks = tuple(ContextBlock(text="tea", metadata={"page": page}) for page in range(3_000))
    assert sources_of([(Shown(1, b"t", blocks),), (Shown(1, b"t", blocks),)])[1].blocks == blocks


def test_of_equal_blocks_that_were_all_sent_each_stands_for_itself():
    blocks, digest = [block("tea", number) for number in range(3)], body_digest("tea")
    shown = shown_documents(Given((2, 0), (1, 2), [digest] * 3, blocks))
    assert [document.blocks for document in shown] == [(blocks[2], blocks[1]), (blocks[0], blocks[1])]


@pytest.mark.parametrize(("answer", "sources"), [(5, {}), (None, {}), (b"[Doc 1]", {}), ("[Doc 1]", None), ("", [1])])
def test_what_is_no_answer_or_no_sources_is_refused(answer, sources):
    with pytest.raises(RequestTypeError, match="answer is a .* and sources a .*; give the text of an answer"):
        citations(answer, sources)
