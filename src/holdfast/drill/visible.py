"""What a reader of a file sink sees at this moment, whoever has just been killed."""

from __future__ import annotations

from pathlib import Path

from holdfast.storage.file_sink_log import PRIVATE_DIRECTORY, committed_files


def half_visible(directory: Path) -> tuple[str, ...]:
    """What is wrong with it: files that no commit has published, or edits that are twice."""
    import duckdb

    published = committed_files(directory)
    other = sorted(set(directory.glob("*")) - set(published) - {directory / PRIVATE_DIRECTORY})
    wrong = [f"{path.name} is visible and was not published by a commit" for path in other]
    if published:
        query = "SELECT count(*) - count(DISTINCT edit) FROM read_parquet(?)"
        with duckdb.connect() as connection:
            row = connection.execute(query, [[str(path) for path in published]]).fetchone()
        if row != (0,):
            wrong.append(f"{row and row[0]} rows are visible twice")
    return tuple(wrong)
