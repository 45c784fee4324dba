"""Does reordering, annotating or de-duplicating cost answers? Paired questions to a model, with intervals."""

from contextpilot_integrations.gate.cases import Case, EarlierTurn, read_cases
from contextpilot_integrations.gate.counts import Count, count
from contextpilot_integrations.gate.records import Record, ScoreFile
from contextpilot_integrations.gate.report import Part, Report, report
from contextpilot_integrations.gate.server import Server, ServerScorer, choose_scorer, connect
from contextpilot_integrations.gate.trials import Scorer, Trial, evaluate, make_trials
from contextpilot_integrations.gate.verdict import Comparison, Judgement, judge

__all__ = [
    "Case",
    "Comparison",
    "Count",
    "Judgement",
    "Part",
    "Record",
    "Report",
    "ScoreFile",
    "Scorer",
    "Server",
    "ServerScorer",
    "Trial",
    "EarlierTurn",
    "choose_scorer",
    "connect",
    "count",
    "evaluate",
    "judge",
    "make_trials",
    "read_cases",
    "report",
]
