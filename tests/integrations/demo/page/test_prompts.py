"""Two prompts taken apart: documents, and what each shares with those sent before it."""

from contextpilot_integrations.demo.page.prompts import most_telling, pieces, prompt_text, shared_prefix
from contextpilot_integrations.demo.results import Run
from tests.integrations.demo_runs import answer


def test_shared_prefix_counts_only_what_was_sent_before(run: Run) -> None:
    ours = run.batch[1]
    first, second, third = ours.sent
    assert shared_prefix(ours, first) == 0
    whole = prompt_text(second.messages)
    assert shared_prefix(ours, second) == len(whole) - len("0?")
    assert 0 < shared_prefix(ours, third) < whole.index("BBB")


def test_most_telling_is_the_largest_gain(run: Run) -> None:
    plain, ours = most_telling(*run.batch)
    assert plain.number == ours.number == 0


def test_pieces_are_documents_and_what_is_between_them() -> None:
    text = prompt_text(answer(0, "AB").messages)
    shared = text.index("[Doc 2]")
    found = pieces(text, shared)
    assert [piece.label for piece in found] == ["", "[Doc 1]", "[Doc 2]", ""]
    assert [piece.shared for piece in found] == [1.0, 1.0, 0.0, 0.0]
    assert found[1].text == "Title A\n" + "A" * 20


def test_a_fence_like_line_in_a_document_does_not_end_it() -> None:
    text = "[Doc 1]\n====\nTitle\n===\nrest\n====\n\nQuestion?"
    assert [piece.text for piece in pieces(text, 0)] == ["Title\n===\nrest", "Question?"]


def test_prompt_text_names_roles() -> None:
    assert (
        prompt_text([{"role": "system", "content": "S"}, {"role": "user", "content": "U"}])
        == "<system>\nS\n\n<user>\nU"
    )


def test_nothing_of_a_prompt_is_lost_between_its_pieces() -> None:
    text = prompt_text(answer(0, "ABC").messages)
    for shared in range(0, len(text) + 1, 7):
        found = pieces(text, shared)
        assert [piece.label for piece in found] == ["", "[Doc 1]", "[Doc 2]", "[Doc 3]", ""]
        assert all(0.0 <= piece.shared <= 1.0 for piece in found)
        assert [piece.shared for piece in found] == sorted((piece.shared for piece in found), reverse=True)
        assert sum(0.0 < piece.shared < 1.0 for piece in found) <= 1, "a prefix ends in one piece at most"
    assert all(piece.shared == 1.0 for piece in pieces(text, len(text)))


def test_a_prompt_without_documents_is_one_piece() -> None:
    (piece,) = pieces("<user>\nHello!!", 7)
    assert (piece.label, piece.text, piece.shared) == ("", "<user>\nHello!!", 0.5)
    assert pieces("", 0) == pieces(" \n", 0) == []


def test_of_equal_gains_the_earlier_question_is_told(run: Run) -> None:
    plain, ours = most_telling(run.batch[0], run.batch[0])
    assert plain is ours is run.batch[0].answers[0]
