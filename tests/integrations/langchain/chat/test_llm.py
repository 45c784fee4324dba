"""What goes to the model besides the messages: options of calls, of bindings, and of the model itself."""

import pytest

from contextpilot_core import RequestError, ReuseEngine
from contextpilot_integrations.serving.chat import Tenants, Usage, room_for
from contextpilot_integrations.serving.tokens import PromptTokenizer
from tests.conftest import require

require("langchain_core")

from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage  # noqa: E402
from langchain_core.runnables import RunnableBinding  # noqa: E402

from contextpilot_integrations.langchain.chat.llm import model_call  # noqa: E402
from tests.integrations.caching_chat import Characters  # noqa: E402
from tests.integrations.langchain_fakes import Recorder  # noqa: E402

TENANTS = Tenants("a key of sixteen bytes")


class WithOptions(Recorder):
    max_tokens: int | None = None
    extra_body: dict | None = None


def test_options_of_a_call_stand_above_bindings_and_these_above_the_model():
    llm = WithOptions(max_tokens=1, extra_body={"top_k": 1})
    assert model_call(llm, {}, None, "n").options == {"max_tokens": 1, "extra_body": {"top_k": 1}}
    bound = llm.bind(max_tokens=2, stop=["x"]).bind(stop=["y"])
    assert model_call(bound, {}, None, "n").options == {
        "max_tokens": 2,
        "extra_body": {"top_k": 1},
        "stop": ["y"],
    }
    inner = RunnableBinding(bound=llm, kwargs={"stop": ["x"], "seed": 1})
    nested = RunnableBinding(bound=inner, kwargs={"stop": ["y"]})
    options = model_call(nested, {}, None, "n").options
    assert (options["stop"], options["seed"]) == (["y"], 1)
    call = model_call(bound, {"max_tokens": 3}, None, "n")
    assert (call.options["max_tokens"], call.arguments) == (3, {"max_tokens": 3})


@pytest.mark.parametrize(
    ("options", "tokens"),
    [({}, 0), ({"max_tokens": 5}, 5), ({"max_tokens": 5, "max_completion_tokens": 7}, 7), ({"max_tokens": "all"}, 0)],
)
def test_the_answer_has_its_limit_from_the_call(options, tokens):
    assert room_for(100, model_call(Recorder(), options, None, "n").options) == 100 - tokens


class Many(Recorder):
    n: int | None = 2


def test_one_answer_alone_is_asked_for():
    bound = WithOptions(extra_body={"n": 3})
    for llm, options in ((Recorder(), {"n": 2}), (Recorder().bind(n=2), {}), (Many(), {}), (bound, {})):
        with pytest.raises(RequestError, match="leave n out"):
            model_call(llm, options, TENANTS, "n")
    assert model_call(Many(), {"n": 1}, None, "n").arguments == {"n": 1}


def test_the_callers_options_are_not_changed():
    given = {"extra_body": {"top_k": 1}, "temperature": 0}
    call = model_call(Recorder(), given, TENANTS, "n")
    call.arguments["temperature"] = 1
    assert given == {"extra_body": {"top_k": 1}, "temperature": 0}
    assert call.arguments["extra_body"]["top_k"] == 1
    assert model_call(Recorder(), given, None, "n").cache_salt is None


def test_tokens_are_those_of_the_messages_with_tools_and_template_options():
    source, tool = Characters(), {"type": "function", "function": {"name": "f", "parameters": {}}}
    call = model_call(Recorder(), {"tools": [tool], "extra_body": {"chat_template_kwargs": {"deep": 1}}}, None, "n")
    plan = ReuseEngine().plan([], query="a")
    call.read_tokens(PromptTokenizer(source), plan, [HumanMessage("a"), AIMessage("b")], Usage())
    assert source.asked == [[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]]


def test_messages_without_a_form_have_no_tokens():
    call = model_call(Recorder(), {}, None, "n")
    assert call.read_tokens(None, None, [RemoveMessage(id="x")], None) is None


def test_what_a_binding_has_stays_beside_the_salt():
    llm = (
        Recorder().bind(extra_body={"min_p": 0.1, "cache_salt": "guessed"}, max_tokens=7).with_retry().bind(stop=["x"])
    )
    call = model_call(llm, {"temperature": 0, "cache_salt": "mine"}, TENANTS, "n")
    salted = {"min_p": 0.1, "cache_salt": TENANTS.cache_salt("n")}
    assert call.arguments == {"temperature": 0, "extra_body": salted}
    assert call.cache_salt == salted["cache_salt"]
    assert (room_for(100, call.options), call.options["stop"]) == (93, ["x"])
    assert room_for(100, model_call(llm, {"max_completion_tokens": 9}, None, "n").options) == 91
    assert model_call(llm, {"top_k": 3}, None, "n").arguments == {"top_k": 3}
    assert model_call(llm, {}, None, "n").cache_salt == "guessed"
