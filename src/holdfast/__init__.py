"""holdfast: stateful streaming on Apache Spark that you can trust.

Names are loaded on first use: importing holdfast costs next to nothing, and pyspark is
imported only when a job runs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast import sinks, sources, testing
    from holdfast.config import CheckpointConfig
    from holdfast.errors import HoldfastError
    from holdfast.event_time import windows
    from holdfast.event_time.process import WindowProcess
    from holdfast.job.flow import Flow, KeyedStream
    from holdfast.job.job import Job
    from holdfast.restart import ExponentialDelay, FailureRate, FixedDelay, NoRestart
    from holdfast.state.declare import (
        AggregatingState,
        BroadcastState,
        ListState,
        MapState,
        ReducingState,
        ValueState,
    )
    from holdfast.state.process import Context, KeyedProcess, to
    from holdfast.state.timers import Timer
    from holdfast.state.ttl import Ttl
    from holdfast.storage.filelog import FileLogProducer

__version__ = "0.1.0"

_HOMES = {
    "sinks": "",
    "sources": "",
    "testing": "",
    "CheckpointConfig": "config",
    "HoldfastError": "errors",
    "windows": "event_time",
    "WindowProcess": "event_time.process",
    "Flow": "job.flow",
    "KeyedStream": "job.flow",
    "Job": "job.job",
    "ExponentialDelay": "restart",
    "FailureRate": "restart",
    "FixedDelay": "restart",
    "NoRestart": "restart",
    "AggregatingState": "state.declare",
    "BroadcastState": "state.declare",
    "ListState": "state.declare",
    "MapState": "state.declare",
    "ReducingState": "state.declare",
    "ValueState": "state.declare",
    "Context": "state.process",
    "KeyedProcess": "state.process",
    "to": "state.process",
    "Timer": "state.timers",
    "Ttl": "state.ttl",
    "FileLogProducer": "storage.filelog",
}

__all__ = [
    "AggregatingState",
    "BroadcastState",
    "CheckpointConfig",
    "Context",
    "ExponentialDelay",
    "FailureRate",
    "FileLogProducer",
    "FixedDelay",
    "Flow",
    "HoldfastError",
    "Job",
    "KeyedProcess",
    "KeyedStream",
    "ListState",
    "MapState",
    "NoRestart",
    "ReducingState",
    "Timer",
    "Ttl",
    "ValueState",
    "WindowProcess",
    "__version__",
    "sinks",
    "sources",
    "testing",
    "to",
    "windows",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}", name=name)
    home = _HOMES[name]
    found = (
        getattr(import_module(f"holdfast.{home}"), name)
        if home
        else import_module(f"holdfast.{name}")
    )
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
