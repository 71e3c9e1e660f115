"""How far collectives on the packaged fabrics are from posted tables: `--write` keeps the ratios.

The tables are of nccl-tests (and of torch.distributed's benchmarks in its form), in `nccl` of the
folder that `ALLRAIL_REFERENCE` names, else of `../shared/reference`. Those count that are of
machines which a preset is, with the same GPUs' links and the same interfaces, and that are healthy,
as the thread, the file's author or the numbers say. Each measured time is divided by what `allrail
simulate` says of the same collective on the preset under the default schedule. An H200's machine
has the links of an H100's. NVIDIA's switches sum all-reduces (NVLS) from H100 on unless they are
told not to, which `dgx-h100-nvls` has and `dgx-h100` has not.

    python benches/network_accuracy.py --write python/allrail/results/network_accuracy.csv
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from allrail.measure.calibrate.predict import default_us, part_of
from allrail.measure.calibrate.read import read_tables
from allrail.scenario import load_fabric

BESIDE = Path(__file__).parents[2] / "shared" / "reference"
POSTED = Path(os.environ.get("ALLRAIL_REFERENCE") or BESIDE) / "nccl"
H100 = ("dgx-h100", "dgx-h100-nvls")
TABLES: dict[str, tuple[str, ...]] = {
    "a100x4_nvswitch_allreduce.txt": ("dgx-a100",),
    "a100x8_nvlink_allgather_v29.txt": ("dgx-a100",),
    "a100x8_nvlink_allreduce_v29.txt": ("dgx-a100",),
    "a100x8_nvlink_alltoall_v29.txt": ("dgx-a100",),
    "a100x8_nvlink_reducescatter_v29.txt": ("dgx-a100",),
    "a100x16_roce_oci_v2179_allreduce.txt": ("dgx-a100",),
    "issue_nccltests119_a100x24_hdr_allreduce_tail.txt": ("dgx-a100",),
    "h100x8_nvlink_allreduce.txt": H100,
    "h100x16_roce_oci_allreduce.txt": H100,
    "h100x16_efa_p5_allreduce.txt": H100,
    "h100x64_ib_sharp_allreduce.txt": H100,
    "torchdist_h200x8_all_reduce_bench.txt": H100,
    "torchdist_b200_1node_vs_4nodes.txt": ("dgx-b200",),
    "gb200_2racks_allreduce.txt": ("gb200-nvl72",),
}
"""Posted tables, and the presets that are such machines."""
ON = {"gb200_2racks_allreduce.txt": (64, 2)}
"""Ranks a rack and racks, where its ranks fill no rack of the preset."""
COLUMNS = ("fabric", "collective", "ranks", "bytes", "ratio", "table")


def rows(tables: Mapping[str, Sequence[str]] = TABLES) -> list[dict[str, str]]:
    """The ratio of each size of each table."""
    found = []
    for name, fabrics in tables.items():
        for each in (one.counted() for one in read_tables(POSTED / name)):
            ranks, collective = each.ranks or 0, str(each.collective)
            for fabric in fabrics:
                dimensions = [one.model_dump() for one in load_fabric(fabric).dimensions]
                sizes = [int(one["size"]) for one in dimensions]
                part = ON.get(name) or part_of(sizes, ranks, each.hosts)
                for row in each.rows:
                    if row.bytes < ranks or not row.time_us:
                        continue
                    told = default_us(collective, part, dimensions, row.bytes)
                    cells = (
                        fabric,
                        collective,
                        ranks,
                        row.bytes,
                        f"{row.time_us / told:.4f}",
                        name,
                    )
                    found.append(dict(zip(COLUMNS, map(str, cells), strict=True)))
    return found


def main() -> None:
    """Print or write the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path)
    path = parser.parse_args().write
    if not POSTED.is_dir():
        sys.exit(f"{POSTED} is not here; set ALLRAIL_REFERENCE")
    with path.open("w", newline="") if path else sys.stdout as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows())


if __name__ == "__main__":
    main()
