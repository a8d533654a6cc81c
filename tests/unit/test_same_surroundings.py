"""Whether the server may start a job instead of the terminal."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from holdfast.cli.same_surroundings import finds_the_same, same_variables

PLAIN = "import holdfast as hf\njob = hf.Job('wiki')\n"
HERE = {"PATH": "/bin", "TERM": "xterm", "HOLDFAST_HOME": "/a"}
SERVER = {"PATH": "/usr/bin", "HOLDFAST_HOME": "/b", "HOLDFAST_SERVER_PORT": "1"}


@pytest.mark.parametrize(
    ("code", "mine", "theirs", "same"),
    [
        (PLAIN, {}, {}, True),
        (PLAIN, {"WIKI_PASSWORD": "x"}, {}, True),
        (PLAIN, {"HOLDFAST_MASTER": "local[1]"}, {}, False),
        (PLAIN, {}, {"HOLDFAST_MASTER": "local[1]"}, False),
        (PLAIN, {"SPARK_LOCAL_DIRS": "/x"}, {"SPARK_LOCAL_DIRS": "/x"}, True),
        (PLAIN, {"PYTHONPATH": "/x"}, {}, False),
        (PLAIN, {"JAVA_HOME": "/x"}, {"JAVA_HOME": "/y"}, False),
        ("password='${env:WIKI_PASSWORD}'", {"WIKI_PASSWORD": "x"}, {}, False),
        ("password='${env:WIKI_PASSWORD}'", {}, {"WIKI_PASSWORD": "x"}, False),
        ("password='${env:W}'", {"W": "x"}, {"W": "x"}, True),
        ("os.environ['W']", {"W": "x"}, {}, False),
        ('os.environ.get("W", 1)', {"W": "x"}, {}, False),
        ("os.getenv('W')", {"W": "x"}, {"W": "x"}, True),
        ("dict(os.environ)", {}, {}, False),
    ],
)
def test_variables_that_matter(
    code: str, mine: dict[str, str], theirs: dict[str, str], same: bool
) -> None:
    assert same_variables(HERE | mine, SERVER | theirs, code) is same


def test_another_python_or_a_file_that_is_gone(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(PLAIN)
    assert not finds_the_same("/other/python", os.getpid(), app)
    assert not finds_the_same(sys.executable, os.getpid(), tmp_path / "gone.py")
    assert not finds_the_same(sys.executable, 4194305, app)
