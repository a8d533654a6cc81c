"""The documentation says what the code does: names, options and settings are compared."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

import holdfast as hf
from holdfast.cli.main import app
from holdfast.control.doctor import PACKAGES
from holdfast.settings import ENV_PREFIX, Settings

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
REFERENCE = ROOT / "docs" / "reference"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_CODE = re.compile(r'^```python(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```$', re.M | re.S)
_ERROR_NAME = re.compile(r"[A-Z][A-Z0-9_]+")


def first_cells(page: Path) -> Iterator[str]:
    """The first cell of every row of the page's tables."""
    for line in page.read_text("utf-8").splitlines():
        if line.startswith("| "):
            yield line.split("|")[1].strip()


# -- errors -----------------------------------------------------------------------------


def raised_names() -> set[str]:
    """Names that the source hands to an error class, or to a function that makes one."""
    names = {
        f"{package.error_prefix}_{problem}"
        for package in PACKAGES
        for problem in ("MISSING", "UNSUPPORTED")
    }
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and node.args and _makes_an_error(node.func):
                names |= set(_names_in(node.args[0]))
    return names


def _makes_an_error(function: ast.expr) -> bool:
    name = function.id if isinstance(function, ast.Name) else ""
    return name.endswith(("Error", "Problem")) or name == "_mismatch"


def _names_in(argument: ast.expr) -> Iterator[str]:
    for node in ast.walk(argument):
        value = node.value if isinstance(node, ast.Constant) else None
        if isinstance(value, str) and _ERROR_NAME.fullmatch(value):
            yield value


def test_every_error_is_described_and_every_description_has_an_error() -> None:
    cells = first_cells(REFERENCE / "errors.md")
    described = [name for cell in cells for name in re.findall(r"`([A-Z][A-Z0-9_]+)`", cell)]
    assert set(described) == raised_names()
    assert len(described) == len(set(described))


# -- command line -----------------------------------------------------------------------


def commands(command: Any, path: str) -> Iterator[tuple[str, set[str]]]:
    """Every command with its options; a group counts if it has options of its own."""
    options = {name for option in command.params for name in option.opts if name[0] == "-"}
    options -= {"-h", "--help"}
    children = getattr(command, "commands", {})
    if options or not children:
        yield path, options
    for name, child in children.items():
        yield from commands(child, f"{path} {name}")


def test_every_command_and_option_is_described_and_exists() -> None:
    described: dict[str, set[str]] = {}
    options: set[str] = set()
    for line in (REFERENCE / "cli.md").read_text("utf-8").splitlines():
        if heading := re.fullmatch(r"## `(.+)`", line):
            options = described.setdefault(heading[1], set())
        elif line.startswith("| `-"):
            options |= set(re.findall(r"`(--?[a-z-]+)", line.split("|")[1]))
    assert described == dict(commands(typer.main.get_command(app), "holdfast"))


# -- settings ---------------------------------------------------------------------------


def test_every_setting_is_described_and_exists() -> None:
    page = (REFERENCE / "settings.md").read_text("utf-8")
    described = re.findall(rf"^\| `(\w+)` \| `{ENV_PREFIX}(\w+)` \|", page, re.M)
    assert described == [(name, name.upper()) for name in Settings.model_fields]


# -- code -------------------------------------------------------------------------------


def code_blocks() -> Iterator[tuple[str, str, str]]:
    """Page, title and text; a block with a title is a whole file of the examples."""
    for page in PAGES:
        for block in _CODE.finditer(page.read_text("utf-8")):
            yield str(page.relative_to(ROOT)), block["title"] or "", block["text"]


@pytest.mark.parametrize("page", sorted({page for page, _, _ in code_blocks()}))
def test_python_on_a_page_is_python(page: str) -> None:
    for _, title, text in (block for block in code_blocks() if block[0] == page):
        ast.parse(text)
        assert not title or text == (EXAMPLES / title).read_text("utf-8")


def test_the_tests_on_the_testing_page_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    passed = 0
    for page, _, text in code_blocks():
        if page == "docs/guide/testing.md":
            names: dict[str, Any] = {"__name__": "page"}
            exec(compile(text, page, "exec"), names)
            for name, test in names.items():
                if name.startswith("test_"):
                    test()
                    passed += 1
    assert passed >= 3


@pytest.mark.parametrize("page", ["README.md", "docs/getting-started.md"])
def test_the_first_job_is_the_example(page: str) -> None:
    assert (page, "wiki_diffs.py") in {(where, title) for where, title, _ in code_blocks()}


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_declares_jobs(example: Path) -> None:
    text = example.read_text("utf-8")
    if "hf.Job(" not in text:
        compile(text, example, "exec")
        return
    names: dict[str, Any] = {"__name__": example.stem}
    exec(compile(text, example, "exec"), names)
    jobs = [value for value in names.values() if isinstance(value, hf.Job)]
    assert jobs
    assert all(callable(job.declared_pipeline) for job in jobs)


# -- figures ----------------------------------------------------------------------------


def test_figures_of_the_backends_are_those_of_the_benchmarks() -> None:
    """The guide repeats some of them; the two were measured in one run."""
    guide = (ROOT / "docs" / "guide" / "backends.md").read_text("utf-8")
    measured = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    (table,) = re.findall(r"^\| records per second .*?\n\n", guide, re.M | re.S)
    figures = re.findall(r"\d+,\d{3}(?= \|)", table.partition("\n")[2])
    assert len(figures) == 6
    assert [figure for figure in figures if f"| {figure} |" not in measured] == []
