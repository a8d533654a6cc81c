"""What `check --from` says about a savepoint of another Spark."""

from __future__ import annotations

import importlib.metadata
from dataclasses import replace
from pathlib import Path

from holdfast.control.restore_check import RestoreCheck
from unit.test_operations import PLAN


def test_another_version_of_spark_is_told(tmp_path: Path) -> None:
    here = importlib.metadata.version("pyspark")
    assert RestoreCheck(replace(PLAN, spark=here), ()).other_spark == ""
    assert RestoreCheck(replace(PLAN, spark=f"{here}.7"), ()).other_spark == "", "a patch"
    native = RestoreCheck(replace(PLAN, spark="3.5.1"), ())
    assert native.other_spark.startswith(f"taken under Spark 3.5.1, restored under {here}")
    assert "not promised" in native.other_spark
    canonical = RestoreCheck(replace(PLAN, spark="3.5.1", canonical=tmp_path), ())
    assert "process steps do not depend on it" in canonical.other_spark
    assert canonical.to_dict()["other_spark"] == canonical.other_spark
