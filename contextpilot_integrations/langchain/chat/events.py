"""The figures of a chat's answers as LangChain's custom events, for callback handlers and ``astream_events``."""

from dataclasses import asdict

from langchain_core.callbacks import adispatch_custom_event, dispatch_custom_event
from langchain_core.runnables import RunnableConfig

from contextpilot_integrations.serving.chat import TurnFigures

TURN_EVENT = "contextpilot_turn"
"""Name of the event; its data are the fields of `TurnFigures`."""


def tell(figures: TurnFigures, config: RunnableConfig) -> None:
    """Send the event to the handlers of the run that ``config`` belongs to."""
    dispatch_custom_event(TURN_EVENT, asdict(figures), config=config)


async def atell(figures: TurnFigures, config: RunnableConfig) -> None:
    """Send the event, as `tell`."""
    await adispatch_custom_event(TURN_EVENT, asdict(figures), config=config)
