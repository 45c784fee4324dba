"""The quality benchmark: which questions take part, and that shared prompt starts change no score."""

import json
from pathlib import Path

import pytest

from tests.conftest import require

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


@pytest.fixture(scope="module")
def trials(data_dir):
    from benchmarks import quality_trials

    return quality_trials.trials()


def test_there_are_enough_questions_and_every_part_is_balanced(trials):
    groups = [trial.group for trial in trials]
    assert len({trial.key for trial in trials}) == len(trials) >= 300
    assert {groups[:80].count(group) for group in set(groups)} == {20}


def test_the_committed_figures_follow_from_the_committed_scores(trials, monkeypatch):
    from benchmarks import quality

    monkeypatch.delenv("CONTEXTPILOT_MODEL", raising=False)
    committed = json.loads((RESULTS / "quality.json").read_text("utf-8"))
    del committed["machine"]
    made = json.loads(json.dumps(quality.measure()), parse_float=lambda text: round(float(text), 6))
    assert made == json.loads(json.dumps(committed), parse_float=lambda text: round(float(text), 6))
    asked = len((RESULTS / "quality.scores.jsonl").read_text("utf-8").splitlines()) - 1
    assert sum(made["scored"].values()) == asked  # no score is of a question that is no longer asked


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    torch, transformers, tokenizers = require("torch"), require("transformers"), require("tokenizers")
    folder = tmp_path_factory.mktemp("model")
    words = ["<unk>", "<end>", *"abcdefghij"]
    table = tokenizers.models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>")
    tokenizer = tokenizers.Tokenizer(table)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", unk_token="<unk>")
    fast.chat_template = "{% for message in messages %}{{ message['content'] }} j {% endfor %}"
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(words),
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        tie_word_embeddings=True,
        initializer_range=0.5,
    )
    model = transformers.LlamaForCausalLM(config)
    model.generation_config.eos_token_id = [1]
    model.save_pretrained(folder)
    return folder


def prompt(text):
    return [{"role": "user", "content": text}]


def test_what_arms_share_is_computed_once_and_changes_no_score(model_folder):
    torch = require("torch")
    from benchmarks.quality_model import HuggingFaceScorer

    prompts = {
        "one": prompt("a b c d e"),
        "longer": prompt("a b c d e f g"),
        "shorter": prompt("a b"),
        "other": prompt("c a b d"),
        "again": prompt("c a b d"),
    }
    generate = ("one", "other")
    together = HuggingFaceScorer(model_folder, generate=generate).score(prompts, ["e f a"])
    for arm, messages in prompts.items():
        scorer = HuggingFaceScorer(model_folder, generate=generate)
        alone = scorer.score({arm: messages}, ["e f a"])[arm]
        assert together[arm] == pytest.approx(alone, abs=0.05)  # bfloat16
        tokens = scorer._tokenizer.encode(messages[0]["content"] + " j e f a")
        with torch.inference_mode():
            logits = scorer._model(torch.tensor([tokens])).logits[0, -4:-1].float()
        expected = torch.log_softmax(logits, -1).gather(1, torch.tensor(tokens[-3:]).unsqueeze(1)).mean()
        assert alone["log_likelihood"] == pytest.approx(float(expected), abs=0.05)
    assert {arm for arm, scores in together.items() if "f1" in scores} == set(generate)
    assert len({scores["log_likelihood"] for scores in together.values()}) == 4


@pytest.mark.parametrize("gold", ["e f a", "b", "j j j j j j j j j"])
@pytest.mark.parametrize("begun", [False, True], ids=["new answer", "begun answer"])
def test_what_the_model_answers_does_not_depend_on_the_answer_that_is_wanted(model_folder, gold, begun, monkeypatch):
    torch = require("torch")
    from benchmarks import quality_model

    messages = [*prompt("a b c d e"), {"role": "assistant", "content": "g"}][: 1 + begun]
    heard = []
    monkeypatch.setattr(quality_model, "exact_match", lambda answer, answers: heard.append(answer) or 0.0)
    scorer = quality_model.HuggingFaceScorer(model_folder, generate=("one",), generated_tokens=12)
    scorer.score({"one": messages}, [gold])
    tokens = scorer._tokenizer.encode("a b c d e j" + " g" * begun)
    for _ in range(12):
        with torch.inference_mode():
            hidden = scorer._model.model(torch.tensor([tokens])).last_hidden_state[0, -1].float()
            tokens.append(int((scorer._head @ hidden).argmax()))
        if tokens[-1] == 1:
            break
    expected = scorer._tokenizer.decode(tokens[6 + begun :], skip_special_tokens=True)
    assert heard == [expected]
