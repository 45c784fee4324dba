"""Questions planned again: in their own order, only where they have to be, and no plan is left behind."""

import pytest

from contextpilot_core import ConfigError, EngineConfig, ReuseEngine
from contextpilot_core.errors import RequestError
from contextpilot_core.testing import ManualClock
from contextpilot_integrations.serving.chat.entries import Asked, Entry
from contextpilot_integrations.serving.chat.replan import Setting, informed, remind, shortened, sound, unknown
from tests.integrations.turns import A, B, C, D, changed, document, labels, setting_of, talk, texts, turn_of, words

SYSTEM = {"role": "system", "content": "Be brief."}
RULES = {"role": "user", "content": "Some rules."}


def check(setting, in_flight=0):
    assert setting.engine.stats().in_flight == in_flight
    setting.engine.check_integrity()


# --- what all questions share --------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [0, -1, True, 1.5, "many"])
def test_a_window_is_a_whole_number_of_at_least_one(window):
    with pytest.raises(ConfigError, match="max_context_tokens=.*give the model's window, or None for no limit"):
        setting_of(window=window)
    assert setting_of(window=1).window == 1


def test_a_question_is_planned_in_flight_behind_what_stands_before_it():
    setting = setting_of(prefix=(RULES,), instructions="Be brief.", namespace="n", session_id="u")
    plan = setting.plan(Asked("q", (A,)), [Entry({"role": "assistant", "content": "hello"})])
    assert [message["content"] for message in plan.messages[:-1]] == ["Be brief.", "Some rules.", "hello"]
    assert (plan.request.namespace, plan.request.session_id) == ("n", "u")
    check(setting, in_flight=1)


def test_a_question_keeps_the_order_in_which_it_was_sent():
    setting = setting_of(ReuseEngine(EngineConfig(kv_block=1)))
    talk(setting, [B, A])
    asked = Asked("q", (A, B))
    moved = setting.plan(asked, [])
    assert moved.order == (1, 0)
    other = setting_of()
    assert other.plan(asked, []).order == (0, 1)
    again = other.plan(setting.entry(moved, asked, []).asked, [])
    assert (again.order, again.message_text) == ((1, 0), moved.message_text)


@pytest.mark.parametrize("order", [(7, 7), (0, 0), (-1,), (0, 1, 2)])
def test_an_order_that_does_not_fit_is_no_order(order):
    setting = setting_of()
    assert setting.plan(Asked("q", (A, B), order=order), []).order == (0, 1)
    check(setting, in_flight=1)


def test_what_an_engine_refuses_it_refuses_with_or_without_an_order():
    setting = setting_of(instructions="Be brief.")
    history = [Entry({"role": "system", "content": "Be long."})]
    for order in (None, (0,)):
        with pytest.raises(RequestError, match="instructions"):
            setting.plan(Asked("q", (A,), order=order), history)
    check(setting)


def test_the_system_message_of_instructions_is_told_from_the_prefix():
    setting = setting_of(instructions="Be brief.", prefix=(RULES,))
    assert setting.system(setting.plan(Asked("q", (A,)), [])) == (SYSTEM,)
    assert setting.system(setting.plan(Asked("", ()), [])) == (SYSTEM,)
    assert setting.system(setting.plan(Asked("q", (A,)), [Entry(SYSTEM)])) == ()
    assert setting_of().system(setting_of().plan(Asked("q", (A,)), [])) == ()
    assert setting_of(prefix=(SYSTEM,)).system(setting_of(prefix=(SYSTEM,)).plan(Asked("q", ()), [])) == ()


def test_counted_tokens_are_those_of_all_messages():
    assert setting_of().counted([SYSTEM, RULES]) == 2 * 4 + words("Be brief. Some rules.")


# --- what a message depends on -------------------------------------------------------------------------------------


def test_a_message_names_the_history_on_which_it_depends():
    history = talk(setting_of(), [A, B], [], [B], [C], [])
    bases = [entry.asked.base for entry in history[::2]]
    assert [bool(base) for base in bases] == [False, False, True, True, False]  # a hint; a label that goes on


