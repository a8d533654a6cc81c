"""Archives of savepoints: what comes out is what went in, or nothing comes out."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast import faults
from holdfast.checkpoint.copies import copy_batch
from holdfast.checkpoint.identity import JobIdentity
from holdfast.checkpoint.spark_files import BatchFiles, BatchStart
from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.faults import EXIT_CODE, armed, fired_points
from holdfast.savepoint import archive as archives
from holdfast.savepoint import tar_stream
from holdfast.savepoint.archive import export_savepoint, import_savepoint
from holdfast.savepoint.manifest import MANIFEST, Manifest, SavedFile
from holdfast.savepoint.store import Savepoint, SavepointStore, read_savepoint, verify
from holdfast.storage.files import read_json, to_json_bytes, write_json

NAME = "20261117-081646-94738f"
LONG = f"checkpoint/state/0/1/SSTs/{'f' * 120}.sst"
SPARK_METADATA = "checkpoint/state/0/_metadata/v2/0"
CONTENTS = {
    "checkpoint/metadata": b'{"id":"q"}',
    "checkpoint/offsets/7": b"",
    SPARK_METADATA: b'v2\n{"operatorInfo":{"operatorId":0},"stateStoreInfo":['
    b'{"stateSchemaFilePaths":["file:/first/home/state/0/_stateSchema/default/0_a"]}]}',
    LONG: os.urandom(tar_stream.CHUNK + 17),
    "sizes/7.json": b"{}\n",
}


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def manifest_of(contents: dict[str, bytes]) -> Manifest:
    return Manifest(
        id=NAME,
        kind="native",
        created=datetime(2026, 11, 17, 8, 16, 46, tzinfo=UTC),
        epoch=7,
        identity=JobIdentity(
            job_id="a1",
            name="wiki",
            parallelism=2,
            key_groups=64,
            operators={"sum": {"kind": "process", "keys": [], "variables": {}}},
            sources=("edits",),
        ),
        sources={"edits": {"logOffset": 3}},
        keys={"sum": 12},
        label="monday",
        files=tuple(
            SavedFile(path=path, size=len(content), sha256=digest(content))
            for path, content in contents.items()
        ),
    )


def made(root: Path) -> Savepoint:
    manifest = manifest_of(CONTENTS)
    path = root / "wiki" / NAME
    for name, content in CONTENTS.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    write_json(path / MANIFEST, manifest.to_dict())
    return Savepoint(path, manifest)


def names_below(path: Path) -> list[str]:
    return sorted(str(each.relative_to(path)) for each in path.rglob("*") if not each.is_dir())


@pytest.fixture
def store(tmp_path: Path) -> SavepointStore:
    """Where things are imported to."""
    return SavepointStore(tmp_path / "there")


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    return export_savepoint(made(tmp_path / "here"), tmp_path / "monday.tar.zst")


def refused(file: Path, store: SavepointStore) -> HoldfastError:
    """Nothing is left of an import that is refused."""
    before = names_below(store.root)
    with pytest.raises(HoldfastError) as caught:
        import_savepoint(file, store)
    assert names_below(store.root) == before
    assert store.leftovers() == []
    assert caught.value.fix
    return caught.value


# -- there and back -----------------------------------------------------------------------


def test_there_and_back(tmp_path: Path, store: SavepointStore) -> None:
    savepoint = made(tmp_path / "here")
    seen: list[tuple[str, int, int]] = []

    def progress(what: str, done: int, total: int) -> None:
        seen.append((what, done, total))

    file = export_savepoint(savepoint, tmp_path / "new" / "monday.tar.zst", progress=progress)
    assert names_below(file.parent) == ["monday.tar.zst"]
    assert {what for what, _, _ in seen} == {"verify", "pack"}
    size = savepoint.manifest.bytes
    assert seen[-1] == ("pack", size, size)
    shutil.rmtree(tmp_path / "here")
    imported = import_savepoint(file, store, progress=progress)
    assert seen[-1] == ("unpack", size, size)
    assert imported.path == store.root / "wiki" / NAME
    assert imported == store.find("monday") == store.find("latest", "wiki")
    verify(imported)
    assert names_below(imported.path) == sorted([*CONTENTS, MANIFEST])
    assert store.leftovers() == []
    # Packed again, it is the same archive to the byte.
    again = export_savepoint(imported, tmp_path / "again.tar.zst")
    assert again.read_bytes() == file.read_bytes()


def test_any_tar_reads_it_and_the_manifest_comes_first(exported: Path) -> None:
    with (
        pa.CompressedInputStream(pa.OSFile(str(exported)), "zstd") as stream,
        tarfile.open(fileobj=io.BytesIO(stream.read())) as tar,
    ):
        members = tar.getmembers()
        assert [member.name for member in members] == [MANIFEST, *CONTENTS]
        for member in members[1:]:
            content = tar.extractfile(member)
            assert content is not None
            assert content.read() == CONTENTS[member.name]
        assert {stat.S_IMODE(member.mode) for member in members} == {0o644}


def test_a_restore_finds_the_schemas_of_an_imported_savepoint(
    tmp_path: Path, exported: Path, store: SavepointStore
) -> None:
    imported = import_savepoint(exported, store)
    with_paths = SPARK_METADATA.removeprefix("checkpoint/")
    files = BatchFiles(
        batch=7,
        start=BatchStart(watermark_ms=0, conf={}, sources=()),
        linked=("metadata",),
        with_paths=(with_paths,),
        logs={},
    )
    copy_batch(imported.checkpoint, files, tmp_path / "job" / "checkpoint.t1")
    copied = (tmp_path / "job" / "checkpoint.t1" / with_paths).read_text("utf-8")
    expected = f"file:{tmp_path}/job/checkpoint.t1/state/0/_stateSchema/default/0_a"
    stores = json.loads(copied.split("\n", 1)[1])["stateStoreInfo"]
    assert stores == [{"stateSchemaFilePaths": [expected]}]
    verify(imported)


# -- exporting ----------------------------------------------------------------------------


def test_a_file_that_is_there_is_not_replaced_unless_asked(tmp_path: Path) -> None:
    savepoint, file = made(tmp_path / "here"), tmp_path / "a.tar.zst"
    file.write_bytes(b"mine")
    with pytest.raises(
        HoldfastError, match=r"a\.tar\.zst exists already.*\n.*--force"
    ) as caught:
        export_savepoint(savepoint, file)
    assert (caught.value.name, caught.value.exit_code) == ("ARCHIVE_EXISTS", 4)
    assert file.read_bytes() == b"mine"
    export_savepoint(savepoint, file, force=True)
    assert file.read_bytes() != b"mine"
    with pytest.raises(HoldfastError, match="is a directory") as caught:
        export_savepoint(savepoint, tmp_path, force=True)
    assert caught.value.name == "ARCHIVE_EXISTS"


def test_force_replaces_a_link_and_not_what_it_leads_to(tmp_path: Path) -> None:
    kept, file = tmp_path / "kept", tmp_path / "a.tar.zst"
    kept.write_bytes(b"mine")
    file.symlink_to(kept)
    export_savepoint(made(tmp_path / "here"), file, force=True)
    assert kept.read_bytes() == b"mine"
    assert not file.is_symlink()


@pytest.mark.parametrize(
    ("spoil", "cause"),
    [
        (lambda path: path.write_bytes(b'{"id":"x"}'), "other bytes"),
        (lambda path: path.write_bytes(b""), "0 bytes instead of 10"),
        (lambda path: path.unlink(), "is missing"),
        (lambda path: path.with_name("more").write_bytes(b""), "does not belong"),
    ],
)
def test_a_damaged_savepoint_is_not_exported(
    tmp_path: Path, spoil: Callable[[Path], object], cause: str
) -> None:
    savepoint = made(tmp_path / "here")
    spoil(savepoint.path / "checkpoint" / "metadata")
    with pytest.raises(HoldfastError, match=cause) as caught:
        export_savepoint(savepoint, tmp_path / "out" / "a.tar.zst")
    assert caught.value.name == "SAVEPOINT_DAMAGED"
    assert not (tmp_path / "out").exists()


def test_a_file_that_changes_while_it_is_packed(tmp_path: Path) -> None:
    savepoint = made(tmp_path / "here")
    changed = savepoint.path / "sizes" / "7.json"

    def progress(what: str, done: int, total: int) -> None:
        if what == "pack":
            changed.write_bytes(b"[]\n")

    with pytest.raises(HoldfastError, match=r"7\.json was changed") as caught:
        export_savepoint(savepoint, tmp_path / "out" / "a.tar.zst", progress=progress)
    assert caught.value.name == "SAVEPOINT_DAMAGED"
    assert names_below(tmp_path / "out") == []


def test_an_archive_does_not_go_into_its_own_savepoint(tmp_path: Path) -> None:
    savepoint = made(tmp_path / "here")
    (tmp_path / "link").symlink_to(savepoint.path)
    for directory in (savepoint.path, tmp_path / "link" / "sizes"):
        with pytest.raises(HoldfastError, match="lies inside") as caught:
            export_savepoint(savepoint, directory / "a.tar.zst")
        assert caught.value.name == "ARCHIVE_INSIDE_SAVEPOINT"
    verify(savepoint)


# -- crashes ------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["export.mid_pack", "export.before_rename"])
@pytest.mark.parametrize(("action", "name"), [("raise", ""), ("enospc", "DISK_FULL")])
def test_an_export_that_fails_leaves_what_was_there(
    tmp_path: Path, point: str, action: str, name: str
) -> None:
    savepoint, out = made(tmp_path / "here"), tmp_path / "out"
    out.mkdir()
    file = out / "a.tar.zst"
    file.write_bytes(b"older")
    with armed(f"{point}={action}", log=tmp_path / "log"), pytest.raises(Exception) as caught:
        export_savepoint(savepoint, file, force=True)
    assert fired_points(tmp_path / "log") == [point]
    assert getattr(caught.value, "name", "") == name
    assert names_below(out) == ["a.tar.zst"]
    assert file.read_bytes() == b"older"


BEFORE_IT_IS_THERE = ["import.mid_unpack", "import.before_manifest", "import.before_rename"]


@pytest.mark.parametrize("point", BEFORE_IT_IS_THERE)
@pytest.mark.parametrize(("action", "name"), [("raise", ""), ("enospc", "DISK_FULL")])
def test_an_import_that_fails_leaves_nothing(
    tmp_path: Path, exported: Path, store: SavepointStore, point: str, action: str, name: str
) -> None:
    with armed(f"{point}={action}", log=tmp_path / "log"), pytest.raises(Exception) as caught:
        import_savepoint(exported, store)
    assert fired_points(tmp_path / "log") == [point]
    assert getattr(caught.value, "name", "") == name
    assert names_below(store.root) == []
    verify(import_savepoint(exported, store))


def test_an_import_that_fails_after_the_rename_is_done(
    tmp_path: Path, exported: Path, store: SavepointStore
) -> None:
    with armed("import.after_rename=raise"), pytest.raises(RuntimeError):
        import_savepoint(exported, store)
    verify(store.find(NAME))
    assert store.leftovers() == []


CRASHING = """
import sys
from pathlib import Path
from holdfast.savepoint.archive import export_savepoint, import_savepoint
from holdfast.savepoint.store import SavepointStore, read_savepoint
what, source, target = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
if what == "import":
    import_savepoint(source, SavepointStore(target))
