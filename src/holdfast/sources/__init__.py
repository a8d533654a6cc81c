"""Where records come from: ``hf.sources.Files``, ``.FileLog``, ``.Collection``."""

from holdfast.sources.base import BadRecords, Source
from holdfast.sources.collection import Collection
from holdfast.sources.filelog import FileLog
from holdfast.sources.files import Files

__all__ = ["BadRecords", "Collection", "FileLog", "Files", "Source"]
