"""`allrail verify`: predicted against measured, of a run that was recorded."""

from __future__ import annotations

from pathlib import Path

import click

from allrail.cli import options

_FILE = click.Path(path_type=Path)


@click.command()
@click.argument("run", metavar="RUN", type=_FILE)
@click.option(
    "-o",
    "--out",
    "fabric",
    type=_FILE,
    callback=options.writable_file,
    metavar="FILE",
    help="Write the fabric as it was measured, for the next prediction.",
)
@options.as_json
def command(*, run: Path, fabric: Path | None, as_json: bool) -> None:
    """Compare RUN with the simulation of the same job, and say which assumption was off.

    RUN is the folder of `allrail run --trace`. The step is predicted as planned (with the fabric of
    the job file), then with one number at a time as the run has measured it, then with all; every
    exchange is shown beside its prediction.

    \b
    Examples:
      allrail run --trace rec torchrun --nproc-per-node 4 train.py
      allrail verify rec
      allrail verify rec --out measured.yaml
    """  # noqa: D301, click wants the character
    from allrail.cli import output
    from allrail.errors import InputError
    from allrail.runtime import record
    from allrail.verify import verify

    if not run.is_dir():
        raise InputError(
            "it is no folder" if run.exists() else "there is nothing of that name",
            source="RUN",
            value=str(run),
            hint="name the folder of `allrail run --trace`",
        )
    records = record.read(run)
    if not records:
        raise InputError(
            "no rank has written a record there",
            source="RUN",
            value=str(run),
            hint="`allrail run --trace DIR torchrun ... train.py` makes some",
        )
    verdict = verify(records)
    if fabric is not None:
        from allrail.files import write_yaml

        write_yaml(fabric, verdict.fabric)
    if as_json:
        output.print_json(verdict.to_json())
        return
    click.echo(verdict)
    if fabric is not None:
        output.note(f"the fabric as measured is in {fabric}")
