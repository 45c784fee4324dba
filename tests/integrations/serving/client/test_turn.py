"""One question: what is sent, what its chunks add up to, and what of it the conversation remembers."""

import pytest

from contextpilot_core import AnswerError
from contextpilot_integrations.serving.client.client import ContextPilotClient
from contextpilot_integrations.serving.client.turn import Wishes, may_refuse
from tests.integrations.chat_server import breaking_off, completing, good, refusing, reporting
from tests.integrations.serving.client.faces import (
    IMAGE,
    MILK,
    SALT,
    TEA,
    TEXT,
    Face,
    contents,
    openai,
    openai_client,
    words,
)


def test_time_to_first_token_is_that_of_the_first_text(server):
    ticks = iter([0.0, 1.0, 1.25])  # made, sent, first text: the empty first chunk asks for no time
    client = ContextPilotClient(openai_client(server), model="m", clock=lambda: next(ticks))
    assert client.chat([TEA], "?").ttft_ms == 250.0


def test_tool_calls_are_put_together_and_stay_out_of_the_history(server):
    def behave(exchange):
        def call(**fields):
            return {"tool_calls": [{"index": 0, **fields}]}

        exchange.start()
        exchange.chunk(call(id="1", type="function", function={"name": "look", "arguments": '{"q"'}))
        exchange.chunk(call(function={"arguments": ": 1}"}))
        exchange.chunk({}, "tool_calls")
        exchange.end()

    server.script = [behave]
    face = Face(server)
    result = face([TEA], "?", session_id="u")
    expected = {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"q": 1}'}}
    assert result.message["tool_calls"] == [expected]
    assert result.ttft_ms > 0
    assert face.client.history("u") == ()


