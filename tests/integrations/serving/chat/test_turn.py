"""One question without input or output: what is sent, what the engine is told, and what is left when it fails."""

import pytest

from contextpilot_core import AnswerError, EngineConfig, ReuseEngine
from contextpilot_core.errors import RequestTypeError
from contextpilot_core.testing import ManualClock
from contextpilot_integrations.serving.chat import Asked, Entry, Turn, Usage
from tests.integrations.turns import A, B, C, D, E, document, labels, setting_of, talk, texts, turn_of

RULES = {"role": "user", "content": "Some rules."}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def check(setting, in_flight=0):
    assert setting.engine.stats().in_flight == in_flight
    setting.engine.check_integrity()


def forgetful():
    """A clock, and a setting whose engine goes by it."""
    clock = ManualClock()
    return clock, setting_of(ReuseEngine(clock=clock))


# --- what is sent --------------------------------------------------------------------------------------------------


def test_a_prompt_is_instructions_prefix_history_question():
    setting = setting_of(instructions="Be brief.", prefix=(RULES,))
    turn = turn_of(setting, [Entry({"role": "assistant", "content": "hello"})], "q", A)
    assert turn.prompt == [
        {"role": "system", "content": "Be brief."},
        RULES,
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": f"[Doc 1]\n===\n{A}\n===\n\nq"},
    ]
    assert turn.head == [Entry({"role": "system", "content": "Be brief."})]
    assert turn.history == [Entry({"role": "assistant", "content": "hello"})]
    assert not turn.rewritten
    assert turn.plan_seconds > 0


def test_a_system_message_in_the_history_is_the_only_one():
    system = Entry({"role": "system", "content": "Be brief."})
    turn = turn_of(setting_of(instructions="Be brief."), [system], "q", A)
    assert turn.head == []
    assert [message["role"] for message in turn.prompt] == ["system", "user"]


def test_the_entry_says_what_it_was_planned_from():
    setting = setting_of()
    turn = turn_of(setting, talk(setting, [A]), "q", A, B)
    asked = turn.entry.asked
    assert (asked.query, asked.blocks, asked.order) == ("q", (A, B), (0, 1))
    assert asked.tokens == setting.counted(turn.prompt)
    assert asked.base


def test_parts_go_along_with_the_text_and_the_engine_knows_the_text():
    setting = setting_of()
    turn = turn_of(setting, [], "", A, parts=(IMAGE,))
    assert turn.prompt[0]["content"] == [{"type": "text", "text": f"[Doc 1]\n===\n{A}\n==="}, IMAGE]
    turn.sent()
    second = turn_of(setting, [turn.entry], "q", A)
    assert [hint.label for hint in second.plan.hints] == [1]
    third = turn_of(setting_of(), [turn.entry], "q", A)  # another engine gets to know it
    assert [hint.label for hint in third.plan.hints] == [1]


def test_parts_alone_are_a_question_that_shows_nothing():
    setting = setting_of()
    turn = turn_of(setting, [], "", parts=(IMAGE,))
    assert turn.prompt == [{"role": "user", "content": [IMAGE]}]
    second = turn_of(setting, [turn.entry], "q", A)
    assert [message["role"] for message in second.prompt] == ["user", "user"]


def test_a_plan_that_was_made_for_the_question_is_taken():
    setting = setting_of()
    plan = setting.plan(Asked("q", (A,)), [])
    assert turn_of(setting, [], "q", A, plan=plan).plan is plan
    check(setting, in_flight=1)


def test_a_plan_of_an_engine_that_forgot_the_history_is_made_again():
    setting = setting_of(stored=False)
    history = talk(setting, [A])
    setting.engine.reset()
    blind = setting.plan(Asked("q", (A,)), history)
    turn = turn_of(setting, history, "q", A, plan=blind)
    assert turn.plan is not blind
    assert [hint.label for hint in turn.plan.hints] == [1]
    turn.sent()
    check(setting)
    assert not turn.rewritten


