"""Where records come from: ``hf.sources.Files``, ``.FileLog``, ``.Collection``, ``.Kafka``."""

from holdfast.sources.base import BadRecords, Source
from holdfast.sources.collection import Collection
from holdfast.sources.filelog import FileLog
from holdfast.sources.files import Files
from holdfast.sources.kafka import Kafka

__all__ = ["BadRecords", "Collection", "FileLog", "Files", "Kafka", "Source"]
