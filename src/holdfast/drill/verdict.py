"""Whether a job took a fault as it must: a pure decision over what was seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.demo.proof import Proof
from holdfast.drill.catalogue import AnyDrill
from holdfast.drill.drills import Drill
from holdfast.drill.endings import Ended


@dataclass(frozen=True, kw_only=True)
class SeenAttempt:
    """How an attempt ended."""

    state: str
    error: str | None
    failure_class: str | None

    @property
    def words(self) -> str:
        return self.error or self.state


@dataclass(frozen=True, kw_only=True)
class Seen:
    """All that is known of a drill that was carried out."""

    fired: tuple[str, ...]
    """The points at which faults fired, in order."""
    attempts: tuple[SeenAttempt, ...]
    left_over: tuple[int, ...] = ()
    """Processes of the broken attempt that were there when the next one had begun."""
    zombie_refused: bool | None = None
    """Whether a driver that woke up too late ended with an error; None: there was none."""
    trouble: str = ""
    """What kept the drill from going on to its end."""
    complaints: tuple[str, ...] = ()
    """What else is not as it should be."""
    half_visible: tuple[str, ...] = ()
    """What a reader of the output could see and should not."""
    proof: Proof | None
    """None: there was no output to compare."""

    @property
    def exact(self) -> bool:
        return self.proof is not None and self.proof.holds and not self.half_visible


def objections(drill: AnyDrill, seen: Seen) -> tuple[str, ...]:
    """Why the drill has failed; empty if it has passed."""
    judged = _of_attempts if isinstance(drill, Drill) else _of_many_attempts
    return (
        *_of_the_fault(drill, seen.fired),
        *([seen.trouble] if seen.trouble else []),
        *judged(drill.ends, seen.attempts),
        *_of_processes(seen),
        *seen.complaints,
        *seen.half_visible,
        *_of_the_proof(seen.proof),
    )


def _of_the_fault(drill: AnyDrill, fired: Sequence[str]) -> list[str]:
    point = drill.injection.point
    if not fired:
        return [f"the fault at {point!r} did not fire, so nothing is proven"]
    if list(fired) != [point]:
        return [f"faults fired at {', '.join(fired)}; expected was one at {point!r}"]
    return []


def _of_attempts(ends: Ended | None, attempts: Sequence[SeenAttempt]) -> list[str]:
    expected = [*_struck(ends), SeenAttempt(state="FINISHED", error=None, failure_class=None)]
    if list(attempts) == expected:
        return []
    return [f"the attempts were {_words(attempts)}; expected was {_words(expected)}"]


def _of_many_attempts(ends: Ended | None, attempts: Sequence[SeenAttempt]) -> list[str]:
    """An operation ends attempts and starts others; at most the one that is struck fails."""
    failed = [each for each in attempts if each.error is not None]
    if failed == _struck(ends) and attempts and attempts[-1].state == "FINISHED":
        return []
    expected = _words(_struck(ends)) or "none"
    return [f"the attempts were {_words(attempts)}; to fail expected was {expected}"]


def _struck(ends: Ended | None) -> list[SeenAttempt]:
    if ends is None:
        return []
    return [SeenAttempt(state="FAILED", error=ends.error, failure_class=ends.failure_class)]


def _words(attempts: Sequence[SeenAttempt]) -> str:
    return ", ".join(
        f"{each.words} ({each.failure_class})" if each.failure_class else each.words
        for each in attempts
    )


def _of_processes(seen: Seen) -> list[str]:
    wrong = []
    if seen.left_over:
        pids = ", ".join(map(str, seen.left_over))
        wrong.append(f"processes {pids} of the broken attempt outlived the next one's start")
    if seen.zombie_refused is False:
        wrong.append("the driver that woke up too late ended as if all were well")
    return wrong


def _of_the_proof(proof: Proof | None) -> list[str]:
    if proof is None:
        return ["there is no output"]
    wrong = [
        f"{check.what}: {check.found}, expected {check.expected}"
        for check in proof.checks
        if not check.equal
    ]
    if not proof.holds and not wrong:
        wrong.append("balances differ")
    return wrong