def test_a_history_that_was_cut_is_rewritten():
    setting = setting_of()
    turn = turn_of(setting, talk(setting, [A], [A])[2:], "q", A)
    assert turn.rewritten
    assert labels(turn.history) == [1]
    assert turn.plan.message_text == "See [Doc 1] above.\n\nq"
    turn.sent()
    check(setting)


def test_whoever_keeps_the_messages_alone_finds_them_unchanged():
    setting = setting_of(stored=False)
    history = talk(setting, [A], [A])[2:]
    turn = turn_of(setting, history, "q", B)
    assert (turn.rewritten, turn.history) == (False, history)


# --- a full window -------------------------------------------------------------------------------------------------


def test_a_prompt_that_fits_is_left_alone():
    setting = setting_of(window=10_000)
    history = talk(setting, [A], [B])
    turn = turn_of(setting, history, "q", C, room=setting.counted(turn_of(setting, history, "q", C).prompt))
    assert (turn.history, turn.rewritten) == (history, False)


def test_a_prompt_that_does_not_fit_drops_turns_to_half_the_window():
    setting = setting_of(window=300)
    history = talk(setting, *[[document(f"n{number}")] for number in range(6)])
    turn = turn_of(setting, history, "q", C, room=300)
    assert turn.rewritten
    assert labels(turn.history) == [1, 2]  # 2 x 52 tokens in a half of 150
    assert turn.plan.own_labels == (3,)
    assert setting.counted(turn.prompt) <= 300
    turn.sent()
    check(setting)
    assert setting.engine.stats().committed == 6 + 3


@pytest.mark.parametrize(("scale", "kept"), [(0.5, 5), (1.0, 2), (2.0, 1), (10.0, 0)])
def test_the_window_is_measured_in_the_servers_tokens(scale, kept):
    setting = setting_of(window=300)
    history = talk(setting, *[[document(f"n{number}")] for number in range(12)])
    assert len(texts(turn_of(setting, history, "q", C, room=300, scale=scale).history)) == kept


def test_a_question_that_fits_nowhere_is_sent_alone():
    setting = setting_of(window=10)
    for room in (10, 0, -5):
        turn = turn_of(setting, talk(setting, [A], [B]), "q", C, room=room)
        assert (turn.history, len(turn.prompt)) == ([], 1)
        turn.failed()
    check(setting)


def test_without_a_window_half_the_room_is_left():
    setting = setting_of()
    history = talk(setting, [A], [B], [C])
    assert len(texts(turn_of(setting, history, "q", D, room=180).history)) == 1


# --- sent, or not --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["opening", "sending", "streaming"])
def test_a_model_that_fails_has_had_nothing(way):
    setting = setting_of()
    history = talk(setting, [A, B])
    setting.engine.reset()  # so that there are reminders, too
    turn = turn_of(setting, history, "q", A)
    with pytest.raises(OSError), getattr(turn, way)():
        raise OSError
    check(setting)
    stats = setting.engine.stats()
    assert (stats.committed, stats.abandoned, stats.known_messages, stats.cached_tokens) == (0, 3, 0, 0)


def test_a_model_that_answered_has_had_everything():
    setting = setting_of()
    history = talk(setting, [A, B])
    setting.engine.reset()
    turn = turn_of(setting, history, "q", A)
    with turn.sending():
        check(setting, in_flight=2)
    check(setting)
    assert setting.engine.stats().committed == 2
    turn.failed()  # nothing happens any more
    assert setting.engine.stats().abandoned == 1  # the plan that did not know the history


def test_opening_leaves_a_plan_in_flight():
    setting = setting_of()
    with turn_of(setting, [], "q", A).opening():
        pass
    check(setting, in_flight=1)


