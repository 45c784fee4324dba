"""The prompts of the gate's arms: the same texts in the product's layout, and only what an arm is about differs."""

from contextpilot_core.config import EngineConfig
from contextpilot_core.engine.engine import ReuseEngine
from contextpilot_integrations.gate import arms
from contextpilot_integrations.gate.cases import Case, EarlierTurn
from tests.parsing import ParsedBlock, parse_context

TEXTS = tuple(f"Text number {number} says what nobody else says." for number in range(6))
CASE = Case(query="What?", documents=TEXTS, answers=("That.",))
ORDER_OF_ENGINE = (4, 2, 0, 1, 3, 5)


def prompts(case=CASE, order=ORDER_OF_ENGINE, seed=0):
    return arms.order_prompts(case, order, instructions="Be brief.", seed=seed)


def shown(messages):
    blocks = parse_context(messages[-1]["content"].rsplit("\n\n", 1 + ("elevan" in messages[-1]["content"]))[0])
    return [(block.label, block.body) for block in blocks if isinstance(block, ParsedBlock)]


def note(messages):
    *_, last = messages[-1]["content"].removesuffix("\n\nWhat?").split("\n\n")
    return last if "elevan" in last else ""


def test_every_arm_of_order_shows_the_same_texts_and_the_same_question():
    found = prompts()
    assert tuple(found) == arms.ORDER_ARMS
    for arm, messages in found.items():
        assert [message["role"] for message in messages] == ["system", "user"]
        assert messages[-1]["content"].endswith("What?")
        if arm != arms.CLOSED_BOOK:
            assert {body for _, body in shown(messages)} == set(TEXTS)
            assert [label for label, _ in shown(messages)] == [1, 2, 3, 4, 5, 6]
    assert found[arms.CLOSED_BOOK][-1]["content"] == "What?"


def test_orders_and_notes_are_those_of_the_arm():
    found = prompts()
    moved = [TEXTS[position] for position in ORDER_OF_ENGINE]
    order_of = {arm: [body for _, body in shown(found[arm])] for arm in arms.ORDER_ARMS[:-1]}
    assert order_of[arms.ORIGINAL] == order_of[arms.NOTE_ALONE] == list(TEXTS)
    for arm in (arms.REORDERED, arms.COMPACT, arms.FULL, arms.TOP_3):
        assert order_of[arm] == moved
    assert order_of[arms.RANDOM] != list(TEXTS)
    assert {arm: note(found[arm]) for arm in arms.ORDER_ARMS} == {
        arms.ORIGINAL: "",
        arms.NOTE_ALONE: "Relevance: 1 2 3 4 5",
        arms.REORDERED: "",
        arms.COMPACT: "Relevance: 3 4 2 5 1",
        arms.FULL: "Read the documents in this order of relevance: "
        "[Doc 3] > [Doc 4] > [Doc 2] > [Doc 5] > [Doc 1] > [Doc 6]",
        arms.TOP_3: "Relevance: 3 4 2",
        arms.RANDOM: "",
        arms.CLOSED_BOOK: "",
    }


def test_the_noted_arm_is_what_the_engine_sends():
    engine = ReuseEngine(EngineConfig(kv_block=1, note="compact"))
    engine.plan([TEXTS[4], TEXTS[2]], query="Warm it up.", instructions="Be brief.")
    plan = engine.plan(TEXTS, query="What?", instructions="Be brief.")
    assert plan.order == ORDER_OF_ENGINE
    assert list(plan.messages) == list(prompts()[arms.COMPACT])


def test_the_random_order_follows_from_seed_and_question():
    assert prompts() == prompts()
    assert prompts(seed=1)[arms.RANDOM] != prompts()[arms.RANDOM]
    two = Case(query="What?", documents=TEXTS[:2], answers=("That.",))
    for seed in range(5):
        assert [body for _, body in shown(prompts(two, (1, 0), seed)[arms.RANDOM])] == [TEXTS[1], TEXTS[0]]


def test_the_arms_of_deduplication():
    turn = EarlierTurn(query="First?", documents=TEXTS[:3], answer="Yes.")
    case = Case(query="What?", documents=(TEXTS[3], TEXTS[1]), answers=("That.",), earlier=(turn,))
    found = arms.dedup_prompts(case, instructions="Be brief.")
    assert tuple(found) == arms.DEDUP_ARMS
    last = {arm: messages[-1]["content"] for arm, messages in found.items()}
    fresh = f"[Doc 4]\n===\n{TEXTS[3]}\n==="
    assert last[arms.REPEATED] == f"{fresh}\n[Doc 5]\n===\n{TEXTS[1]}\n===\n\nWhat?"
    assert last[arms.HINTED] == f"{fresh}\nSee [Doc 2] above.\n\nWhat?"
    assert last[arms.DROPPED] == f"{fresh}\n\nWhat?"
    assert last[arms.CLOSED_BOOK] == "What?"
    for arm, messages in found.items():
        assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
        assert ("[Doc 1]" in messages[1]["content"]) == (arm != arms.CLOSED_BOOK)


def test_a_turn_that_repeats_nothing_has_no_arms():
    turn = EarlierTurn(query="First?", documents=TEXTS[:3], answer="Yes.")
    case = Case(query="What?", documents=TEXTS[3:], answers=("That.",), earlier=(turn,))
    assert arms.dedup_prompts(case, instructions="") == {}
