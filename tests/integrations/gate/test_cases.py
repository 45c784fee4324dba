"""The file of questions: what it holds, and what is refused without a word of it."""

from dataclasses import replace

import pytest

from contextpilot_core.errors import RequestError
from contextpilot_integrations.gate.cases import Case, EarlierTurn, read_cases
from tests.integrations import gate_servers as servers


def test_a_question_is_kept_once_with_its_documents_once(tmp_path):
    question = {"query": "Q", "documents": ["A", "B", "A"], "answers": ["yes", "yes"]}
    (case,) = read_cases(servers.write(tmp_path / "q.jsonl", [question]))
    assert case == Case(query="Q", documents=("A", "B"), answers=("yes",))
    with pytest.raises(ValueError, match="line 2: this question stands in the file before"):
        read_cases(servers.write(tmp_path / "q.jsonl", [question, question]))


def test_a_line_is_read_with_all_that_it_holds(tmp_path):
    turn = {"query": "First?", "documents": ["A", "A"], "answer": "Yes."}
    line = {"query": "Q", "documents": ["A", "B"], "answers": ["x", "y"], "earlier": [turn], "cluster": "chat 1"}
    (case,) = read_cases(str(servers.write(tmp_path / "q.jsonl", [line])))
    earlier = (EarlierTurn(query="First?", documents=("A",), answer="Yes."),)
    assert case == Case(query="Q", documents=("A", "B"), answers=("x", "y"), earlier=earlier, cluster="chat 1")


def test_a_byte_order_mark_is_no_part_of_the_first_question(tmp_path):
    path = servers.write(tmp_path / "q.jsonl", servers.moved_questions(2))
    expected = read_cases(path)
    path.write_text(path.read_text(), encoding="utf-8-sig")
    assert read_cases(path) == expected


def test_cases_keep_the_order_of_the_file_and_empty_lines_are_none(tmp_path):
    path = servers.write(tmp_path / "q.jsonl", servers.moved_questions(3))
    path.write_text(path.read_text().replace("\n", "\n\n  \n"))
    assert [case.query for case in read_cases(path)] == [each["query"] for each in servers.moved_questions(3)]


def test_the_key_follows_from_what_is_asked_alone():
    case = Case(query="Q", documents=("A",), answers=("yes",))
    assert case.key == replace(case).key == replace(case, cluster="c").key
    turn = EarlierTurn(query="First?", documents=("A",), answer="Yes.")
    others = [replace(case, query="Q?"), replace(case, documents=("A", "B")), replace(case, answers=("yes", "no"))]
    others += [replace(case, earlier=(turn,)), replace(case, earlier=(replace(turn, answer="No."),))]
    assert len({each.key for each in (case, *others)}) == 6
    assert case.key == "0b59eb94c28df915"  # in every process: the random order follows from it


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("[]", "TypeError"),
        ("{secret", "is no JSON"),
        pytest.param("[" * 100_000, "is no JSON .*too deeply", id="nested too deeply"),
        ('{"query": "secret", "documents": ["A"]}', "KeyError: 'answers'"),
        ('{"query": 7, "documents": ["secret"], "answers": ["A"]}', "expected a text, got int"),
        ('{"query": "Q", "documents": [], "answers": ["A"]}', "one text or more, got an empty one"),
        ('{"query": "Q", "documents": ["secret", null], "answers": ["A"]}', "expected a text, got NoneType"),
        ('{"query": "Q", "documents": ["secret"], "answers": "A"}', "expected a list of texts .* got str"),
        ('{"query": "Q", "documents": ["secret"], "answers": ["A"], "earlier": [{}]}', "KeyError: 'query'"),
        ('{"query": "Q", "documents": ["secret"], "answers": ["A"], "cluster": 1}', "expected a text, got int"),
        (r'{"query": "secret \ud83d", "documents": ["secret"], "answers": ["A"]}', "half a character"),
    ],
)
def test_a_line_of_another_shape_is_named_by_its_number_and_kind(tmp_path, line, told):
    path = servers.write(tmp_path / "q.jsonl", servers.moved_questions(1))
    path.write_text(path.read_text() + line)
    with pytest.raises(RequestError, match=rf"line 2: .*{told}") as caught:
        read_cases(path)
    assert "secret" not in str(caught.value)
    assert 'a line holds {"query"' in str(caught.value)


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"", b"\n \n"])
def test_a_file_without_questions_is_refused(tmp_path, content):
    path = tmp_path / "q.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RequestError, match="q.jsonl(: cannot be read| holds no question)"):
        read_cases(path)
