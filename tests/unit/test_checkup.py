"""Check sums of Hadoop, and what a job is told about its checkpoint."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from holdfast.checkpoint.checkup import EpochHealth, _problem, require_sums
from holdfast.checkpoint.spark_files import damaged
from holdfast.control.checkup import Checkup
from holdfast.errors import CorruptionError
from holdfast.storage.digests import digest


def summed(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    sums = b"".join(
        struct.pack(">I", zlib.crc32(content[at : at + 512]))
        for at in range(0, len(content), 512)
    )
    path.with_name(f".{path.name}.crc").write_bytes(b"crc\0" + struct.pack(">i", 512) + sums)
    return path


@pytest.mark.parametrize("size", [0, 1, 512, 1300])
def test_a_whole_file_is_found_whole_and_a_flipped_bit_is_found(
    tmp_path: Path, size: int
) -> None:
    file = summed(tmp_path / "1.changelog", bytes(range(256)) * 6)
    file = summed(tmp_path / "2.changelog", (bytes(range(256)) * 6)[:size])
    assert _problem(file) is None
    for at in {0, size // 2, size - 1} & set(range(size)):
        content = bytearray(file.read_bytes())
        content[at] ^= 1
        file.write_bytes(content)
        assert "2.changelog" in str(_problem(file))
        content[at] ^= 1
        file.write_bytes(content)
    file.write_bytes(file.read_bytes() + b"x")
    assert _problem(file) is not None


def test_files_without_sums_and_odd_sums(tmp_path: Path) -> None:
    file = tmp_path / "offsets"
    file.write_bytes(b"v1")
    assert _problem(file) is None
    (tmp_path / ".offsets.crc").write_bytes(b"nonsense")
    assert ".offsets.crc" in str(_problem(file))


def test_a_damaged_copy_is_named_where_it_came_from(tmp_path: Path) -> None:
    copy, original = tmp_path / "copy", tmp_path / "checkpoint"
    (copy / "state").mkdir(parents=True)
    file = summed(copy / "state" / "7.changelog", b"state")

    def check() -> None:
        names = [path.relative_to(copy) for path in copy.rglob("*") if path.is_file()]
        require_sums({str(name): digest(copy / name) for name in names}, copy, original)

    check()
    file.write_bytes(b"stage")
    with pytest.raises(CorruptionError) as found:
        check()
    assert found.value.facts["path"] == str(original / "state" / "7.changelog")


def test_what_is_said() -> None:
    bad = damaged(Path("/state/7.changelog"), "it is cut off")
    whole = Checkup(job="wiki", epochs=(EpochHealth(epoch=7), EpochHealth(epoch=6)))
    assert (whole.restorable, whole.fix) == (7, "")
    hurt = Checkup(
        job="wiki",
        epochs=(EpochHealth(epoch=7, problem=bad), EpochHealth(epoch=6)),
        again_epochs=1,
        again_rows=2_000,
        app="app.py",
    )
    assert "1 epochs with 2,000 input rows" in hurt.sentence
    assert hurt.fix == "holdfast run app.py --from checkpoint:6 --sink rewind"
    lost = Checkup(job="wiki", epochs=(EpochHealth(epoch=7, problem=bad),))
    assert "savepoint" in lost.fix
    assert Checkup(job="wiki", epochs=()).fix == ""
