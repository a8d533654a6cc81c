"""What a failure inside user code looks like to the user: the step, the place, the record."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError, UserCodeError, shorten

_LIBRARY = str(Path(__file__).resolve().parents[1])


def user_error(
    error: Exception, uid: str, process: object, key: Any = None, cause: Any = None
) -> HoldfastError:
    """The error that a job ends with; `cause` is the record or timer at which it happened."""
    place = user_frame(error)
    where = f" at {place}" if place else ""
    facts: dict[str, Any] = {"step": uid, "place": place}
    about = ""
    if cause is not None:
        facts |= {"key": shorten(key), "record": shorten(cause, 500)}
        about = f"\n  key: {facts['key']}\n  record: {facts['record']}"
    if isinstance(error, HoldfastError):
        return type(error)(error.name, f"{error.message}{where}{about}", fix=error.fix, **facts)
    if isinstance(error, AttributeError) and error.obj is process:
        return UserCodeError(
            "STATE_NOT_DECLARED",
            f"step {uid!r} uses self.{error.name}, which is not declared{where}.{about}",
            fix=f"declare it on {type(process).__name__}, such as "
            f'`{error.name} = hf.ValueState("bigint", default=0)`.',
            **facts,
        )
    if _is_unanswered(error):
        return UserCodeError(
            "SERVICE_UNREACHABLE",
            f"step {uid!r} asks something that does not answer: {type(error).__name__}: "
            f"{error}{where}.{about}",
            fix="nothing, if it comes back: a restart strategy tries again, from the last "
            "committed epoch on.",
            traceback="".join(traceback.format_exception(error)),
            **facts,
        )
    return UserCodeError(
        "USER_FUNCTION_FAILED",
        f"step {uid!r}: {type(error).__name__}: {error}{where}.{about}",
        fix="correct the function, or handle such records in it (a side output keeps "
        "them); then run the job again, it goes on from the last committed epoch.",
        traceback="".join(traceback.format_exception(error)),
        **facts,
    )


def _is_unanswered(error: BaseException) -> bool:
    """Whether a refused connection or a timeout is behind it, whatever wraps it."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        if isinstance(each, ConnectionError | TimeoutError):
            return True
        seen.add(id(each))
        waiting += [each.__cause__, each.__context__]
    return False


def user_frame(error: BaseException) -> str | None:
    """`file:line in function` of the innermost frame that is the user's own code."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [
        frame
        for frame in frames
        if not frame.filename.startswith(_LIBRARY)
        and "site-packages" not in frame.filename
        and "/pyspark/" not in frame.filename
        and not frame.filename.startswith("<frozen ")  # Python's own import machinery
    ]
    if not own:
        return None
    return f"{own[-1].filename}:{own[-1].lineno} in {own[-1].name}"
