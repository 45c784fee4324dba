"""What a system message says of the one who asks: named for what it is, and not seen where it is something else."""

import pytest

from contextpilot_core.diagnose import PromptRecord, diagnose
from contextpilot_core.diagnose.masks import skeleton
from tests.core.diagnosed import FIRST, HEAD, context

RULES = "Use the given documents. Say so when they do not hold the answer. Keep it short and to the point, please."
SAID = {
    "user": [
        ("You are talking to Anna Schmidt.", "You are talking to Bob Miller-Jones."),
        ("User: Anna", "User: Bob"),
        ("The user's name is Ånna.", "The user's name is Émile du Bois."),
        ("Current user: anna", "Current user: bob"),
        ("You help Anna with her questions about our products.", "You help Bob with his questions about our products."),
        ("Customer name = 'O. Smith'", "Customer name = 'P. Jones'"),
    ],
    "email": [
        ("User email: anna@example.com", "User email: bob.miller@corp.example.org"),
        ("You are assisting anna@example.com today.", "You are assisting bob+x@x.org today."),
    ],
    "tenant": [
        ("Tenant: acme-corp", "Tenant: globex"),
        ("You work for Acme Corp.", "You work for Globex."),
        ("You are the assistant of the organization ACME.", "You are the assistant of the organization Globex."),
        ("tenant_id=17", "tenant_id=99"),
        ("You answer on behalf of Acme & Sons, kindly.", "You answer on behalf of Globex, kindly."),
    ],
    "turn": [
        ("This is turn 3 of the conversation.", "This is turn 4 of the conversation."),
        ("Turn: 1", "Turn: 2"),
        ("Messages so far: 3", "Messages so far: 12"),
        ("Step 1/10", "Step 2/10"),
        ("You see the 3rd message.", "You see the 4th message."),
    ],
    "language": [
        ("Answer in English.", "Answer in German."),
        ("Language: en", "Language: de"),
        ("Respond in French, please.", "Respond in Portuguese, please."),
        ("The user's locale is en-US.", "The user's locale is de-DE."),
        ("preferred_language: English", "preferred_language: Japanese"),
    ],
}
CASES = [(kind, *both) for kind, pairs in SAID.items() for both in pairs]


def chat(said, rest, question, role="system"):
    return [{"role": role, "content": said}, {"role": "user", "content": f"{rest}\n\n{question}"}]


@pytest.mark.parametrize(("kind", "one", "other"), CASES)
@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize("frame", ["{said}\n{rules}", "{rules}\n{said}", "You are an assistant.\n{said}\n{rules}"])
def test_it_is_named_where_the_documents_stand_behind_it(kind, one, other, role, frame):
    prompts = [
        chat(frame.format(said=said, rules=RULES), context(FIRST), question, role)
        for said, question in ((one, "What is alpha?"), (other, "And what comes after beta then?"))
    ]
    diagnosis = diagnose(prompts)
    assert diagnosis.kinds == (kind,)
    (finding,) = [finding for finding in diagnosis.findings if not finding.fine]
    assert finding.message == 0
    assert finding.lost_tokens > 100


@pytest.mark.parametrize(("kind", "one", "other"), CASES)
def test_it_is_named_where_the_documents_stand_in_the_same_message(kind, one, other):
    prompts = [
        [{"role": "system", "content": f"{said}\n{RULES}\n\n{context(FIRST)}"}, {"role": "user", "content": question}]
        for said, question in ((one, "What is alpha?"), (other, "And what comes after beta then?"))
    ]
    assert diagnose(prompts).kinds == (kind,)


def test_what_changes_together_is_named_one_by_one():
    def prompt(user, turn, language):
        said = f"{RULES}\nUser: {user}\nTurn: {turn}\nLanguage: {language}"
        return chat(said, context(FIRST), "What is alpha?")

    assert diagnose([prompt("Anna", 1, "de"), prompt("Bob", 2, "fr")]).kinds == ("user", "turn", "language")
    assert diagnose([prompt("Anna", 1, "de"), prompt("Anna", 2, "de")]).kinds == ("turn",)


def test_a_question_that_is_known_or_asked_for_is_still_found():
    def prompt(user, question):
        return chat(f"User: {user}\n{RULES}\nQuestion: {question}", context(FIRST), "Go on.")

    asked = ("What is alpha made of?", "And what comes after beta then?")
    both = [prompt("Anna", asked[0]), prompt("Bob", asked[1])]
    assert set(diagnose(both).kinds) == {"user", "question_before_context"}
    known = [PromptRecord(prompt=prompt, question=question) for prompt, question in zip(both, asked, strict=True)]
    assert set(diagnose(known).kinds) == {"user", "question_before_context"}


RECORDS = {
    name: f"Name: {name.title()}\nCompany: {name.title()} Inc\nTurn: {number}\nLanguage: {language}\n"
    f"Email: {name}@x.org\nNotes: {name} has bought {number} bikes and wants them delivered soon, by the river."
    for number, (name, language) in enumerate(
        (("anna", "German"), ("bob", "French"), ("carl", "German"), ("dora", "Dutch"))
    )
}


@pytest.mark.parametrize("role", ["system", "user"])
@pytest.mark.parametrize(
    ("one", "other", "kinds"),
    [
        (("anna", "bob", "carl"), ("dora", "bob", "carl"), ("document_set",)),
        (("anna", "bob", "carl"), ("bob", "anna", "carl"), ("document_order",)),
        (("anna",), ("dora",), ()),
    ],
)
def test_records_that_are_documents_are_documents(role, one, other, kinds):
    def prompt(names):
        records = "\n\n".join(RECORDS[name] for name in names)
        messages = [{"role": "system", "content": HEAD}, {"role": "user", "content": "What is sold?"}]
        if role == "system":
            messages[0]["content"] += f"\n\n{records}"
        else:
            messages[1]["content"] = f"{records}\n\n{messages[1]['content']}"
        return messages

    assert diagnose([prompt(one), prompt(other)]).kinds == kinds


def test_the_words_mean_nothing_outside_of_system_messages():
    for _, one, _ in CASES:
        assert not {"user", "email", "tenant", "turn", "language"}.intersection(skeleton(one).kinds)


@pytest.mark.parametrize(
    "text",
    [
        *("The user asks in whatever words.", "Turn the page.", "Help the user.", "Use plain language.", "Name it."),
        *("Work for the best answer.", "The team is small.", "Say what the company sells."),
    ],
)
def test_what_only_sounds_like_it_is_none(text):
    assert skeleton(text, system=True).kinds == ()


@pytest.mark.parametrize("piece", ["A", "a.", "a@", "a@b.", "User: ", "User Anna ", "turn ", "name is ", "'", "1 "])
def test_long_text_of_one_piece_is_read_in_one_go(piece):
    text = piece * (20_000 // len(piece))
    found = skeleton(text, system=True)
    assert len(found.found) <= len(text) and found.rest >= 0


def test_every_kind_says_what_to_do_and_repeats_no_word():
    for kind, pairs in SAID.items():
        prompts = [chat(f"{said}\n{RULES}", context(FIRST), "What is alpha?") for said in pairs[0]]
        text = str(diagnose(prompts))
        assert f"{kind}: " in text
        assert not any(said in text for said in pairs[0])