else:
    export_savepoint(read_savepoint(source), target)
"""


def crash(tmp_path: Path, point: str, source: Path, target: Path) -> None:
    """Without any chance to tidy up, as kill -9 does it."""
    log = tmp_path / "crash-log"
    environment = os.environ | {
        "PYTHONPATH": str(Path(faults.__file__).parent.parent),
        "HOLDFAST_FAULTS": f"{point}=exit",
        "HOLDFAST_FAULTS_LOG": str(log),
    }
    ran = subprocess.run(
        [sys.executable, "-c", CRASHING, point.partition(".")[0], str(source), str(target)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == EXIT_CODE, ran.stderr
    assert fired_points(log) == [point]


@pytest.mark.parametrize("point", BEFORE_IT_IS_THERE)
def test_a_crashed_import_is_no_savepoint(
    tmp_path: Path, exported: Path, store: SavepointStore, point: str
) -> None:
    crash(tmp_path, point, exported, store.root)
    assert store.scan() == ([], [])
    (left,) = store.leftovers()
    assert left.name.startswith(f".{NAME}@")
    assert names_below(left)
    verify(import_savepoint(exported, store))
    assert store.leftovers() == [left]


@pytest.mark.parametrize("point", ["export.mid_pack", "export.before_rename"])
def test_a_crashed_export_has_no_archive(tmp_path: Path, point: str) -> None:
    savepoint, file = made(tmp_path / "here"), tmp_path / "out" / "a.tar.zst"
    crash(tmp_path, point, savepoint.path, file)
    (left,) = names_below(file.parent)
    assert left.startswith(".a.tar.zst.")
    assert left.endswith(".part")
    export_savepoint(savepoint, file)


# -- importing what should not be imported ------------------------------------------------


def test_the_same_savepoint_twice(
    tmp_path: Path, exported: Path, store: SavepointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = import_savepoint(exported, store)
    error = refused(exported, store)
    assert (error.name, error.exit_code) == ("SAVEPOINT_EXISTS", 4)
    assert f"savepoint {NAME} of job 'wiki' is there already" in error.message
    # It came while this one was unpacked.
    look = archives._refuse_existing_savepoint
    looks: list[Path] = []

    def look_from_the_second_time(final: Path, manifest: Manifest) -> None:
        looks.append(final)
        if len(looks) > 1:
            look(final, manifest)

    monkeypatch.setattr(archives, "_refuse_existing_savepoint", look_from_the_second_time)
    assert refused(exported, store).name == "SAVEPOINT_EXISTS"
    assert len(looks) == 2
    verify(read_savepoint(first.path))


def test_an_unfinished_one_of_the_same_id(exported: Path, store: SavepointStore) -> None:
    half = store.root / "wiki" / NAME / "checkpoint"
    half.mkdir(parents=True)
    with pytest.raises(HoldfastError, match=r"unfinished.*\n.*savepoint gc"):
        import_savepoint(exported, store)
    assert half.is_dir()


def test_no_file(tmp_path: Path, store: SavepointStore) -> None:
    error = refused(tmp_path / "nothing.tar.zst", store)
    assert (error.name, error.exit_code) == ("ARCHIVE_NOT_FOUND", 3)


def compressed(content: bytes) -> bytes:
    target = pa.BufferOutputStream()
    with pa.CompressedOutputStream(target, "zstd") as stream:
        stream.write(content)
    return bytes(target.getvalue())


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"", "it is empty"),
        (b"no archive at all", "not compressed by zstd"),
        (b"\x1f\x8b\x08\x00gzip", "not compressed by zstd"),
        (compressed(b"text that is long enough" * 40), "no tar"),
        (compressed(bytes(10240)), "no tar"),
    ],
)
def test_not_an_archive(
    tmp_path: Path, store: SavepointStore, content: bytes, cause: str
) -> None:
    file = tmp_path / "x.tar.zst"
    file.write_bytes(content)
    error = refused(file, store)
    assert error.name == "NOT_AN_ARCHIVE"
    assert cause in error.message
    assert str(file) in error.message


def test_neither_a_directory_nor_a_pipe_is_an_archive(
    tmp_path: Path, store: SavepointStore
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for odd in (tmp_path, tmp_path / "pipe"):
        assert refused(odd, store).name == "NOT_AN_ARCHIVE"


def test_cut_short_anywhere(tmp_path: Path, store: SavepointStore, exported: Path) -> None:
    whole = exported.read_bytes()
    file = tmp_path / "cut.tar.zst"
    for length in [4, 5, 50, 200, *range(300, len(whole), len(whole) // 20), len(whole) - 1]:
        file.write_bytes(whole[:length])
        error = refused(file, store)
        assert error.name == "ARCHIVE_DAMAGED"
        assert f"{file} is not what was exported: it is cut short" in error.message


def test_any_changed_byte_is_found_or_harmless(
    tmp_path: Path, store: SavepointStore, exported: Path
) -> None:
    """Harmless: unused bits, of the compression or of a header's time and owner."""
    whole = exported.read_bytes()
    file = tmp_path / "changed.tar.zst"
    places = [*range(4, 700, 5), *range(700, len(whole), len(whole) // 20)]
    found = 0
    for place in places:
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        try:
            imported = import_savepoint(file, store)
        except HoldfastError as error:
            assert error.name in ("ARCHIVE_DAMAGED", "ARCHIVE_REFUSED", "NOT_AN_ARCHIVE")
            found += 1
        else:
            verify(imported)
            assert imported.manifest == manifest_of(CONTENTS)
            store.delete(imported)
        assert names_below(store.root) == []
    assert found > len(places) * 0.8


# -- hostile archives ---------------------------------------------------------------------


SMALL = {"checkpoint/a": b"aaaa", "sizes/b": b"bb"}


class Forger:
    """Writes archives that begin well."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = manifest_of(SMALL).to_dict()
        self.version = 1
        self.digest: str | None = None

    @contextmanager
    def open(self, *, after: bytes = b"") -> Iterator[tarfile.TarFile]:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
            content = to_json_bytes(self.manifest)
            first = tarfile.TarInfo(MANIFEST)
            first.size = len(content)
            first.pax_headers = {
                "comment": f"holdfast-savepoint {self.version} "
                f"sha256={self.digest or digest(content)}"
            }
            tar.addfile(first, io.BytesIO(content))
            yield tar
        self.path.write_bytes(compressed(buffer.getvalue() + after))

    @staticmethod
    def add(tar: tarfile.TarFile, name: str, content: bytes, **fields: Any) -> None:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        for field, value in fields.items():
            setattr(member, field, value)
        tar.addfile(member, io.BytesIO(content))

    def add_all(self, tar: tarfile.TarFile) -> None:
        for name, content in SMALL.items():
            self.add(tar, name, content)


@pytest.fixture
def forger(tmp_path: Path) -> Forger:
    return Forger(tmp_path / "forged.tar.zst")


def test_the_forger_can_write_a_good_one(forger: Forger, store: SavepointStore) -> None:
    with forger.open() as tar:
        forger.add_all(tar)
    verify(import_savepoint(forger.path, store))


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        (tarfile.SYMTYPE, "a symbolic link"),
        (tarfile.LNKTYPE, "a hard link"),
        (tarfile.CHRTYPE, "a device"),
        (tarfile.BLKTYPE, "a device"),
        (tarfile.FIFOTYPE, "a pipe"),
        (tarfile.DIRTYPE, "a directory"),
        (tarfile.CONTTYPE, "of the kind"),
        (tarfile.GNUTYPE_SPARSE, "of the kind"),
        (tarfile.XGLTYPE, "of the kind"),
        (tarfile.GNUTYPE_LONGNAME, "of the kind"),
    ],
)
def test_only_regular_files(
    forger: Forger, store: SavepointStore, kind: bytes, cause: str
) -> None:
    with forger.open() as tar:
        # Under a name that the manifest has, so that nothing but its kind is wrong.
        forger.add(tar, "checkpoint/a", b"", type=kind, linkname="/etc/passwd")
    error = refused(forger.path, store)
    assert error.name == "ARCHIVE_REFUSED"
    assert f"'checkpoint/a' in it is {cause}" in error.message


@pytest.mark.parametrize(
    "name", ["../../evil", "/tmp/evil", "checkpoint/../../../evil", "evil", "manifest.json"]
)
def test_only_files_that_the_manifest_names(
    tmp_path: Path, forger: Forger, store: SavepointStore, name: str
) -> None:
    with forger.open() as tar:
        forger.add_all(tar)
        forger.add(tar, name, b"evil")
    error = refused(forger.path, store)
    assert error.name == "ARCHIVE_REFUSED"
    assert f"{name!r} in it is not named by its manifest" in error.message
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize(
    "path",
    [
        *("../evil", "/evil", "checkpoint/../../evil", "./evil", "a//evil", "evil/", "", "."),
        *("..", "a\\..\\evil", "evil\0", "evil\n", "ev\u202eil", "\ud800", MANIFEST, 7, None),
    ],
)
def test_a_manifest_that_names_files_elsewhere(
    tmp_path: Path, forger: Forger, store: SavepointStore, path: Any
) -> None:
    forger.manifest["files"][0]["path"] = path
    content = json.dumps(forger.manifest).encode()
    forger.manifest = json.loads(content)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        comment = {"comment": f"holdfast-savepoint 1 sha256={digest(content)}"}
        forger.add(tar, MANIFEST, content, pax_headers=comment)
    forger.path.write_bytes(compressed(buffer.getvalue()))
    error = refused(forger.path, store)
    assert error.name == "SAVEPOINT_MANIFEST_DAMAGED"
    assert "names the file" in error.message
    assert not list(tmp_path.rglob("*evil*"))


def change(*keys: Any, to: Any) -> Callable[[dict[str, Any]], None]:
    def apply(manifest: dict[str, Any]) -> None:
        at: Any = manifest
        for key in keys[:-1]:
            at = at[key]
        at[keys[-1]] = to

    return apply


@pytest.mark.parametrize(
    ("apply", "cause"),
    [
        (change("id", to="../../evil"), "its id is"),
        (change("id", to=".hidden"), "its id is"),
        (change("id", to=f"{NAME}\n"), "its id is"),
        (change("id", to=7), "its id is"),
        (change("identity", "name", to="../evil"), "name of its job"),
        (change("identity", "name", to=".."), "name of its job"),
        (change("identity", "output_suffix", to="/../evil"), "output suffix"),
        (change("identity", "timeline", to="t0/../x"), "its timeline"),
        (change("identity", "timelines", 0, "name", to="zero"), "has the timeline"),
        (change("identity", "timelines", 0, "began", to=7), "has the timeline"),
        (change("identity", "parallelism", to="2"), "parallelism"),
        (change("created", to=None), "no time"),
        (change("epoch", to=-1), "its epoch"),
        (change("epoch", to=True), "its epoch"),
        (change("label", to=7), "no texts"),
        (change("keys", to={"sum": "many"}), "its keys"),
        (change("keys", to=[1]), "its keys"),
        (change("sources", to=[]), "its sources"),
        (change("files", 0, "size", to=-4), "size or SHA-256"),
        (change("files", 0, "size", to=1.5), "size or SHA-256"),
        (change("files", 0, "sha256", to=""), "size or SHA-256"),
        (change("files", 1, "path", to="checkpoint/a"), "twice"),
        (change("files", 1, "path", to="checkpoint/a/b"), "as a file and as a directory"),
        (change("surprise", to=1), "surprise"),
        (change("files", to=7), "not iterable"),
    ],
)
def test_a_manifest_that_cannot_be_used(
    forger: Forger,
    store: SavepointStore,
    apply: Callable[[dict[str, Any]], None],
    cause: str,
) -> None:
    apply(forger.manifest)
    with forger.open() as tar:
        forger.add_all(tar)
    error = refused(forger.path, store)
    assert error.name == "SAVEPOINT_MANIFEST_DAMAGED"
    assert cause in error.message
    assert str(forger.path) in error.message


def test_formats_of_the_future(forger: Forger, store: SavepointStore) -> None:
    forger.manifest["format"] = 999
    with forger.open() as tar:
        forger.add_all(tar)
    error = refused(forger.path, store)
    assert error.name == "SAVEPOINT_FORMAT_UNKNOWN"
    assert "999" in error.message
    forger.version = 2
    with forger.open():
        pass
    error = refused(forger.path, store)
    assert error.name == "SAVEPOINT_FORMAT_UNKNOWN"
    assert f"the archive {forger.path} has format 2" in error.message


def test_a_name_twice(forger: Forger, store: SavepointStore) -> None:
    with forger.open() as tar:
        forger.add(tar, "checkpoint/a", b"aaaa")
        forger.add(tar, "checkpoint/a", b"aaaa")
    error = refused(forger.path, store)
    assert error.name == "ARCHIVE_REFUSED"
    assert "'checkpoint/a' in it comes twice" in error.message


@pytest.mark.parametrize("content", [b"aaaaa", b"aaa", bytes(50_000_000)])
def test_a_file_that_is_longer_or_shorter_than_the_manifest_says(
    forger: Forger, store: SavepointStore, content: bytes
) -> None:
    with forger.open() as tar:
        forger.add(tar, "checkpoint/a", content)
    error = refused(forger.path, store)
    assert error.name == "ARCHIVE_REFUSED"
    assert f"has {len(content)} bytes, its manifest says 4" in error.message


def test_a_file_with_other_bytes(forger: Forger, store: SavepointStore) -> None:
    with forger.open() as tar:
        forger.add(tar, "checkpoint/a", b"aaaA")
    error = refused(forger.path, store)
    assert error.name == "ARCHIVE_DAMAGED"
    assert "'checkpoint/a' has other bytes" in error.message


def test_a_file_is_missing(forger: Forger, store: SavepointStore) -> None:
    with forger.open() as tar:
        forger.add(tar, "checkpoint/a", b"aaaa")
    error = refused(forger.path, store)
    assert error.name == "ARCHIVE_DAMAGED"
    assert "'sizes/b' is missing" in error.message


def test_another_manifest_than_was_exported(forger: Forger, store: SavepointStore) -> None:
    forger.digest = digest(b"another")
    with forger.open() as tar:
        forger.add_all(tar)
    error = refused(forger.path, store)
    assert error.name == "ARCHIVE_DAMAGED"
    assert f"its {MANIFEST} has other bytes" in error.message


def test_the_manifest_must_come_first(forger: Forger, store: SavepointStore) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        forger.add_all(tar)
        forger.add(tar, MANIFEST, to_json_bytes(forger.manifest))
    forger.path.write_bytes(compressed(buffer.getvalue()))
    error = refused(forger.path, store)
    assert error.name == "NOT_AN_ARCHIVE"
    assert f"does not begin with a {MANIFEST}" in error.message


@pytest.mark.parametrize("after", [b"evil", bytes(2 * 1024 * 1024)])
def test_nothing_may_follow_the_end(
    forger: Forger, store: SavepointStore, after: bytes
) -> None:
    with forger.open(after=after) as tar:
        forger.add_all(tar)
    error = refused(forger.path, store)
    assert error.name == "ARCHIVE_REFUSED"
    assert "goes on after its end" in error.message


@pytest.mark.parametrize("key", ["GNU.sparse.size", "linkpath", "mtime", "size"])
def test_extended_headers_that_no_export_writes(
    forger: Forger, store: SavepointStore, key: str
) -> None:
    with forger.open() as tar:
        forger.add(tar, "checkpoint/a", b"aaaa", pax_headers={key: "-1"})
    error = refused(forger.path, store)
    assert error.name == "ARCHIVE_REFUSED"
    assert f"{key}=-1" in error.message


def header(name: str, size: int, kind: bytes) -> bytes:
    member = tarfile.TarInfo(name)
    member.size, member.type = size, kind
    return member.tobuf(tarfile.GNU_FORMAT)


def raw(forger: Forger, more: bytes) -> None:
    """A good beginning, and then bytes that no library would write."""
    with forger.open():
        pass
    with pa.CompressedInputStream(pa.OSFile(str(forger.path)), "zstd") as stream:
        start = bytes(stream.read()).rstrip(b"\0")
    start += bytes(-len(start) % 512)
    forger.path.write_bytes(compressed(start + more))


def test_a_bomb_in_a_header(
    forger: Forger, store: SavepointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb = 200 * 1024 * 1024
    raw(forger, header("x", bomb, tarfile.XHDTYPE) + bytes(bomb))
    assert forger.path.stat().st_size < 100_000
    taken: list[int] = []
    read = tar_stream.TarReader._read

    def counted(self: tar_stream.TarReader, size: int) -> bytes:
        found = read(self, size)
        taken.append(len(found))
        return found

    monkeypatch.setattr(tar_stream.TarReader, "_read", counted)
    error = refused(forger.path, store)
    assert error.name == "ARCHIVE_REFUSED"
    assert f"an extended header in it has {bomb} bytes" in error.message
    assert sum(taken) < 100_000


@pytest.mark.parametrize("size", [-1, -512, 2**62])
def test_odd_sizes_of_a_header(forger: Forger, store: SavepointStore, size: int) -> None:
    for name, kind in (("checkpoint/a", tarfile.REGTYPE), ("x", tarfile.XHDTYPE)):
        raw(forger, header(name, size, kind) + bytes(4096))
        error = refused(forger.path, store)
        assert error.name == "ARCHIVE_REFUSED"
        assert f"has {size} bytes" in error.message


@pytest.mark.parametrize(
    "record",
    [
        b"9 path=a",
        b"x path=a\n",
        b"99 path=a\n",
        b"0 a=b\n",
        b"-1 a=b\n",
        b"\n",
        b"8 \xff=aa\n",
    ],
)
def test_odd_records_of_an_extended_header(
    forger: Forger, store: SavepointStore, record: bytes
) -> None:
    raw(forger, header("x", len(record), tarfile.XHDTYPE) + record.ljust(512, b"\0"))
    assert refused(forger.path, store).name == "ARCHIVE_DAMAGED"


def test_a_header_with_another_sum(forger: Forger, store: SavepointStore) -> None:
    block = bytearray(header("checkpoint/a", 4, tarfile.REGTYPE))
    block[0] ^= 1
    raw(forger, bytes(block) + b"aaaa".ljust(512, b"\0"))
    error = refused(forger.path, store)
    assert error.name == "ARCHIVE_DAMAGED"
    assert "a header in it cannot be read" in error.message


def test_half_an_end(forger: Forger, store: SavepointStore) -> None:
    raw(forger, bytes(512) + b"x" * 512)
    error = refused(forger.path, store)
    assert error.name == "ARCHIVE_DAMAGED"
    assert "its end is only half there" in error.message


def test_a_manifest_without_an_end(
    forger: Forger, store: SavepointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with forger.open() as tar:
        forger.add_all(tar)
    size = len(to_json_bytes(forger.manifest))
    monkeypatch.setattr(archives, "MANIFEST_LIMIT", size - 1)
    error = refused(forger.path, store)
    assert error.name == "ARCHIVE_REFUSED"
    assert f"its {MANIFEST} has {size} bytes" in error.message
    monkeypatch.setattr(archives, "MANIFEST_LIMIT", size)
    import_savepoint(forger.path, store)


@pytest.mark.parametrize("content", [b"[" * 200_000, b"{", b"\xff", b"[1]", b"null", b"7"])
def test_a_manifest_that_is_none(forger: Forger, store: SavepointStore, content: bytes) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        comment = {"comment": f"holdfast-savepoint 1 sha256={digest(content)}"}
        forger.add(tar, MANIFEST, content, pax_headers=comment)
    forger.path.write_bytes(compressed(buffer.getvalue()))
    assert refused(forger.path, store).name == "SAVEPOINT_MANIFEST_DAMAGED"


def test_more_than_the_disk_holds(forger: Forger, store: SavepointStore) -> None:
    forger.manifest["files"][0]["size"] = 2**62
    with forger.open() as tar:
        forger.add_all(tar)
    error = refused(forger.path, store)
    assert error.name == "DISK_FULL"
    assert f"{2**62 + 2:,} bytes" in error.message


# -- format version 1 must stay readable --------------------------------------------------


def test_a_golden_archive(store: SavepointStore) -> None:
    golden = Path(__file__).parent / "golden" / "savepoint-archive-1.tar.zst"
    imported = import_savepoint(golden, store)
    verify(imported)
    assert imported.manifest == manifest_of(SMALL)
    for name, content in SMALL.items():
        assert (imported.path / name).read_bytes() == content


# -- the command line ---------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith("HOLDFAST_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


def test_commands(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(home / "savepoints")

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    code, out, _ = run("savepoint", "export", "monday", "m.tar.zst")
    assert code == 0
    assert f"savepoint {NAME} is exported: 5 files, 1.0 MiB in 1.0 MiB" in out
    assert f"  archive     {tmp_path}/m.tar.zst\n" in out
    code, _, err = run("savepoint", "export", "latest", "m.tar.zst", "--json")
    assert (code, json.loads(err)["name"]) == (4, "ARCHIVE_EXISTS")
    code, out, _ = run("savepoint", "export", "latest", "m.tar.zst", "--force", "--json")
    found = json.loads(out)
    assert (code, found["id"], found["archive"]) == (0, NAME, f"{tmp_path}/m.tar.zst")
    assert found["archive_bytes"] == (tmp_path / "m.tar.zst").stat().st_size
    code, _, err = run("savepoint", "import", "m.tar.zst")
    assert code == 4
    assert err.startswith(f"SAVEPOINT_EXISTS: savepoint {NAME} of job 'wiki'")
    assert run("savepoint", "delete", NAME)[0] == 0
    code, out, _ = run("savepoint", "import", "m.tar.zst")
    assert code == 0
    assert f"savepoint {NAME} of job wiki: epoch 7, 12 keys, 1.0 MiB" in out
    assert f"--from {NAME}" in out
    assert run("savepoint", "verify", "monday")[0] == 0
    code, out, _ = run("savepoint", "import", "m.tar.zst", "--to", "other", "--json")
    assert (code, json.loads(out)["path"]) == (0, f"{tmp_path}/other/wiki/{NAME}")
    assert read_json(tmp_path / "other" / "wiki" / NAME / MANIFEST)["label"] == "monday"
    (tmp_path / "bad").write_bytes(b"bad")
    code, _, err = run("savepoint", "import", "bad", "--to", "third")
    assert code == 1
    assert err.startswith(f"NOT_AN_ARCHIVE: {tmp_path}/bad is not the archive of a savepoint")
    assert "\nFix: " in err
    assert not (tmp_path / "third").exists()
