"""Questions of a conversation planned again: when their history changed, the window is full, or the engine forgot.

Bytes stay as they are wherever that is right: a question is planned in the order in which it was sent.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from contextpilot_core import Message, Plan, RequestError, ReuseEngine, TokenCounter
from contextpilot_core.checks import whole_number
from contextpilot_core.prompt import HistoryDigest, message_text
from contextpilot_integrations.serving.chat.containment import WindowCounter
from contextpilot_integrations.serving.chat.entries import Asked, Entry, message_tokens, read, sent, split_turns
from contextpilot_integrations.serving.chat.texts import whole


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What all questions of a conversation share.

    ``prefix`` stands before every prompt, and so do ``instructions`` where no message is a system message. ``stored``:
    whether somebody else keeps the messages, and may change them. ``window``: tokens of prompt and answer together,
    None for no limit; ``count`` estimates them.
    """

    engine: ReuseEngine
    count: TokenCounter
    window: int | None = None
    namespace: str = "default"
    session_id: str | None = None
    instructions: str = ""
    prefix: tuple[Message, ...] = ()
    stored: bool = True

    def __post_init__(self) -> None:
        """Check the window, let the counter fail, and make the texts whole. Raises `ConfigError`."""
        if not isinstance(self.count, WindowCounter):
            object.__setattr__(self, "count", WindowCounter(self.count))
        for name in ("instructions", "prefix"):
            object.__setattr__(self, name, whole(getattr(self, name)))
        if self.window is not None:
            whole_number("max_context_tokens", self.window, "give the model's window, or None for no limit")

    def plan(self, asked: Asked, history: Sequence[Entry]) -> Plan:
        """Plan a question on top of ``history``, in flight; in its own order where it has one that fits."""
        request = {
            "query": asked.words,
            "instructions": self.instructions,
            "messages": [*self.prefix, *read(history)],
            "session_id": self.session_id,
            "namespace": self.namespace,
            "commit": False,
        }
        if asked.order is not None:
            try:
                return self.engine.plan(asked.blocks, order=asked.order, **request)  # type: ignore[arg-type]
            except RequestError:
                pass  # a store may have changed it
        return self.engine.plan(asked.blocks, **request)  # type: ignore[arg-type]

    def entry(self, plan: Plan, asked: Asked, history: Sequence[Entry]) -> Entry:
        """Return the message of a plan that was made of ``asked`` on top of ``history``."""
        depends = plan.names_history or min(plan.own_labels, default=1) > 1
        base = self.digest(history).value if self.stored and depends else ""
        text = whole(plan.message_text)  # a renderer may have brought what is not
        message = {"role": "user", "content": text} if text else None
        return Entry(message, replace(asked, order=plan.order, base=base, labels=plan.labels_given))

    def digest(self, history: Sequence[Entry] = ()) -> HistoryDigest:
        """Return the digest of a history, and of what a hint may name before it."""
        return HistoryDigest([*[each for each in self.prefix if each["role"] == "user"], *read(history)])

    def system(self, plan: Plan) -> tuple[Message, ...]:
        """Return the system message that the instructions made, if they did."""
        return plan.messages[: len(plan.messages) - len(plan.request.messages) - bool(plan.message_text)]

    def counted(self, messages: Sequence[Message]) -> int:
        """Return the counted tokens of messages."""
        return sum([message_tokens(message, self.count) for message in messages])


def sound(setting: Setting, history: Sequence[Entry], plans: list[Plan]) -> list[Entry]:
    """Return the messages; append plans for those that had to be planned again to ``plans``.

    They are ours from the first one on that depends on a history that is no more: a hint must never dangle.
    """
    kept: list[Entry] = []
    digest = setting.digest()
    for entry in history:
        if entry.asked is not None and (plans or entry.asked.base not in ("", digest.value)):
            entry = again(setting, entry.asked, kept, plans)
        kept.append(entry)
        for message in entry.read:
            digest.add(message)
    return kept


def again(setting: Setting, asked: Asked, history: Sequence[Entry], plans: list[Plan]) -> Entry:
    """Return the message of a question that is planned again on top of ``history``; append its plan to ``plans``."""
    plan = informed(setting, asked, history, plans)
    plans.append(plan)
    return setting.entry(plan, asked, history)


def informed(
    setting: Setting, asked: Asked, history: Sequence[Entry], plans: list[Plan], plan: Plan | None = None
) -> Plan:
    """Plan a question on top of ``history`` for an engine that knows its messages; ``plan``: of one that may not.

    What it has forgotten is planned again before: that is appended to ``plans``.
    """
    plan = setting.plan(asked, history) if plan is None else plan
    forgotten = unknown(setting, plan, history)
    if not forgotten:
        return plan
    setting.engine.abandon(plan)
    remind(setting, history, forgotten, plans)
    return setting.plan(asked, history)


def unknown(setting: Setting, plan: Plan, history: Sequence[Entry]) -> list[int]:
    """Return the places of our messages that show documents and that the engine does not know, by ``plan``."""
    recognised = iter(plan.recognised[len(setting.prefix) :])
    known = [all([next(recognised) for _ in entry.read][:1]) for entry in history]
    shows = [entry.message is not None and entry.asked is not None and bool(entry.asked.blocks) for entry in history]
    return [place for place in range(len(history)) if shows[place] and not known[place]]


def remind(setting: Setting, history: Sequence[Entry], places: Sequence[int], plans: list[Plan]) -> None:
    """Plan messages of ours again that the engine has forgotten; where that gives the same text, it knows them again.

    Another text is no harm: the message stays, and is for the engine one that others wrote. Appends to ``plans``.
    """
    for place in places:
        entry = history[place]
        if entry.asked is not None and entry.message is not None:
            plan = setting.plan(entry.asked, history[:place])
            if whole(plan.message_text) == message_text(entry.message):
                plans.append(plan)
            else:
                setting.engine.abandon(plan)


def shortened(setting: Setting, history: Sequence[Entry], tokens: float, plans: list[Plan]) -> list[Entry]:
    """Return the messages without their oldest turns, as few as bring the turns to ``tokens``, but one at least.

    System messages stay, before the turns. The turns that stay are planned again, as their hints may name what is gone;
    that can make them larger. Appends to ``plans``, which is empty.
    """
    head, turns = split_turns(history)
    while True:
        head += [entry for entry in (turns[0] if turns else ()) if entry.is_system]
        turns = turns[1:]
        rest = [entry for turn in turns for entry in turn]
        if setting.counted(sent(rest)) > tokens:
            continue
        kept = list(head)
        for entry in rest:
            kept.append(entry if entry.asked is None else again(setting, entry.asked, kept, plans))
        if setting.counted(sent(kept[len(head) :])) <= tokens or not turns:
            return kept
        while plans:
            setting.engine.abandon(plans.pop())
