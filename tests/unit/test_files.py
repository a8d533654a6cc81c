"""Atomic file access: all or nothing, and the system's refusals as named problems."""

from __future__ import annotations

import errno
import multiprocessing
import os
import resource
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdfast.errors import ConflictError, CorruptionError, EnvironmentProblem, NotFoundError
from holdfast.storage import files

SRC = Path(files.__file__).parent.parent.parent


def names(directory: Path) -> list[str]:
    """All names, hidden ones too, read without the code under test."""
    return sorted(path.name for path in directory.iterdir())


def test_write_atomic_replaces_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a"
    files.write_atomic(path, b"one")
    files.write_atomic(path, b"two")
    assert path.read_bytes() == b"two"
    assert names(tmp_path) == ["a"]


def test_files_are_as_readable_as_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        files.write_atomic(tmp_path / "a", b"")
        files.create_exclusive(tmp_path / "b", b"")
    finally:
        os.umask(before)
    for name in "ab":
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o644


def test_readers_never_see_a_mix(tmp_path: Path) -> None:
    path = tmp_path / "a"
    contents = [bytes([65 + n]) * 200_000 for n in range(4)]
    files.write_atomic(path, contents[0])
    stop = threading.Event()
    seen: set[bytes] = set()

    def read() -> None:
        while not stop.is_set():
            seen.add(path.read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    for n in range(40):
        files.write_atomic(path, contents[n % 4])
    stop.set()
    reader.join()
    assert seen <= set(contents)


def test_create_exclusive_never_overwrites(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert files.create_exclusive(path, b"first")
    assert not files.create_exclusive(path, b"second")
    assert path.read_bytes() == b"first"
    assert names(tmp_path) == ["a"]


def test_create_exclusive_with_scratch_elsewhere(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    assert files.create_exclusive(tmp_path / "a", b"x", scratch=scratch)
    assert not files.create_exclusive(tmp_path / "a", b"y", scratch=scratch)
    assert (tmp_path / "a").read_bytes() == b"x"
    assert names(scratch) == []


def _race(path: Path, number: int, start: Path) -> None:
    while not start.exists():
        pass
    won = files.create_exclusive(path, str(number).encode())
    path.with_name(f"{'won' if won else 'lost'}-{number}").touch()


def test_one_of_several_processes_wins(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    path, start = tmp_path / "a", tmp_path / "start"
    racers = [context.Process(target=_race, args=(path, n, start)) for n in range(3)]
    for racer in racers:
        racer.start()
    start.touch()
    for racer in racers:
        racer.join(60)
        assert racer.exitcode == 0
    winners = list(tmp_path.glob("won-*"))
    assert [winner.name for winner in winners] == [f"won-{path.read_text()}"]
    assert len(list(tmp_path.glob("lost-*"))) == 2


def test_json_round_trip_is_readable(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    files.write_json(path, {"name": "Zoë", "n": [1, None]})
    assert files.read_json(path) == {"name": "Zoë", "n": [1, None]}
    assert "Zoë" in path.read_text("utf-8")


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe\xfd", b'{"a": 1'])
def test_unreadable_json_names_the_file(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(data)
    with pytest.raises(CorruptionError, match=r"a\.json") as caught:
        files.read_json(path)
    assert caught.value.name == "UNREADABLE_FILE"


def test_missing_json(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError) as caught:
        files.read_json(tmp_path / "a.json")
    assert caught.value.name == "FILE_NOT_FOUND"


def test_list_names_sorts_and_hides(tmp_path: Path) -> None:
    for name in ("b", "a", ".hidden", "_c"):
        (tmp_path / name).touch()
    assert files.list_names(tmp_path) == ["_c", "a", "b"]
    assert files.list_names(tmp_path / "nothing") == []


def test_remove_tree_never_follows_symlinks(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("keep")
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True)
    (tree / "deep" / "link").symlink_to(precious)
    (tree / "dangling").symlink_to(tmp_path / "nowhere")
    files.remove_tree(tree)
    assert not tree.exists()

    link = tmp_path / "link"
    link.symlink_to(precious)
    files.remove_tree(link)
    assert not os.path.lexists(link)
    assert (precious / "file").read_text() == "keep"


def test_remove_tree_of_a_file_and_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    files.remove_tree(tmp_path / "file")
    files.remove_tree(tmp_path / "file")
    assert names(tmp_path) == []


def test_lock_excludes_and_ends_with_its_block(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with files.exclusive_lock(lock):
        with pytest.raises(ConflictError) as caught, files.exclusive_lock(lock, timeout=0.05):
            pass
        assert caught.value.name == "LOCKED"
    with files.exclusive_lock(lock, timeout=0.05):
        pass


def test_writing_into_a_missing_directory_is_a_named_problem(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "a"
    with pytest.raises(EnvironmentProblem, match=str(path)) as caught:
        files.write_atomic(path, b"")
    assert caught.value.name == "STORAGE_ERROR"
    assert caught.value.fix


def test_a_file_where_a_directory_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentProblem) as caught:
        files.make_directory(tmp_path / "file" / "below")
    assert caught.value.name == "STORAGE_ERROR"


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_permission_problems_are_named(tmp_path: Path, number: int) -> None:
    with pytest.raises(EnvironmentProblem) as caught, files.storage_errors(tmp_path / "a"):
        raise OSError(number, os.strerror(number))
    assert caught.value.name == "PERMISSION_DENIED"
    assert str(tmp_path) in caught.value.fix


AS_NOBODY = """
import os, sys
from pathlib import Path
from holdfast.storage.files import write_atomic
from holdfast.errors import EnvironmentProblem
path = Path(sys.argv[1])
if os.geteuid() == 0:
    os.setuid(65534)
try:
    write_atomic(path, b"x")
except EnvironmentProblem as problem:
    print(problem.name)
"""


def test_permission_denied_by_the_system(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    assert child(AS_NOBODY, locked / "a").stdout.strip() == "PERMISSION_DENIED"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_disk_full_tells_the_mount_and_what_is_free(tmp_path: Path, number: int) -> None:
    with (
        pytest.raises(EnvironmentProblem) as caught,
        files.storage_errors(tmp_path / "a" / "b"),
    ):
        raise OSError(number, os.strerror(number))
    problem = caught.value
    assert problem.name == "DISK_FULL"
    assert problem.exit_code == 6
    assert Path(problem.facts["mount"]).is_mount()
    assert problem.facts["free_bytes"] > 0
    assert str(tmp_path / "a" / "b") in problem.message


FILL = """
import os, sys
from pathlib import Path
from holdfast.storage.files import create_exclusive, write_atomic
from holdfast.errors import EnvironmentProblem
mount = Path(sys.argv[1])
write_atomic(mount / "small", b"old")
for write, name in ((write_atomic, "small"), (create_exclusive, "new")):
    try:
        write(mount / name, os.urandom(1_000_000))
    except EnvironmentProblem as problem:
        print(problem.name, problem.facts["mount"], problem.facts["free_bytes"] < 200_000)
print((mount / "small").read_bytes(), os.listdir(mount))
"""


def test_a_really_full_disk_changes_nothing(tmp_path: Path) -> None:
    """On a tmpfs of 128 KiB, in a mount name space that ends with the child."""
    command = (
        f'mount -t tmpfs -o size=128k holdfast-test "{tmp_path}" || exit 77; '
        'exec "$0" -c "$1" "$2"'
    )
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("no unshare(1): cannot mount a small file system")
    arguments = [sys.executable, FILL, str(tmp_path)]
    done = subprocess.run(
        [unshare, "--map-root-user", "--mount", "sh", "-c", command, *arguments],
        env={"PYTHONPATH": str(SRC), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode == 77 or "unshare:" in done.stderr:
        pytest.skip(f"mounting is not allowed here: {done.stderr.strip()}")
    assert done.stdout.splitlines() == [
        f"DISK_FULL {tmp_path} True",
        f"DISK_FULL {tmp_path} True",
        "b'old' ['small']",
    ], done.stderr


def test_a_write_cut_short_by_the_system_leaves_nothing(tmp_path: Path) -> None:
    """The same by a file size limit, which needs no privileges (the system says EFBIG)."""
    done = child(FILL_LIMITED, tmp_path / "a")
    assert done.stdout.splitlines() == ["STORAGE_ERROR", "[]"], done.stderr


FILL_LIMITED = f"""
import os, resource, signal, sys
from pathlib import Path
from holdfast.storage.files import write_atomic
from holdfast.errors import EnvironmentProblem
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit({resource.RLIMIT_FSIZE}, (10_000, 10_000))
path = Path(sys.argv[1])
try:
    write_atomic(path, b"x" * 1_000_000)
except EnvironmentProblem as problem:
    print(problem.name)
print(os.listdir(path.parent))
"""


def child(script: str, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, str(path)],
        env={"PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
