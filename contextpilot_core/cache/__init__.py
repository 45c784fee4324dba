"""What the server is believed to cache: interned blocks, a prefix tree over them, an LRU estimate."""

from contextpilot_core.cache.blocks import BlockTable
from contextpilot_core.cache.estimate import CacheState, CacheView
from contextpilot_core.cache.tree import PrefixTree, Wanted
from contextpilot_core.cache.view import Ends, Keys, Located, Path, View

__all__ = ["BlockTable", "CacheState", "CacheView", "Ends", "Keys", "Located", "Path", "PrefixTree", "View", "Wanted"]
