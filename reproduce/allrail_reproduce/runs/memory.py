"""Published memory of training runs beside ours: `allrail reproduce memory`.

`memory.csv` has the runs whose source states what a GPU held: BigScience's log of BLOOM
(`nvidia-smi`, in GB without digits), torchtitan's benchmarks (the peak of what PyTorch's allocator
reserved, in GiB). Nothing is simulated: memory follows from the layout.

One number was chosen with these in view: the share that an allocator holds in vain.
"""

from __future__ import annotations

from pathlib import Path

from allrail.base.errors import InputError
from allrail.base.progress import Progress
from allrail.base.units import show_count
from allrail_reproduce.published import Made, number
from allrail_reproduce.rows import Reproduction, Row
from allrail_reproduce.runs.predict import job_of, memory_of
from allrail_reproduce.runs.table import Run, read_table

TABLE = Path(__file__).with_name("memory.csv")

WITHIN = 0.1
"""How far ours may be off: what the project asks of itself."""

MADE = Made("chosen", ("fragmentation",), "torchtitan's peaks of Llama-3.1-8B")


def run(path: Path | None = None, *, progress: Progress | None = None) -> Reproduction:
    """Compare the memory of every run that states it.

    Args:
        path: A CSV file as `reproduce runs` reads it; the packaged one if None.
        progress: Told how many runs are done.

    Raises:
        InputError: The table cannot be read, or no run of it states its memory.
    """
    stated = [one for one in read_table(path or TABLE) if one.stated_memory is not None]
    if not stated:
        raise InputError(
            "no run states its memory",
            source=str(path),
            hint="give a column `memory_gb` or `memory_gib`",
        )
    rows = []
    for done, one in enumerate(stated, start=1):
        rows.append(_row(one))
        if progress is not None:
            progress(done, len(stated))
    return Reproduction("Memory of training runs", rows, _notes(rows))


def _row(one: Run) -> Row:
    source = f"file `{one.comments.get('source', '')}`"
    stated = number(round((one.stated_memory or 0) / 1e9, 1), source)

    def refused(why: str) -> Row:
        return Row(
            one.id, None, stated, "GB", within=WITHIN, digits=1, why=why, made=MADE, refused=True
        )

    try:
        job = job_of(one)
        if isinstance(job, str):
            return refused(job)
        memory = memory_of(job, job.software.recompute or "none")
    except InputError as error:
        return refused(str(error).replace("\n\n", "; "))
    return Row(
        one.id,
        job.software.shows(dict(memory.items())) / 1e9,
        stated,
        "GB",
        within=WITHIN,
        digits=1,
        how=", ".join(f"{name} {part / 1e9:.1f}" for name, part in memory.items() if part),
        made=MADE,
    )


def _notes(rows: list[Row]) -> list[str]:
    off = [abs(row.difference) for row in rows if row.difference is not None]
    told = show_count(len(rows), "run")
    if off:
        near = sum(one <= WITHIN for one in off)
        told += f", mean error {sum(off) / len(off):.1%}, {near} within {WITHIN:.0%}"
    if refused := len(rows) - len(off):
        told += f", {refused} refused"
    return [told]
