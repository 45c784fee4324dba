"""What is kept of a pipeline's run: every prompt with its question, every text once and without our note."""

from dataclasses import FrozenInstanceError

import pytest

from contextpilot_integrations.doctor.recording import Recorder

MESSAGES = [{"role": "user", "content": "What?"}]
TOOLS = [{"type": "function", "function": {"name": "search"}}]


def test_prompts_are_kept_in_order_with_their_questions_and_tools():
    recorder = Recorder()
    recorder.question = "one"
    recorder.prompt("a text")
    recorder.prompt(MESSAGES, TOOLS)
    recorder.question = "two"
    recorder.prompt("a text")
    found = recorder.recording().prompts
    assert [(each.question, each.prompt) for each in found] == [("one", "a text"), ("one", MESSAGES), ("two", "a text")]
    assert [list(each.tools) for each in found] == [[], TOOLS, []]


def test_documents_are_kept_once_in_the_order_of_their_first_retrieval():
    recorder = Recorder()
    for text in ("B", "A", " B\n", "A"):
        recorder.document(text)
    assert recorder.recording().documents == ("B", "A")


def test_remarks_are_kept_once():
    recorder = Recorder()
    for remark in ("one", "two", "one"):
        recorder.remark(remark)
    assert recorder.recording().remarks == ("one", "two")


def test_a_recording_does_not_change_with_what_comes_later():
    recorder = Recorder()
    recorder.prompt("first")
    recording = recorder.recording()
    recorder.prompt("second")
    recorder.document("late")
    assert ([each.prompt for each in recording.prompts], recording.documents) == (["first"], ())
    with pytest.raises(FrozenInstanceError):
        recording.documents = ()
