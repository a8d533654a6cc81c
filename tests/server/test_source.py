"""Rules that the source of server and control keeps, whoever changes it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "holdfast"
RUNS_CODE = ("load_job", "in_directory", "run_detached", "restart_detached", "chdir")
READERS = ("server", "client", "control", "savepoint", "checkpoint", "storage")


def nodes() -> Iterator[tuple[Path, ast.AST]]:
    for package in READERS:
        for path in (SOURCE / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                yield path, node


def test_sr12_never_a_shell() -> None:
    for path, node in nodes():
        if isinstance(node, ast.keyword) and node.arg == "shell":
            assert isinstance(node.value, ast.Constant) and node.value.value is False, path
        if isinstance(node, ast.Attribute) and node.attr in ("system", "popen"):
            assert not (isinstance(node.value, ast.Name) and node.value.id == "os"), path


def test_sr06_nothing_that_is_read_can_carry_code() -> None:
    """The user's own file is imported, by its path, in processes of jobs and operations."""
    forbidden = {"pickle", "cloudpickle", "marshal", "shelve", "dill", "yaml"}
    for path, node in nodes():
        if isinstance(node, ast.Import):
            assert not forbidden & {name.name.partition(".")[0] for name in node.names}, path
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").partition(".")[0] not in forbidden, path
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("eval", "exec"), path


def test_the_server_does_not_run_the_code_of_users() -> None:
    """Only processes of operations do: it would change their working directory, and the
    server's own."""
    for path in (SOURCE / "server").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            name = getattr(node, "attr", None) or getattr(node, "id", None)
            assert name not in RUNS_CODE, path