@pytest.mark.parametrize("trouble", [None, OSError, GeneratorExit, KeyboardInterrupt])
def test_a_stream_was_sent_from_its_first_chunk_on(trouble):
    setting = setting_of()
    try:
        with turn_of(setting, [], "q", A).streaming() as chunk_came:
            check(setting, in_flight=1)
            for _ in range(3):
                chunk_came()
                assert setting.engine.stats().committed == 1
            if trouble is not None:
                raise trouble
    except BaseException as error:  # noqa: BLE001 - what was raised here
        assert type(error) is trouble
    check(setting)
    assert setting.engine.stats().committed == 1


def test_a_stream_is_sent_once():
    setting = setting_of()
    with turn_of(setting, [], "q", A).streaming() as chunk_came:
        chunk_came()
        setting.engine.reset()
        chunk_came()
    assert (setting.engine.stats().planned, setting.engine.stats().committed) == (0, 0)


def test_a_stream_without_a_chunk_was_not_sent():
    setting = setting_of()
    with pytest.raises(AnswerError, match="not a single piece"), turn_of(setting, [], "q", A).streaming():
        pass
    check(setting)
    assert (setting.engine.stats().committed, setting.engine.stats().abandoned) == (0, 1)


# --- what the engine has forgotten in the meantime -----------------------------------------------------------------


def test_an_answer_that_took_too_long_counts_all_the_same():
    clock, setting = forgetful()
    turn = turn_of(setting, talk(setting, [B, A]), "q", A, B, C)
    clock.advance(61)
    for number in range(3):
        setting.engine.plan([C, document(f"other {number}")], query="elsewhere")
    turn.sent()
    check(setting)
    assert setting.engine.stats().committed == 1 + 3 + 1
    second = turn_of(setting, [*turn.history, turn.entry], "q", A, B, C)
    assert sorted(hint.label for hint in second.plan.hints) == [1, 2, 3]


def test_what_took_too_long_is_noted_in_the_order_in_which_it_was_sent():
    clock = ManualClock()
    setting = setting_of(ReuseEngine(EngineConfig(kv_block=1), clock=clock))
    turn = turn_of(setting, [], "q", A, B, C)
    clock.advance(61)
    setting.engine.plan([C, B], query="elsewhere")
    assert setting.plan(Asked("q", (A, B, C)), []).order == (2, 1, 0)  # now it would be another one
    turn.sent()
    assert setting.engine.stats().committed == 2
    assert [hint.label for hint in turn_of(setting, [turn.entry], "q", C, A).plan.hints] == [3, 1]


@pytest.mark.parametrize("lost", ["the first", "the last", "all"])
def test_of_several_plans_those_that_were_lost_are_made_again(lost):
    clock, setting = forgetful()
    history = talk(setting, [A], [B, A], [C])
    clock.advance(3_601)
    turn = turn_of(setting, history, "q", D, A)
    plans = [*turn._earlier, turn.plan]
    assert len(plans) == 4
    setting.engine.evict(
        [plan.request_id for plan in {"the first": plans[:1], "the last": plans[-1:]}.get(lost, plans)]
    )
    turn.sent()
    check(setting)
    assert setting.engine.stats().committed == 3 + 4
    now = setting.plan(Asked("q", (A, B, C, D)), [*history, turn.entry])
    assert all(now.recognised[place] for place in (0, 2, 4, 6))
    assert [hint.label for hint in now.hints] == [1, 2, 3, 4]


def test_a_message_that_would_come_out_differently_is_not_committed():
    """The engine lost the history during the answer: what it would plan now is not what was sent."""
    _, setting = forgetful()
    history = talk(setting, [A, B])
    turn = turn_of(setting, history, "q", A, C)
    setting.engine.reset()
    turn.sent()
    check(setting)
    assert setting.engine.stats().committed == 0
    second = turn_of(setting, [*history, turn.entry], "q", A, B, C)  # and the next question tells it everything
    assert [hint.label for hint in second.plan.hints] == [1, 2, 3]
    second.sent()
    check(setting)


