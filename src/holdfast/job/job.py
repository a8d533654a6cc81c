"""The Job: a name, its settings and one pipeline function."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from holdfast.config import CheckpointConfig
from holdfast.errors import JobDefinitionError, shorten
from holdfast.job.arguments import Arguments, Value
from holdfast.job.flow import Flow
from holdfast.job.graph import user_line
from holdfast.restart import NoRestart, RestartStrategy
from holdfast.state.key_groups import check_key_groups, default_key_groups
from holdfast.types import check_name

Pipeline = Callable[[Flow], None]


class Job:
    """A streaming job.

    `name` identifies the job and its state. `parallelism` is the number of state
    partitions; `key_groups` the largest parallelism it can ever have. Both are fixed when
    the job first starts. With several watermarks, `watermark_policy` says which one counts:
    the smallest ("min", the default) or the largest ("max"), which makes the records of slow
    sources late.

    `on_failed` is told when the job has failed and will not be restarted: an http(s) URL, to
    which the facts are posted as JSON, or a command as a list of arguments, which gets them on
    its standard input.

    `arguments` are names with defaults that a start may give other values
    (`holdfast run --arg NAME=VALUE`); the pipeline reads them as `job.arguments["NAME"]`. A
    value has the type of its default: text, a number, True or False.
    """

    def __init__(
        self,
        name: str,
        *,
        checkpoint: CheckpointConfig | None = None,
        restart: RestartStrategy | None = None,
        parallelism: int | None = None,
        key_groups: int | None = None,
        watermark_policy: Literal["min", "max"] = "min",
        on_failed: str | Sequence[str] | None = None,
        arguments: Mapping[str, Value] | None = None,
    ) -> None:
        self.name = self.declared_name = check_name(name, "job name")
        self.checkpoint = checkpoint or CheckpointConfig()
        self.restart = restart or NoRestart()
        if parallelism is not None and (not isinstance(parallelism, int) or parallelism < 1):
            raise JobDefinitionError(
                "INVALID_PARALLELISM",
                f"parallelism is {shorten(parallelism)}.",
                fix="use a whole number of at least 1, or leave it out (number of cores).",
            )
        self.parallelism = parallelism
        self.key_groups = None if key_groups is None else check_key_groups(key_groups)
        if watermark_policy not in ("min", "max"):
            raise JobDefinitionError(
                "INVALID_OPTION",
                f"watermark_policy is {shorten(watermark_policy)}.",
                fix='use "min" (default: the slowest source decides) or "max".',
            )
        self.watermark_policy = watermark_policy
        self.on_failed = _checked_hook(on_failed)
        self.arguments = Arguments(arguments or {})
        self._pipeline: Pipeline | None = None

    def pipeline(self, function: Pipeline) -> Pipeline:
        """Decorator for the function that declares the job's flow.

        It is called once to plan the job, and again in every epoch to rebuild what comes
        after the last stateful step; keep it free of side effects.
        """
        if self._pipeline is not None:
            raise JobDefinitionError(
                "PIPELINE_DEFINED_TWICE",
                f"job {self.name!r} has two pipeline functions ({user_line()}).",
                fix="declare several sources and sinks in one function, or make a second Job.",
            )
        self._pipeline = function
        return function

    @property
    def declared_pipeline(self) -> Pipeline:
        if self._pipeline is None:
            raise JobDefinitionError(
                "PIPELINE_MISSING",
                f"job {self.name!r} has no pipeline.",
                fix="put @job.pipeline on the function that declares sources, steps and sinks.",
            )
        return self._pipeline

    @property
    def is_real_time(self) -> bool:
        return self.checkpoint.latency == "real_time"

    def resolved_parallelism(self) -> int:
        return self.parallelism or os.cpu_count() or 1

    def resolved_key_groups(self, parallelism: int) -> int:
        groups = self.key_groups or default_key_groups(parallelism)
        if parallelism > groups:
            raise JobDefinitionError(
                "INVALID_PARALLELISM",
                f"job {self.name!r}: parallelism {parallelism} exceeds {groups} key groups.",
                fix="raise key_groups or lower the parallelism.",
            )
        return groups

    def run(self, *, available_now: bool = False, max_epochs: int | None = None) -> None:
        """Run the job in the foreground until it ends, fails or is interrupted."""
        # By name: declarations may not import the layers that carry them out.
        runner = importlib.import_module("holdfast.control.runner")
        runner.run_job(self, available_now=available_now, max_epochs=max_epochs)


def _checked_hook(hook: str | Sequence[str] | None) -> str | tuple[str, ...] | None:
    if hook is None or (isinstance(hook, str) and hook.startswith(("http://", "https://"))):
        return hook
    if not isinstance(hook, str) and hook and all(isinstance(part, str) for part in hook):
        return tuple(hook)
    raise JobDefinitionError(
        "INVALID_OPTION",
        f"on_failed is {shorten(hook)}.",
        fix='use a URL ("https://…"), or a command as a list: ["notify", "--urgent"].',
    )
