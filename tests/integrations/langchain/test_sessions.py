"""Which conversation a call belongs to."""

import uuid

import pytest

from contextpilot_integrations.session import session
from tests.conftest import require

require("langchain_core")
require("langchain_classic")

from contextpilot_integrations.langchain.sessions import session_of  # noqa: E402
from contextpilot_integrations.session import SESSION_KEYS  # noqa: E402
from tests.integrations.langchain_fakes import Lists  # noqa: E402
from tests.integrations.langchain_hooks import sessions, wrapped  # noqa: E402


def test_which_name_counts(run):
    def named(*, options=None, config=None, field=None, around=None):
        retriever = wrapped(Lists(), session_id=field)
        if around is None:
            run(retriever, "D1,D2", config, **(options or {}))
        else:
            with session(around):
                run(retriever, "D1,D2", config, **(options or {}))
        return sessions(retriever)

    everything = {
        "configurable": {"conversation_id": "c", "thread_id": "t", "session_id": "s"},
        "metadata": {"session_id": "m"},
    }
    everywhere = {"options": {"session_id": "call"}, "config": everything, "field": "field", "around": "around"}
    assert named(**everywhere) == {"call"}
    assert named(**{**everywhere, "options": {}}) == {"s"}
    del everything["configurable"]["session_id"]
    assert named(**{**everywhere, "options": {}}) == {"t"}
    del everything["configurable"]["thread_id"]
    assert named(**{**everywhere, "options": {}}) == {"c"}
    del everything["configurable"]
    assert named(**{**everywhere, "options": {}}) == {"m"}
    assert named(field="field", around="around") == {"around"}
    assert named(field="field") == {"field"}
    assert named() == set()
    assert named(config={"configurable": {"thread_id": 17}}) == {"17"}
    assert named(config={"configurable": {"thread_id": ""}}) == set()
    number = uuid.uuid4()
    assert named(options={"session_id": number}) == {str(number)}


def test_the_first_place_that_names_a_session_counts():
    config = {"configurable": {"thread_id": "configured"}, "metadata": {"session_id": "noted"}}
    places = {"explicit": "said", "metadata": {"conversation_id": "of the run"}, "fallback": "field"}
    with session("around"):
        assert session_of(config, **places) == "said"
        assert session_of(config, **{**places, "explicit": None}) == "configured"
        assert session_of({"metadata": config["metadata"]}, **{**places, "explicit": None}) == "noted"
        assert session_of({}, **{**places, "explicit": None}) == "of the run"
        assert session_of({}, fallback="field") == "around"
    assert session_of({}, fallback="field") == "field"
    assert session_of({}) is None, "stateless, never a session that all share"


@pytest.mark.parametrize("place", ["configurable", "metadata"])
def test_in_one_place_the_keys_have_an_order(place):
    named = dict.fromkeys(reversed(SESSION_KEYS))
    for key in SESSION_KEYS:
        named[key] = key
    for key in SESSION_KEYS:
        assert session_of({place: named}) == key
        del named[key]
    assert session_of({place: named}) is None


@pytest.mark.parametrize("nothing", [None, ""])
def test_what_is_empty_names_nothing(nothing):
    config = {"configurable": {"session_id": nothing, "thread_id": "t"}}
    assert session_of(config, explicit=nothing) == "t"
    assert session_of({"configurable": None, "metadata": {}}, metadata=None, fallback=nothing) is None


@pytest.mark.parametrize("name", [0, 17, False, uuid.UUID(int=5)])
def test_any_other_value_is_a_name(name):
    assert session_of({"configurable": {"thread_id": name}}) == str(name)
