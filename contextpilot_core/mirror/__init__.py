"""What the server's own events tell of its cache, and how far they are believed."""

from contextpilot_core.mirror.events import AllBlocksCleared, BlockRemoved, BlockStored, KVEvent
from contextpilot_core.mirror.keys import closed, opened
from contextpilot_core.mirror.mirror import KVMirror
from contextpilot_core.mirror.process_lock import ProcessLock
from contextpilot_core.mirror.reports import CacheReports

__all__ = [
    "AllBlocksCleared",
    "BlockRemoved",
    "BlockStored",
    "CacheReports",
    "KVEvent",
    "KVMirror",
    "ProcessLock",
    "closed",
    "opened",
]
