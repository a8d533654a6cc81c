"""`holdfast threads`: what a running job does right now."""

from __future__ import annotations

from dataclasses import asdict

from holdfast.cli import output
from holdfast.cli.options import HomeOption, JobArgument, JsonOption, open_registry


def threads(
    job: JobArgument,
    *,
    home: HomeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Print the stacks of all threads of a job's driver: its JVM, and its Python with py-spy.

    The job goes on; the JVM stands still for some milliseconds.
    """
    from holdfast.control.threads import dump_threads

    with open_registry(home) as registry:
        row = registry.job(job)
        found = dump_threads(row, registry.attempts(row.id))
    if json_output:
        output.print_json([asdict(each) for each in found])
        return
    for each in found:
        output.write_line(f"{each.of}, process {each.pid}")
        for line in each.text.splitlines():
            output.write_line(output.clean(line))
    if not any(each.of == "Python" for each in found):
        output.write_line("Python: py-spy is not installed; `pip install py-spy` adds it.")