def test_messages_that_nobody_else_can_change_name_no_history():
    history = talk(setting_of(stored=False), [A, B], [B], [C])
    assert [entry.asked.base for entry in history[::2]] == ["", "", ""]


def test_a_run_of_an_earlier_message_is_a_hint_too():
    history = talk(setting_of(), [A], [f"{document('new', 10)} {A}"])
    assert "(see [Doc 1])" in texts(history)[1]
    assert history[2].asked.base


# --- sound ---------------------------------------------------------------------------------------------------------


def test_a_history_that_nobody_changed_stays_as_it_is():
    setting, plans = setting_of(), []
    history = talk(setting, [A, B], [B, C], [], [A])
    assert sound(setting, history, plans) == history
    assert plans == []
    check(setting)


@pytest.mark.parametrize("gone", [0, 1, 2, 3])
@pytest.mark.parametrize("forgot", [False, True])
def test_what_depends_on_a_turn_that_is_gone_is_planned_again(gone, forgot):
    setting = setting_of()
    history = talk(setting, [A, B], [B, C], [C], [D, A])
    rest = history[: 2 * gone] + history[2 * gone + 2 :]
    if forgot:
        setting.engine.reset()
    plans = []
    kept = sound(setting, rest, plans)
    assert kept[: 2 * gone] == history[: 2 * gone]
    assert len(kept) == len(rest)
    assert bool(plans) == (gone < 3)
    assert labels(kept) == list(range(1, 1 + len(labels(kept))))  # each once, and they go on
    wanted = [documents for number, documents in enumerate(([A, B], [B, C], [C], [D, A])) if number != gone]
    whole = "".join(texts(kept))
    assert [whole.count(text) for text in (A, B, C, D)] == [
        int(any(text in documents for documents in wanted)) for text in (A, B, C, D)
    ]
    for plan in plans:
        assert setting.engine.commit(plan)
    check(setting)
    assert sound(setting, kept, again := []) == kept  # once is enough
    assert again == []


def test_what_stands_before_a_change_is_known_before_the_rest_is_planned_again():
    """An engine that forgot everything does not give a label twice."""
    history = talk(setting_of(), [A], [], [A])
    setting = setting_of()
    kept = sound(setting, [history[0], history[1], *history[4:]], plans := [])
    assert texts(kept)[1] == "See [Doc 1] above.\n\nquestion 2"
    assert len(plans) == 2  # the first question is made known again
    for plan in plans:
        setting.engine.abandon(plan)
    check(setting)


def test_what_follows_a_message_that_is_planned_again_is_planned_again_too():
    """Here the beginning of another conversation, whose labels would stand twice."""
    setting = setting_of()
    rest = [*talk(setting, [A], [A])[2:], *talk(setting, [B])]
    assert [entry.asked.base == "" for entry in rest[::2]] == [False, True]
    kept = sound(setting, rest, plans := [])
    assert labels(kept) == [1, 2]
    assert len(plans) == 2


def test_messages_of_others_are_never_planned_again():
    setting = setting_of()
    history = talk(setting, [A, B], [B])
    theirs = Entry({"role": "user", "content": "In short: tea."})
    kept = sound(setting, [theirs, *history[1:]], plans := [])
    assert kept[0] is theirs
    assert texts(kept)[1] == f"[Doc 1]\n===\n{B}\n===\n\nquestion 1"
    assert len(plans) == 1


def test_what_is_said_before_all_prompts_counts_as_far_as_hints_may_name_it():
    before = setting_of(prefix=(SYSTEM, {"role": "user", "content": A}))
    history = talk(before, [A])
    assert texts(history) == ["Same text as in an earlier message.\n\nquestion 0"]
    other_system = setting_of(prefix=({"role": "system", "content": "Be long."}, before.prefix[1]))
    assert sound(other_system, history, []) == history
    kept = sound(setting_of(prefix=(SYSTEM,)), history, [])
    assert texts(kept) == [f"[Doc 1]\n===\n{A}\n===\n\nquestion 0"]


# --- what the engine forgot ----------------------------------------------------------------------------------------


