"""One question of a conversation without any input or output: what to send, and what to keep of it.

Every chat of ours is this and a translation: the clients, LangChain's chat, LlamaIndex's chat engine.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter

from contextpilot_core import Message, Observation, Plan, PromptTokens, RequestError, Served, Source
from contextpilot_integrations.serving.chat.answers import no_answer
from contextpilot_integrations.serving.chat.containment import contained
from contextpilot_integrations.serving.chat.entries import Asked, Entry, known_sources, sent
from contextpilot_integrations.serving.chat.replan import Setting, informed, shortened, sound
from contextpilot_integrations.serving.chat.usage import TurnFigures, Usage, scale_of, usual_tokens


class Turn:
    """Made for one question on top of the messages of its session; planned when made.

    ``entry`` is the question as it is sent, ``history`` what is sent before it: the messages as they were given, unless
    the window was full, or somebody changed what hints name: then ``rewritten`` is true, and ``history`` replaces them.
    ``sources``: what every ``[Doc n]`` of the prompt stands for; what another process sent, its question itself knows.

    Once the model was asked, nothing is raised here: what an engine, its clock or its observer make of an answer does
    not take it from whoever waits for it.
    """

    sources: Mapping[int, Source]

    def __init__(
        self,
        setting: Setting,
        history: Sequence[Entry],
        asked: Asked,
        *,
        room: float | None = None,
        scale: float = 1.0,
        plan: Plan | None = None,
    ) -> None:
        """Plan the prompt, unless ``plan`` was made for it. Raises `RequestError`: it is empty, or the engine refuses.

        ``room``: tokens that the prompt may have at most, None for no limit; ``scale``: those of the server per counted
        one.
        """
        started = perf_counter()
        self._setting, self._asked = setting, asked
        self._earlier: list[Plan] = []  # of the history, where it was planned again for this turn
        self.history, self.rewritten = list(history), False
        try:
            if setting.stored:
                self.history = sound(setting, self.history, self._earlier)
                self.rewritten = bool(self._earlier)
            self._plan(plan)
            if not (asked.query.strip() or asked.blocks or asked.parts) and (history or not setting.instructions):
                raise RequestError(
                    f"the question is empty ({len(asked.query)} characters), and has no documents: there is nothing to "
                    "send; give the words of the user"
                )
            if room is not None:
                self._fit(room, scale)
            # A renderer of the caller's may be asked for these: not as late as when the answer is there.
            questions = [entry.asked for entry in self.history if entry.asked is not None]
            self.sources = known_sources(self.plan.sources, questions, setting.engine.config)
        except BaseException:
            self.failed()
            raise
        self.plan_seconds = perf_counter() - started

    @property
    def head(self) -> list[Entry]:
        """The system message that stands before the history, where the instructions made one: for whoever keeps it."""
        return [Entry(message) for message in self._setting.system(self.plan)]

    @property
    def prompt(self) -> list[Message]:
        """The messages to send: what stands before, the history, the question."""
        return [*self._setting.system(self.plan), *self._setting.prefix, *sent([*self.history, self.entry])]

    def _plan(self, plan: Plan | None) -> None:
        setting = self._setting
        self.plan = informed(setting, self._asked, self.history, self._earlier, plan)
        self.entry = setting.entry(self.plan, self._asked, self.history)
        self._tokens = setting.counted(self.prompt)
        asked = replace(self.entry.asked or self._asked, tokens=self._tokens)
        self.entry = replace(self.entry, asked=asked)

    def _fit(self, room: float, scale: float) -> None:
        """While the prompt is larger than its room, drop the oldest turns down to half the window, and plan again."""
        half = (self._setting.window or room) / 2 / scale
        while any(entry.is_question for entry in self.history) and scale * self._tokens > room:
            self.failed()
            self.history = shortened(self._setting, self.history, half, self._earlier)
            self.rewritten = True
            self._plan(None)

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Take the plans back when the block fails: the prompt did not reach the model."""
        try:
            yield
        except BaseException:
            self.failed()
            raise

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Tell the engine whether the model has had the prompt: it has when the block ends without an error."""
        with self.opening():
            yield
        self.sent()

    @contextmanager
    def streaming(self) -> Iterator[Callable[[], None]]:
        """Tell the engine whether the model has had the prompt: from the first chunk on, whatever happens then.

        Yields what is to be called with each chunk. Without any, the prompt did not reach the model.

        Raises:
            AnswerError: the block ended well, and without any.
        """
        started = False

        def chunk() -> None:
            nonlocal started
            if not started:
                started = True
                self.sent()

        try:
            yield chunk
        finally:
            if not started:
                self.failed()
        if not started:
            raise no_answer()

    def sent(self) -> None:
        """Note that the server has taken the prompt: from now on it is in its cache."""
        engine = self._setting.engine
        with contained("noting that a prompt was sent"):
            for plan in (*self._earlier, self.plan):
                if not engine.commit(plan):
                    # The answer took longer than a plan may be in flight, and the engine has forgotten it.
                    again = engine.plan(**vars(plan.request), order=plan.order, commit=False)
                    (engine.commit if again.messages == plan.messages else engine.abandon)(again)

    def failed(self) -> None:
        """Note that the prompt never reached the model: as if nothing had been planned."""
        for plan in (getattr(self, "plan", None), *reversed(self._earlier)):
            if plan is not None:
                with contained("taking a plan back"):
                    self._setting.engine.abandon(plan)
        self._earlier = []

    def unanswered(self) -> None:
        """Note that what was taken as sent reached no model: what answered was no model server."""
        for plan in (*self._earlier, self.plan):
            with contained("taking a plan back"):
                self._setting.engine.evict([plan.request_id], namespace=plan.request.namespace)

    def scale(self, prompt_tokens: int | None) -> float | None:
        """Return the server's tokens per counted one; None while they are unknown, or cannot be (`scale_of`)."""
        return scale_of(prompt_tokens, self._tokens, usual_tokens(self.prompt))

    def observe(self, usage: Usage, tokens: PromptTokens | None, cache_salt: str | None) -> Observation:
        """Tell the engine what the server reported with the answer, and the prompt's exact tokens and salt."""
        observation = Observation(predicted=None, reported=usage.cached_tokens, source="estimate")
        known = isinstance(cache_salt, str | None)  # of another one nobody can tell under which keys the prompt lies
        served = Served(
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            tokens=tokens if known else None,
            cache_salt=cache_salt if known else None,
        )
        with contained("telling the engine of an answer"):
            observation = self._setting.engine.observe(self.plan, served)
        return observation

    def figures(self, usage: Usage, tokens: PromptTokens | None, cache_salt: str | None) -> TurnFigures:
        """Do as `observe`, and return the figures of this turn."""
        observation = self.observe(usage, tokens, cache_salt)
        stats = self._setting.engine.stats(self._setting.namespace)
        return TurnFigures(
            request_id=self.plan.request_id,
            plan_seconds=self.plan_seconds,
            prompt_tokens=usage.prompt_tokens,
            predicted=observation.predicted,
            reported=observation.reported,
            hit_rate=usage.hit_rate,
            source=observation.source,
            drift=stats.drift,
            live_contexts=stats.live_requests,
            evictions=stats.evictions,
        )
