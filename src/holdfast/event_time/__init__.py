"""Windows on keyed streams: which records belong together, and when their result comes out."""

from holdfast.event_time import windows

__all__ = ["windows"]
