"""The gate's likelihoods on a real vLLM: of the right length, and higher for the answer that the documents give."""

from contextpilot_integrations.gate.server import LIKELIHOOD, choose_scorer, connect

CAPITAL = "[Doc 1]\n===\nThe capital of Ruritania is Strelsau.\n===\n\nWhat is the capital of Ruritania?"


def ask(text):
    return {"only": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]}


def test_the_gold_answer_is_scored_as_the_end_of_the_prompt(server):
    with connect(server.base_url, None, None) as connection:
        scorer = choose_scorer(connection, "likelihood", answer_tokens=8)
        assert scorer.settings == {"model": server.model, "metric": LIKELIHOOD}
        with_document, without, wrong = (
            scorer.score(ask(text), [answer])["only"][LIKELIHOOD]
            for text, answer in (
                (CAPITAL, "The capital of Ruritania is Strelsau."),
                ("What is the capital of Ruritania?", "The capital of Ruritania is Strelsau."),
                (CAPITAL, "The capital of Ruritania is Zenda."),
            )
        )
    assert -1 < with_document < 0
    assert without < with_document - 0.5
    assert wrong < with_document - 0.5
