"""Where rows go: ``hf.sinks.Files``, ``.Kafka``, ``.Console``, ``.Memory``, ``.Discard``."""

from holdfast.sinks.base import Delivery, Sink
from holdfast.sinks.console import Console
from holdfast.sinks.discard import Discard
from holdfast.sinks.files import Files
from holdfast.sinks.kafka import Kafka
from holdfast.sinks.memory import Memory, memory_rows

__all__ = ["Console", "Delivery", "Discard", "Files", "Kafka", "Memory", "Sink", "memory_rows"]