@pytest.mark.parametrize(
    ("usage", "cached"),
    [
        (None, None),
        ({"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}, None),
        ({"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10, "prompt_tokens_details": None}, None),
        ({"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 0}}, 0),
    ],
)
def test_unknown_usage_is_not_zero(chat, server, usage, cached):
    server.script = [good(usage=usage)]
    assert chat([TEA], "?").usage.cached_tokens == cached


def test_an_answer_that_ends_too_early_without_an_error_is_no_turn(chat, server):
    server.script = [breaking_off("Hel", chunked=False)]
    result = chat([TEA], "?", session_id="u")
    assert (result.answer, result.finish_reason) == ("Hel", None)
    assert chat.client.history("u") == ()


def test_a_turn_whose_blocks_are_all_visible_still_has_a_prompt(chat):
    chat([TEA], "one", session_id="u")
    result = chat([TEA], "two", session_id="u")  # D9
    assert result.plan.text == "See [Doc 1] above."
    assert result.answer == "Hello there"


def test_the_window_follows_what_the_server_counts(server):
    """The server counts ten times what the counter does: the second turn fills the window already."""
    server.script = [good(usage={"prompt_tokens": 10 * 70, "completion_tokens": 1})]
    face = Face(server, max_context_tokens=1_000, token_counter=words)
    face([TEA], "?", session_id="u")
    assert len(face([MILK], "?", session_id="u").plan.messages) == 1


def test_the_answer_needs_room_too(server):
    server.script = [good(usage=None)]
    face = Face(server, max_context_tokens=250, token_counter=words)
    face([TEA], "?", session_id="u")
    assert len(face([MILK], "?", session_id="u", max_tokens=10).plan.messages) == 3
    assert len(face([SALT], "?", session_id="u", max_tokens=150).plan.messages) == 1


def test_a_question_with_an_image_is_passed_on_unread(chat, server):
    result = chat([TEA, MILK], [TEXT, IMAGE], instructions="Be brief.")
    system, user = server.requests[0]["messages"]
    assert system == {"role": "system", "content": "Be brief."}
    assert user == {"role": "user", "content": [{"type": "text", "text": result.plan.text}, TEXT, IMAGE]}
    assert tuple(server.requests[0]["messages"]) == result.prompt
    assert result.plan.request.query == ""


def test_an_image_without_documents_is_the_message(chat, server):
    result = chat([], [IMAGE])
    assert server.requests[0]["messages"] == [{"role": "user", "content": [IMAGE]}]
    assert result.prompt == ({"role": "user", "content": [IMAGE]},)


def test_text_parts_hide_no_block_and_move_no_label(chat):
    """A part is never read: a document pasted there is no context, and a label there is no label."""
    chat([TEA], [{"type": "text", "text": f"[Doc 7]\n{MILK}"}], session_id="u")
    result = chat([MILK, SALT], "?", session_id="u")
    assert result.plan.hints == ()
    assert result.plan.labels == (2, 3)


def usage_of(cached, completion=1):
    return {"prompt_tokens": 100, "completion_tokens": completion, "prompt_tokens_details": {"cached_tokens": cached}}


def test_a_stream_without_a_usage_chunk_is_unknown(chat, server):
    server.script = [reporting(None, None)]
    usage = chat([TEA], "?").usage
    assert usage.cached_tokens is None
    assert usage.hit_rate is None


def test_a_usage_that_grows_with_every_chunk_counts_once(chat, server):
    server.script = [reporting(usage_of(96, 1), usage_of(96, 2), usage_of(96, 3))]
    usage = chat([TEA], "?").usage
    assert (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens) == (100, 96, 3)
    assert usage.hit_rate == 0.96


# --- what chunks add up to -----------------------------------------------------------------------------------------


def streaming(*chunks):
    """The stream of these chunks: (delta, finish reason)."""

    def behave(exchange):
        exchange.start()
        for delta, finish in chunks:
            exchange.chunk(delta, finish)
        exchange.end()

    return behave


def calling(index, **fields):
    return {"tool_calls": [{"index": index, **fields}]}, None


@pytest.mark.parametrize(
    "later",
    [None, {"prompt_tokens": 100, "completion_tokens": 3}],
    ids=["nothing", "no details"],
)
def test_what_a_later_chunk_does_not_report_stays_known(chat, server, later):
    server.script = [reporting(usage_of(96, 3), later)]
    usage = chat([TEA], "?").usage
    assert (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens) == (100, 96, 3)


def test_calls_that_arrive_interleaved_are_joined_by_their_index(chat, server):
    server.script = [
        streaming(
            calling(1, id="b", function={"name": "sec", "arguments": ""}),
            calling(0, id="a", function={"name": "first", "arguments": "{"}),
            calling(1, function={"name": "ond", "arguments": "[]"}),
            calling(0, function={"arguments": "}"}),
            calling(0),
            ({}, "tool_calls"),
        )
    ]
    result = chat([TEA], "?")
    assert result.message["tool_calls"] == [
        {"id": "a", "type": "function", "function": {"name": "first", "arguments": "{}"}},
        {"id": "b", "type": "function", "function": {"name": "second", "arguments": "[]"}},
    ]
    assert (result.answer, result.finish_reason) == ("", "tool_calls")


@pytest.mark.parametrize("reason", ["stop", "length", "content_filter"])
def test_an_answer_with_any_finish_reason_is_remembered(chat, server, reason):
    server.script = [streaming(({"content": "so"}, None), ({}, reason), ({}, None))]
    result = chat([TEA], "?", session_id="u")
    assert result.finish_reason == reason
    assert chat.client.history("u") == (*result.prompt, {"role": "assistant", "content": "so"})


@pytest.mark.parametrize("delta", [{}, {"content": " \n"}, {"reasoning_content": "Hm, until max_tokens"}])
def test_an_answer_that_says_nothing_is_no_turn(chat, server, delta):
    server.script = [streaming(({"role": "assistant"}, None), (delta, None), ({}, "length")), good()]
    result = chat([TEA], "?", session_id="u")
    assert (result.answer.strip(), result.finish_reason) == ("", "length")
    assert chat.client.history("u") == ()
    assert chat([TEA], "again?", session_id="u").plan.hints == ()
    assert all(message["content"] for message in server.requests[-1]["messages"])


@pytest.mark.parametrize("delta", [{"reasoning_content": "hm"}, {"reasoning": "hm"}, calling(0, id="a")[0]])
def test_the_first_token_need_not_be_text(server, delta):
    server.script = [streaming(({"role": "assistant"}, None), (delta, None), ({}, "stop"))]
    ticks = iter([0.0, 1.0, 1.5])  # made, sent, first token
    client = ContextPilotClient(openai_client(server), model="m", clock=lambda: next(ticks))
    assert client.chat([TEA], "?").ttft_ms == 500.0


def test_only_the_first_choice_is_read(chat, server):
    def behave(exchange):
        exchange.start()
        for index, text in ((1, "other"), (0, "mine")):
            exchange.chunk({}, choices=[{"index": index, "delta": {"content": text}, "finish_reason": "stop"}])
        exchange.end()

    server.script = [behave]
    assert chat([TEA], "?").answer == "mine"


def test_changing_a_results_message_changes_no_history(chat):
    result = chat([TEA], "?", session_id="u")
    result.message["content"] = "changed"
    assert contents(chat.client.history("u"))[1:] == ["Hello there"]


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"max_completion_tokens": 10, "max_tokens": 150}, 3),
        ({"max_completion_tokens": 150, "max_tokens": 10}, 1),
        ({"max_completion_tokens": None, "max_tokens": 150}, 1),
        ({"max_tokens": None}, 3),
    ],
)
def test_the_room_for_the_answer_is_the_one_asked_for(server, options, kept):
    server.script = [good(usage=None)]
    face = Face(server, max_context_tokens=250, token_counter=words)
    face([TEA], "?", session_id="u")
    assert len(face([MILK], "?", session_id="u", **options).plan.messages) == kept


@pytest.mark.parametrize(
    ("status", "refusal"), [(400, True), (422, True), (401, False), (404, False), (429, False), (500, False)]
)
def test_which_errors_may_be_a_refusal_of_something_asked(server, status, refusal):
    server.script = [refusing(status)]
    with pytest.raises(openai.APIStatusError) as caught:
        openai_client(server).chat.completions.create(model="m", messages=[])
    assert may_refuse(caught.value) is refusal


def test_an_error_without_a_status_is_no_refusal():
    assert not may_refuse(ConnectionError())


# --- what is asked besides the answer ------------------------------------------------------------------------------


class Refused(Exception):
    status_code = 400


ALL = ("usage", "token_ids")


def test_without_acceptance_a_refusal_costs_one_wish_after_the_other():
    wishes = Wishes("server", *ALL)
    assert wishes.fewer(ALL, Refused("no")) == ("usage",)
    assert wishes.fewer(("usage",), Refused("no")) == ()
    assert wishes.fewer((), Refused("no")) is None
    assert wishes.fewer(ALL, ConnectionError("no")) is None
    assert wishes.present == ALL  # nothing is given up before something was accepted


def test_the_field_that_a_refusal_names_goes_first():
    wishes = Wishes("server", *ALL)
    assert wishes.fewer(ALL, Refused("extra inputs are not permitted: stream_options")) == ("token_ids",)
    assert wishes.fewer(ALL, Refused("unknown field return_token_ids")) == ("usage",)
    assert wishes.fewer(("token_ids",), Refused("stream_options")) == ()  # it is not asked for


def test_what_was_accepted_is_asked_for_ever_whatever_a_later_refusal_says(caplog):
    wishes = Wishes("server", *ALL)
    wishes.accepted(ALL)
    assert wishes.fewer(ALL, Refused("stream_options")) is None
    wishes.accepted(())  # a request that was under way
    assert wishes.present == ALL
    assert caplog.text == ""


def test_what_is_given_up_is_said_once(caplog):
    wishes = Wishes("replica 0 (host)", *ALL)
    wishes.accepted(("token_ids",))
    wishes.accepted(("token_ids",))
    assert wishes.present == ("token_ids",)
    assert caplog.messages == [
        "replica 0 (host) refuses stream_options: its usage, and with it the hit rate, stays unknown"
    ]
    wishes.accepted(ALL)  # a request that was under way shows that the refusal had another reason
    assert wishes.present == ALL


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize("message", ["context too long", "not because of stream_options"])
def test_one_refusal_in_the_middle_switches_nothing_off(chat, server, status, message):
    server.script = [good(), refusing(status, message), good()]
    chat([TEA], "one")
    with pytest.raises(openai.APIStatusError, match=message):
        chat([TEA], "two")
    chat([TEA], "three")
    assert ["stream_options" in request for request in server.requests] == [True] * 3
    assert chat.engine.stats().in_flight == 0


def test_a_refusal_of_the_first_request_for_another_reason_switches_nothing_off(chat, server):
    server.script = [refusing(400, "context too long")] * 2 + [good()]
    with pytest.raises(openai.BadRequestError, match="context too long"):
        chat([TEA], "one")
    assert chat([TEA], "two").usage.cached_tokens == 64
    assert ["stream_options" in request for request in server.requests] == [True, False, True]


def test_text_prompts_and_chats_know_the_same_of_their_server(chat, server):
    server.script = [good(), refusing(400), completing("so")]
    chat([TEA], "one")
    with pytest.raises(openai.BadRequestError):
        chat.complete([TEA], "two")
    assert chat.complete([TEA], "three").usage.cached_tokens == 64
    assert len(server.requests) == 3


# --- pieces on the wire --------------------------------------------------------------------------------------------


def test_thoughts_are_in_the_message_and_not_in_the_history(chat, server):
    server.script = [streaming(({"reasoning_content": "Hm."}, None), ({"content": "so"}, None), ({}, "stop"))]
    result = chat([TEA], "?", session_id="u")
    assert result.message == {"role": "assistant", "content": "so", "reasoning_content": "Hm."}
    assert (result.answer, chat.client.history("u")[-1]) == ("so", {"role": "assistant", "content": "so"})


def test_a_refusal_is_an_answer(chat, server):
    server.script = [streaming(({"content": None, "refusal": "I "}, None), ({"refusal": "can't."}, None), ({}, "stop"))]
    pieces, stream = chat.stream([TEA], "?", session_id="u")
    assert (pieces, stream.result.answer) == (["I ", "can't."], "I can't.")
    assert stream.result.message["refusal"] == "I can't."
    assert chat.client.history("u")[-1] == {"role": "assistant", "content": "I can't."}


@pytest.mark.parametrize(
    "choices",
    [
        [{"delta": {"content": "so"}, "finish_reason": "stop"}],
        [{"index": None, "delta": {"content": [{"type": "text", "text": "so"}]}, "finish_reason": "stop"}],
        [{"index": 1, "delta": {"content": "no"}}, {"index": 0, "delta": {"content": "so"}, "finish_reason": "stop"}],
    ],
    ids=["no index", "null, and parts", "another one first"],
)
def test_a_choice_without_an_index_is_the_first(chat, server, choices):
    def behave(exchange):
        exchange.start()
        exchange.chunk({}, choices=[{"index": 0, "delta": None, "finish_reason": None}])
        exchange.chunk({}, choices=None)
        exchange.chunk({}, choices=choices)
        exchange.end()

    server.script = [behave]
    result = chat([TEA], "?", session_id="u")
    assert (result.answer, result.finish_reason) == ("so", "stop")
    assert contents(chat.client.history("u"))[1:] == ["so"]


def test_a_server_that_reports_more_cached_than_the_prompt_has_is_bounded(chat, server):
    server.script = [good(usage=usage_of(250))]
    result = chat([TEA], "?", session_id="u")
    assert (result.usage.hit_rate, result.usage.prefilled_tokens) == (1.0, 0)
    assert result.observation.reported == 100
    assert chat.engine.stats().reported_tokens == 100


# --- what is no answer ---------------------------------------------------------------------------------------------

NO_ANSWERS = {
    "HTML": lambda exchange: exchange.page("<!DOCTYPE html><html><body>Welcome to nginx!</body></html>"),
    "nothing": lambda exchange: exchange.page("", "text/event-stream"),
    "nothing, of another kind": lambda exchange: exchange.page("", "text/plain"),
    "a page that is called a stream": lambda exchange: exchange.page("<html>\n\n</html>\n\n", "text/event-stream"),
    "JSON that is no stream": lambda exchange: exchange.answer({"error": {"message": "try later"}}),
    "comments": lambda exchange: exchange.page(": ping\n\n: ping\n\n", "text/event-stream"),
    "only the end": lambda exchange: exchange.page("data: [DONE]\n\n", "text/event-stream"),
    "numbers": lambda exchange: exchange.page("data: 5\n\ndata: null\n\n", "text/event-stream"),
    "choices that are none": lambda exchange: exchange.page('data: {"choices": 5}\n\n', "text/event-stream"),
    "no choice": lambda exchange: exchange.page('data: {"choices": null}\n\n', "text/event-stream"),
}


@pytest.mark.parametrize("way", ["chat", "stream", "complete", "stream_completion"])
@pytest.mark.parametrize("nothing", NO_ANSWERS.values(), ids=NO_ANSWERS)
def test_what_is_no_answer_is_an_error_and_leaves_no_trace(chat, server, nothing, way):
    chat([TEA], "?", session_id="u")
    before, cached = chat.client.history("u"), chat.engine.stats().cached_tokens
    server.script = [nothing]
    ask = {"chat": chat}.get(way) or getattr(chat, way)
    with pytest.raises(AnswerError, match=r"not a single piece.*see that the base URL is that of a model server"):
        ask([MILK], "?", **({} if "complet" in way else {"session_id": "u"}))
    assert chat.client.history("u") == before
    assert (chat.engine.stats().cached_tokens, chat.engine.stats().in_flight) == (cached, 0)
    chat.engine.check_integrity()
    server.script = [good()]
    assert chat([MILK], "?", session_id="u").answer == "Hello there"


STRANGE = [
    {"content": 5},
    {"content": "ok", "refusal": {"why": 5}},
    {"content": "ok", "refusal": 5},
    {"content": "ok", "tool_calls": 5},
    {"content": "ok", "tool_calls": [5]},
    {"content": "ok", "tool_calls": {"index": 0}},
    {"content": "ok", "tool_calls": [{"index": "x", "id": 5, "function": {"name": 5, "arguments": 5}}]},
    {"content": "ok", "tool_calls": [{"index": 0, "function": 5}, {"index": "0", "function": {"name": ["a"]}}]},
    {"content": "ok", "reasoning": 5, "thinking_blocks": 5, "reasoning_details": [5]},
]


@pytest.mark.parametrize("delta", STRANGE, ids=str)
def test_a_piece_of_a_strange_shape_stops_no_answer(chat, server, delta):
    server.script = [streaming((delta, None), ({"content": "Tea."}, None), ({}, "stop"))]
    assert chat([TEA], "?", session_id="u").answer.endswith("Tea.")
    server.script = [good()]
    assert chat([MILK], "?", session_id="u").answer == "Hello there"


@pytest.mark.parametrize("reason", [5, True, ["stop"], {"a": 1}])
def test_an_end_that_is_no_text_is_no_end(chat, server, reason):
    server.script = [streaming(({"content": "so"}, None), ({}, reason))]
    result = chat([TEA], "?", session_id="u")
    assert (result.answer, result.finish_reason) == ("so", None)
    assert chat.client.history("u") == ()


@pytest.mark.parametrize(
    "usage", [5, "many", [], {"prompt_tokens": "many"}, {"prompt_tokens": 1e400}, {"prompt_tokens": -1}]
)
def test_a_usage_of_a_strange_shape_is_unknown(chat, server, usage):
    server.script = [good(usage=usage)]
    result = chat([TEA], "?", session_id="u")
    assert (result.answer, result.usage.prompt_tokens) == ("Hello there", None)
    assert chat.engine.stats().prompt_tokens == 0
