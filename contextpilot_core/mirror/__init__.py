"""What the server's own events tell of its cache, and how far they are believed."""

from contextpilot_core.mirror.events import AllBlocksCleared, BlockRemoved, BlockStored, KVEvent
from contextpilot_core.mirror.mirror import KVMirror

__all__ = ["AllBlocksCleared", "BlockRemoved", "BlockStored", "KVEvent", "KVMirror"]
