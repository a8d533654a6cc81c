"""Fault points do nothing by themselves, and exactly what a test asked for otherwise."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import faults
from holdfast.errors import SettingsError
from holdfast.faults import Fault, armed, fault_point, fired_faults, fired_points, parse_faults

SRC = Path(faults.__file__).parent.parent


def start(script: str, log: Path, value: str) -> subprocess.Popen[str]:
    """A child in a process group of its own, so that `kill` does not reach pytest."""
    environment = dict(os.environ, PYTHONPATH=str(SRC), HOLDFAST_FAULTS=value)
    environment["HOLDFAST_FAULTS_LOG"] = str(log)
    return subprocess.Popen(
        [sys.executable, "-c", script],
        env=environment,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(script: str, log: Path, value: str) -> tuple[int, str, str]:
    child = start(script, log, value)
    out, err = child.communicate(timeout=60)
    return child.returncode, out, err


PASS_THREE_TIMES = """
from holdfast.faults import fault_point
for n in range(3):
    print("before", n, flush=True)
    fault_point("a.b")
print("end", flush=True)
"""


def test_compact_syntax() -> None:
    assert parse_faults("a.b=kill, c=raise@3,d=gate:/tmp/x@2,") == [
        Fault(point="a.b", action="kill"),
        Fault(point="c", action="raise", on_pass=3),
        Fault(point="d", action="gate", on_pass=2, gate=Path("/tmp/x")),
    ]
    assert parse_faults("a=kill once, b=gate:/tmp/x y@3 once") == [
        Fault(point="a", action="kill", once=True),
        Fault(point="b", action="gate", on_pass=3, gate=Path("/tmp/x y"), once=True),
    ]


def test_json_syntax_allows_lists_and_commas_in_paths() -> None:
    assert parse_faults('{"a": ["raise", "kill@2"], "b": "gate:/tmp/x,y"}') == [
        Fault(point="a", action="raise"),
        Fault(point="a", action="kill", on_pass=2),
        Fault(point="b", action="gate", gate=Path("/tmp/x,y")),
    ]


@pytest.mark.parametrize(
    "text",
    [
        *(
            "a",
            "a=",
            "a=explode",
            "=kill",
            "a=kill twice",
            "a=kill@0",
            "a=kill@x",
            "a=gate:",
            "a:b=kill",
        ),
        *("{", '{"a": 1}', '{"a": {"action": "kill"}}', '{"a": "explode"}'),
    ],
)
def test_other_syntax_is_refused(text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_faults(text)
    assert caught.value.name == "INVALID_FAULTS"
    assert "Fix: " in str(caught.value)


def test_bad_environment_is_refused_at_import(tmp_path: Path) -> None:
    code, _, err = run("import holdfast.faults", tmp_path / "log", "nonsense")
    assert code == 1
    assert "INVALID_FAULTS" in err


def test_nothing_happens_unless_armed(tmp_path: Path) -> None:
    code, out, _ = run(PASS_THREE_TIMES, tmp_path / "log", "")
    assert (code, out.split("\n")[-2]) == (0, "end")
    assert fired_points(tmp_path / "log") == []


def test_raise_fires_at_its_pass_only_and_is_logged(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with armed("a=raise@2", log=log):
        fault_point("a")
        fault_point("b")
        assert fired_points(log) == []
        with pytest.raises(RuntimeError, match=r"injected fault at a \(pass 2\)"):
            fault_point("a")
        fault_point("a")
    assert fired_points(log) == ["a"]


def test_armed_ends_with_its_block() -> None:
    with armed("a=raise"):
        pass
    fault_point("a")


def test_enospc_is_the_systems_error() -> None:
    with armed("a=enospc"), pytest.raises(OSError) as caught:
        fault_point("a")
    assert caught.value.errno == errno.ENOSPC


def test_kill_takes_the_whole_process_group(tmp_path: Path) -> None:
    script = (
        "import subprocess\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "print(child.pid, flush=True)\n" + PASS_THREE_TIMES
    )
    code, out, _ = run(script, tmp_path / "log", "a.b=kill@2")
    assert code == -signal.SIGKILL
    assert out.splitlines()[1:] == ["before 0", "before 1"]
    assert fired_points(tmp_path / "log") == ["a.b"]
    wait_until(lambda: not is_running(int(out.splitlines()[0])), "the grandchild is dead")


def test_exit_skips_all_cleanup(tmp_path: Path) -> None:
    script = "import atexit\natexit.register(print, 'cleaned')\n" + PASS_THREE_TIMES
    code, out, _ = run(script, tmp_path / "log", "a.b=exit")
    assert code == faults.EXIT_CODE
    assert out == "before 0\n"


def test_once_fires_in_the_first_process_only(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert run(PASS_THREE_TIMES, log, "a.b=exit@2 once")[0] == faults.EXIT_CODE
    assert run(PASS_THREE_TIMES, log, "a.b=exit@2 once")[0] == 0
    [fired] = fired_faults(log)
    assert (fired.point, fired.action) == ("a.b", "exit")


def test_stop_suspends_until_continued(tmp_path: Path) -> None:
    child = start(PASS_THREE_TIMES, tmp_path / "log", "a.b=stop")
    _, status = os.waitpid(child.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    assert fired_points(tmp_path / "log") == ["a.b"]
    child.send_signal(signal.SIGCONT)
    out, _ = child.communicate(timeout=60)
    assert (child.returncode, out.splitlines()[-1]) == (0, "end")


def test_gate_waits_for_its_file(tmp_path: Path) -> None:
    gate, log = tmp_path / "gate", tmp_path / "log"
    child = start(PASS_THREE_TIMES, log, f"a.b=gate:{gate}@2")
    wait_until(lambda: fired_points(log) == ["a.b"], "the gate is reached")
    assert child.poll() is None
    gate.touch()
    out, _ = child.communicate(timeout=60)
    assert (child.returncode, out.splitlines()[-1]) == (0, "end")


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:  # gone, also between open and read
        return False
    return state != "Z"


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, f"not within 30 s: {what}"
        time.sleep(0.01)