def test_the_places_that_an_engine_does_not_know():
    setting = setting_of(prefix=(SYSTEM, RULES), instructions="Be brief.")
    history = talk(setting, [A], [], [B, A])
    parts = Entry({"role": "user", "content": "[Doc 9]"}, Asked("", (C,), ({"type": "text", "text": "t"},)))
    alone = Entry(None, Asked("", (), ({"type": "text", "text": "t"},)))
    nothing = Entry(None, Asked("", ()))
    everything = [*history, parts, alone, nothing, *talk(setting, [D])]
    assert unknown(setting, setting.plan(Asked("q", (A,)), everything), everything) == [len(history)]
    setting.engine.reset()
    places = unknown(setting, setting.plan(Asked("q", (A,)), everything), everything)
    assert places == [0, 4, len(history), len(history) + 3]


def test_a_message_with_parts_is_known_by_its_text():
    setting = setting_of()
    turn = turn_of(setting, [], "", A, parts=({"type": "text", "text": "t"},))
    turn.sent()
    history = [turn.entry, *talk(setting, [B])]
    assert unknown(setting, setting.plan(Asked("q", (A,)), history), history) == []


def test_a_system_message_of_the_history_moves_no_place():
    setting = setting_of(instructions="Be brief.")
    history = talk(setting, [A], [B])
    assert history[0] == Entry(SYSTEM)
    setting.engine.reset()
    blind = setting.plan(Asked("q", (A, B)), history)
    assert unknown(setting, blind, history) == [1, 3]
    plan = informed(setting, Asked("q", (A, B)), history, plans := [], blind)
    assert [hint.label for hint in plan.hints] == [1, 2]
    assert len(plans) == 2
    check(setting, in_flight=3)


@pytest.mark.parametrize("dedup", [True, False])
def test_what_was_forgotten_is_known_again_in_its_own_words(dedup):
    clock = ManualClock()
    setting = setting_of(ReuseEngine(EngineConfig(dedup=dedup), clock=clock))
    history = talk(setting, [A, B], [B, C], [A])
    clock.advance(3_601)
    plan = informed(setting, Asked("q", (A, C)), history, plans := [])
    assert all(plan.recognised[::2])
    assert [each.message_text for each in plans] == texts(history)
    assert [hint.label for hint in plan.hints] == ([1, 3] if dedup else [])
    assert plan.own_labels == (() if dedup else (6, 7))


def test_an_engine_that_knows_everything_is_told_nothing():
    setting = setting_of()
    history = talk(setting, [A], [B])
    made = setting.plan(Asked("q", (C,)), history)
    assert informed(setting, Asked("q", (C,)), history, plans := [], made) is made
    assert plans == []


def test_a_text_that_comes_out_differently_stays_and_is_nobodys():
    """Another configuration may write it differently: the message is then one of others, and nothing is lost."""
    history = talk(setting_of(), [A, B], [B])
    setting = setting_of(ReuseEngine(EngineConfig(hint="Look at {label}.", renderer=lambda block: f"- {block.text}")))
    plan = informed(setting, Asked("q", (A,)), history, plans := [])
    assert plans == []
    assert A in plan.message_text
    check(setting, in_flight=1)


def test_only_messages_of_ours_are_told():
    setting = setting_of()
    remind(setting, [Entry(RULES), Entry(None, Asked("", (A,)))], [0, 1], plans := [])
    assert plans == []


# --- a full window -------------------------------------------------------------------------------------------------


def size(setting, entries):
    return setting.counted([entry.message for entry in entries])


def test_the_oldest_turns_go_as_few_as_it_takes():
    setting = setting_of()
    history = talk(setting, *[[document(f"n{number}")] for number in range(6)])
    for kept in range(6):
        room = size(setting, history[12 - 2 * kept :])
        short = shortened(setting, history, room, plans := [])
        assert [text.rpartition("\n\n")[2] for text in texts(short)] == [f"question {n}" for n in range(6 - kept, 6)]
        assert labels(short) == list(range(1, kept + 1))
        assert len(plans) == kept
        for plan in plans:
            setting.engine.abandon(plan)
    check(setting)


