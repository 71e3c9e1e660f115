"""`allrail reproduce`: published numbers beside ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from allrail.base.files import write_text
from allrail.cli import options, output
from allrail.cli.group import Group

if TYPE_CHECKING:
    from allrail_reproduce import Reproduction
    from allrail_reproduce.runs import Runs


@click.group(cls=Group, invoke_without_command=True)
@click.option(
    "--all", "everything", is_flag=True, help="Every publication, and one page of all numbers"
)
@click.option(
    "--reference",
    type=options.Output(),
    metavar="DIR",
    help="With --all: a folder with `astra-sim/expected.json` and `training_runs.csv`;"
    " $ALLRAIL_REFERENCE if left out",
)
@options.as_json
@options.out
@click.pass_context
def command(
    context: click.Context,
    *,
    everything: bool,
    reference: Path | None,
    as_json: bool,
    out: Path | None,
) -> None:
    """Compute published numbers again and print the difference.

    Each row says what the source prints and where, what comes out here, and whether that was
    computed, fitted or chosen. Exit status 1 if a row is missed by more
    than its tolerance.

    `--all` runs all commands, the better part of an hour: with `--out DIR` each has its folder
    there as soon as it is done, and DIR/report.html all numbers at the end.
    """
    if context.invoked_subcommand is not None:
        if everything:
            raise click.UsageError("`--all` takes no command behind it: leave one of them out")
        return
    if not everything:
        click.echo(context.get_help())
        return
    _everything(reference, as_json=as_json, out=out)


def _everything(given: Path | None, *, as_json: bool, out: Path | None) -> None:
    from allrail_reproduce.everything import PARTS, reference_folder, together

    reference = reference_folder(given)
    parts = {}
    for name, run in PARTS.items():
        with output.Progress(f"reproducing {name}", counts=False) as progress:
            try:
                parts[name] = run(reference, progress)
            except KeyboardInterrupt:
                done = f"; {', '.join(parts)} are in {out}" if out is not None and parts else ""
                output.warn(f"what HammingMesh computed is kept for the next time{done}")
                raise
        if out is not None:
            parts[name].write(out / name)
    page = together(parts)
    [comes] = page.details
    if not as_json:
        rows = [["-" if cell is None else str(cell) for cell in row] for row in comes.rows]
        output.table(comes.header, rows)
        output.note("")
    _show(page, as_json=as_json, out=out)


@command.command("themis")
@click.option("--seeds", type=click.IntRange(1), default=20, help="Perturbed fabrics per plan")
@click.option("--links/--no-links", default=True, help="Also in `links` (takes longest)")
@click.option("--workloads", is_flag=True, help="Only whole training steps (Fig. 12)")
@options.as_json
@options.out
@options.cache
def themis(
    *, seeds: int, links: bool, workloads: bool, as_json: bool, out: Path | None, cache: bool
) -> None:
    """The Themis paper (ISCA'22) on its six platforms, and allrail's own policy."""
    from allrail_reproduce import themis as paper
    from allrail_reproduce import themis_workloads
    from allrail_reproduce.grid import CELLS

    if workloads:
        with output.Progress("fitting training steps", counts=False) as progress:
            steps = themis_workloads.run(progress=progress)
        _show(steps, as_json=as_json, out=out)
        return
    with output.Progress("reproducing Themis") as progress:
        cells = CELLS if links else ()
        outcome = paper.run(seeds=seeds, links=cells, cache=cache, progress=progress)
    _show(outcome, as_json=as_json, out=out)


@command.command("astra-sim")
@click.option(
    "--reference",
    type=options.Folder(),
    metavar="DIR",
    help="A folder with `expected.json` and its files; $ALLRAIL_REFERENCE/astra-sim if left out",
)
@options.as_json
@options.out
def astra_sim(*, reference: Path | None, as_json: bool, out: Path | None) -> None:
    """ASTRA-sim's tutorial (ASPLOS 2023), and what ASTRA-sim prints for the cases at hand."""
    from allrail_reproduce import astra_sim as tutorial

    with output.Progress("reproducing ASTRA-sim") as progress:
        outcome = tutorial.run(reference=reference, progress=progress)
    _show(outcome, as_json=as_json, out=out)


@command.command("bytescheduler")
@options.as_json
@options.out
def bytescheduler(*, as_json: bool, out: Path | None) -> None:
    """ByteScheduler (SOSP'19): its speed-ups on parameter servers, and over bandwidths."""
    from allrail_reproduce import bytescheduler as paper

    with output.Progress("reproducing ByteScheduler") as progress:
        outcome = paper.run(progress=progress)
    _show(outcome, as_json=as_json, out=out)


class _Phases(click.ParamType[int | None]):
    """A number of phases, or all of them."""

    name = "N|all"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | None:
        """Return the number; None for all."""
        if value == "all":
            return None
        try:
            phases = int(str(value))
        except ValueError:
            phases = 0
        if phases < 1:
            self.fail(f"`{value}` is neither `all` nor a number from 1", param, ctx)
        return phases


@command.command("hammingmesh")
@click.option(
    "--cluster",
    type=click.Choice(["small", "large", "all"]),
    default="all",
    help="Half of Table II; of the figures, Fig. 13 is of the large clusters",
)
@click.option(
    "--network-model",
    type=click.Choice(["flows", "packets", "both"]),
    default="both",
    help="Network model of traffic; large clusters in `flows` only",
)
@click.option(
    "--phases",
    type=_Phases(),
    metavar="N|all",
    default="256",
    help="Number of shift phases of an all-to-all in `packets`, drawn, or `all`; others take fewer",
)
@click.option("--figures/--no-figures", default=True, help="Also Fig. 11, 12, 13 and 17")
@click.option("--placement/--no-placement", default=True, help="Also the claims about jobs")
@click.option(
    "--workloads", is_flag=True, help="Training workloads instead: section V-B and Fig. 15"
)
@click.option(
    "--trees", is_flag=True, help="Joined lines and tapered trees instead: price and throughput"
)
@options.as_json
@options.out
@click.option(
    "--cache/--no-cache", default=True, help="Take results that an earlier run has kept on disk"
)
def hammingmesh(
    *,
    cluster: Literal["small", "large", "all"],
    network_model: Literal["flows", "packets", "both"],
    phases: int | None,
    figures: bool,
    placement: bool,
    workloads: bool,
    trees: bool,
    as_json: bool,
    out: Path | None,
    cache: bool,
) -> None:
    """HammingMesh (SC'22): Table II, its figures and claims; or its workloads, or its trees.

    Results are kept on disk as they come: after an interruption the same command goes on.
    """
    from allrail_reproduce import hammingmesh as paper
    from allrail_reproduce.hammingmesh import trees as networks
    from allrail_reproduce.hammingmesh import workloads as training

    if workloads and trees:
        raise click.UsageError("give one of `--workloads` and `--trees`")

    network_models: tuple[Literal["flows", "packets"], ...] = (
        ("flows", "packets") if network_model == "both" else (network_model,)
    )
    scope = paper.Scope(
        sizes=("small", "large") if cluster == "all" else (cluster,),
        network_models=network_models,
        phases=phases,
        curves=figures,
        jobs=placement,
    )
    with output.Progress("reproducing HammingMesh", counts=False) as progress:
        try:
            if trees:
                outcome = networks.run(cache=cache, progress=progress)
            elif workloads:
                outcome = training.run(network_models, cache=cache, progress=progress)
            else:
                outcome = paper.run(scope, cache=cache, progress=progress)
        except KeyboardInterrupt:
            output.warn("what was computed is kept: the same command goes on from there")
            raise
    _show(outcome, as_json=as_json, out=out)


@command.command("horovod")
@click.option("--full/--no-full", default=True, help="Also 27,600 ranks (takes longest)")
@click.option("--small", is_flag=True, help="Only up to 800 ranks")
@options.as_json
@options.out
def horovod(*, full: bool, small: bool, as_json: bool, out: Path | None) -> None:
    """Horovod's control plane (NSDI'22): efficiency with and without its cache and groups."""
    from allrail_reproduce import horovod as paper

    with output.Progress("reproducing Horovod", counts=False) as progress:
        outcome = paper.run(full=full, small=small, progress=progress)
    _show(outcome, as_json=as_json, out=out)


@command.command("runs")
@click.option(
    "--table",
    "path",
    type=options.Input(),
    metavar="FILE",
    help="CSV file of measured runs, one per line; a packaged example if left out",
)
@click.option(
    "--ratios",
    type=options.Output(),
    callback=options.writable_file,
    metavar="FILE",
    help="Write measured over predicted time of each run, what error lines are made of",
)
@options.as_json
def runs(*, path: Path | None, ratios: Path | None, as_json: bool) -> None:
    """Measured training runs beside their predictions, uncalibrated.

    A table has a line a run: model, gpu, gpus, sequence_length, and as far as known hidden, layers,
    heads, kv_heads, ffn, vocab, params_b, precision, tp, sp, pp, virtual_stages, schedule, cp, ep,
    sharding, micro_batch, global_batch, activation_recompute, intra_node,
    inter_node_gbps_per_gpu, flags; and what was measured: tokens_per_s_per_gpu, step_s,
    tflops_per_gpu with tflops_kind, mfu_pct or hfu_pct. What a line does not say is assumed, and
    told.
    """
    from allrail_reproduce import runs as published

    if as_json:
        with output.Progress("predicting runs") as progress:
            found = published.run(path, progress=progress)
        _write_ratios(ratios, found)
        output.print_json(found.to_dict())
        return
    table = published.read_table(path or published.EXAMPLE)
    rows = output.Stream(published.HEADER, [max(len(one.id) for one in table), *published.WIDTHS])
    with output.Progress("predicting runs") as progress:
        found = published.run(path, progress=progress, row=rows.row)
    _write_ratios(ratios, found)
    for text in found.told:
        output.note(text)


def _write_ratios(file: Path | None, found: Runs) -> None:
    if file is not None:
        from allrail_reproduce.runs.compared import as_csv

        write_text(file, as_csv(found.rows))


@command.command("memory")
@click.option(
    "--table",
    "path",
    type=options.Input(),
    metavar="FILE",
    help="CSV file as for `reproduce runs`; the packaged runs if left out",
)
@options.as_json
@options.out
def memory(*, path: Path | None, as_json: bool, out: Path | None) -> None:
    """Memory that sources of training runs state, beside ours by kind; nothing is simulated.

    A line states it as memory_gb or memory_gib: of torchtitan's runs the peak that PyTorch's
    allocator reserved, of others what nvidia-smi shows.
    """
    from allrail_reproduce.runs import memory as published

    with output.Progress("comparing memory") as progress:
        outcome = published.run(path, progress=progress)
    _show(outcome, as_json=as_json, out=out)


@command.command("verdicts")
@click.argument("folder", metavar="DIR", type=options.Folder())
@options.as_json
def verdicts(*, folder: Path, as_json: bool) -> None:
    """Verdicts of `allrail expect` beside those of users who posted their tables.

    DIR has tables of nccl-tests and similar tools, and an `index.csv` with a line a table: file,
    gpu, network, verdict (begins with healthy, sick, slow, ...), and optionally gpus and nodes.

    \b
    Examples:
      allrail reproduce verdicts tables
      allrail reproduce verdicts tables --json
    """  # noqa: D301, click wants the character
    from allrail_reproduce import verdicts as posted

    found = posted.run(folder)
    if as_json:
        output.print_json(found.to_dict())
        return
    output.table(*found.table)
    for text in found.told:
        output.note(text)


def _show(outcome: Reproduction, *, as_json: bool, out: Path | None) -> None:
    if out is not None:
        outcome.write(out)
    if as_json:
        output.print_json(outcome.to_dict())
    else:
        output.table(*outcome.table)
        for text in (*outcome.provenances, *outcome.reasons, *outcome.notes, *outcome.summary):
            output.note(text)
    if not outcome.ok:
        click.get_current_context().exit(1)