def test_a_reset_that_gives_ids_anew_takes_nobodys_plan():
    setting = setting_of()
    turn = turn_of(setting, [], "q", A)
    setting.engine.reset()
    other = setting.engine.plan([E], query="other", commit=False)
    assert other.request_id == turn.plan.request_id
    turn.failed()
    assert setting.engine.stats().in_flight == 1
    turn = turn_of(setting, [], "q", A)
    setting.engine.commit(other)
    turn.sent()
    check(setting)
    assert setting.engine.stats().committed == 2


# --- figures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("reported", "scale"), [(None, None), (0, None), (98, 2.0)])
def test_the_scale_is_the_servers_tokens_per_counted_one(reported, scale):
    turn = turn_of(setting_of(), [], "q", A)
    assert turn._tokens == 4 + 40 + 5
    assert turn.scale(reported) == scale


def test_what_the_server_reported_is_told_and_comes_back_as_figures():
    setting = setting_of()
    turn = turn_of(setting, [], "q", A)
    turn.sent()
    figures = turn.figures(Usage(prompt_tokens=100, cached_tokens=25), None, "salt")
    stats = setting.engine.stats()
    assert (figures.prompt_tokens, figures.reported, figures.hit_rate, figures.predicted) == (100, 25, 0.25, 0)
    assert (figures.request_id, figures.plan_seconds) == (turn.plan.request_id, turn.plan_seconds)
    assert (figures.live_contexts, figures.evictions, figures.source) == (1, 0, "estimate")
    assert (stats.compared, stats.reported_tokens, figures.drift) == (1, 25, stats.drift)
    unknown = turn.figures(Usage(), None, None)
    assert (unknown.prompt_tokens, unknown.reported, unknown.hit_rate) == (None, None, None)


# --- refusals ------------------------------------------------------------------------------------------------------


def test_a_conversation_of_one_session_does_not_show_in_another():
    engine = ReuseEngine(EngineConfig(note="none"))
    alone = [turn_of(setting_of(ReuseEngine(EngineConfig(note="none")), session_id="u"), [], "q", A, B).prompt]
    other = setting_of(engine, session_id="v")
    failed = turn_of(other, [], "q", B, A)
    failed.failed()
    with pytest.raises(RequestTypeError, match="query must be a str"):
        turn_of(other, [], 7, B)
    assert [turn_of(setting_of(engine, session_id="u"), [], "q", A, B).prompt] == alone
    engine.check_integrity()


def test_a_turn_is_planned_when_it_is_made():
    setting = setting_of()
    with pytest.raises(RequestTypeError, match="blocks must be a sequence"):
        Turn(setting, [], Asked("q", "one text"))
    check(setting)


# --- what fails once the model was asked ---------------------------------------------------------------------------


class Broken(ReuseEngine):
    """An engine that fails at every call once it is ``broken``, as one whose clock or journal does."""

    broken = False

    def __getattribute__(self, name):
        if name in ("plan", "commit", "abandon", "evict", "observe", "stats") and type(self).broken:
            raise RuntimeError("tea is secret")
        return super().__getattribute__(name)


def test_an_engine_that_fails_behind_an_answer_raises_nothing_and_says_nothing_of_texts(caplog):
    class Own(Broken):
        pass

    turn = turn_of(setting_of(Own()), [], "q", A)
    Own.broken = True
    turn.sent()
    turn.failed()
    turn.unanswered()
    observation = turn.observe(Usage(prompt_tokens=9, cached_tokens=4), None, None)
    assert (observation.predicted, observation.reported, observation.source) == (None, 4, "estimate")
    assert "RuntimeError" in caplog.text and "secret" not in caplog.text


def test_the_sources_are_known_before_the_model_is_asked():
    asked = []

    def renderer(block):
        asked.append(block)
        return block.text

    turn = turn_of(setting_of(ReuseEngine(EngineConfig(renderer=renderer))), [], "q", A)
    turn.sent()
    before = len(asked)
    assert turn.sources[1].block.text == A
    assert len(asked) == before