def test_one_turn_goes_at_least():
    setting = setting_of()
    history = talk(setting, [A], [B])
    assert texts(shortened(setting, history, 1_000_000, [])) == [f"[Doc 1]\n===\n{B}\n===\n\nquestion 1"]
    assert shortened(setting, [], 10, []) == []


def test_what_a_turn_named_is_written_out_and_may_cost_another_turn():
    setting = setting_of()
    history = talk(setting, [A], [A], [B], [B])
    room = size(setting, history[2:])  # enough for the three as they are, not for the text that the first one names
    short = shortened(setting, history, room, plans := [])
    assert [text.rpartition("\n\n")[2] for text in texts(short)] == ["question 2", "question 3"]
    assert [text.count(B) for text in texts(short)] == [1, 0]
    assert setting.engine.stats().in_flight == len(plans) == 2


def test_what_stands_before_the_first_question_stays_and_does_not_count():
    setting = setting_of()
    head = [Entry(SYSTEM), Entry({"role": "assistant", "content": document("hello", 500)})]
    history = talk(setting, [A], [B], history=head)
    assert shortened(setting, history, 70, [])[:2] == head
    assert len(shortened(setting, history, 70, [])) == 4


def test_others_turns_stay_as_they_are():
    setting = setting_of()
    theirs = [Entry({"role": "user", "content": "theirs"}), Entry({"role": "assistant", "content": "yes"})]
    history = talk(setting, [A], history=theirs)
    assert shortened(setting, [*history, *theirs], 1_000, [])[-2:] == theirs


# --- failures half-way ---------------------------------------------------------------------------------------------


class Unreadable(Exception):
    pass


def renderer(block):
    if block.text == "unreadable":
        raise Unreadable
    return block.text


def spoilt(entries, place):
    """A history of which one question cannot be planned again."""
    return [*entries[:place], changed(entries[place], blocks=("unreadable",)), *entries[place + 1 :]]


@pytest.mark.parametrize(
    "call",
    [
        lambda setting, history, plans: sound(setting, spoilt(history[2:], 4), plans),
        lambda setting, history, plans: remind(setting, spoilt(history, 4), [0, 2, 4], plans),
        lambda setting, history, plans: shortened(setting, spoilt(history, 6), 10_000, plans),
        lambda setting, history, plans: informed(setting, Asked("q", ("unreadable",)), history, plans),
    ],
    ids=["sound", "remind", "shortened", "informed"],
)
def test_plans_that_were_made_before_a_failure_are_handed_out(call):
    setting = setting_of(ReuseEngine(EngineConfig(renderer=renderer)))
    history = talk(setting, [A], [B, A], [C, A], [D, B])
    plans = []
    with pytest.raises(Unreadable):
        call(setting, history, plans)
    check(setting, in_flight=len(plans))


def test_a_turn_that_cannot_be_planned_leaves_no_trace():
    setting = setting_of(ReuseEngine(EngineConfig(renderer=renderer)), window=1_000)
    history = talk(setting, [A], [B, A], [C, A], [D, B])
    before = setting.engine.stats().cached_tokens
    for asked in (
        lambda: turn_of(setting, spoilt(history[2:], 4), "q", D),
        lambda: turn_of(setting, history, "q", "unreadable"),
        lambda: turn_of(setting, history[2:], "q", "unreadable"),
        lambda: turn_of(setting, spoilt(history, 6), "q", D, room=100),
    ):
        with pytest.raises(Unreadable):
            asked()
        check(setting)
    assert setting.engine.stats().cached_tokens == before
    setting.engine.reset()
    with pytest.raises(Unreadable):
        turn_of(setting, spoilt(history, 4), "q", D)
    check(setting)
    assert setting.engine.stats().known_messages == 0


def test_a_setting_is_a_value():
    assert setting_of(window=5) != setting_of(window=6)
    with pytest.raises(AttributeError):
        setting_of().window = 5  # type: ignore[misc]
    assert Setting(engine=ReuseEngine(), count=len).stored
