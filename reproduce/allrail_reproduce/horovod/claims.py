"""What Horovod's talk and abstract say beside the efficiencies: how far each way scales, and more.

"Near ideal" is a word there, not a number. Here it is `NEAR` of what the fewest ranks have, and a
way is near ideal up to the most ranks that were run before it falls below that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from allrail_reproduce.horovod.models import RESNET, STEMDL, Model
from allrail_reproduce.published import Made, Published, chosen, more_than, number
from allrail_reproduce.rows import Row

NEAR = 0.9
"""Of the efficiency at the fewest ranks: chosen."""

ABSTRACT = "NSDI'22, abstract, p. 1027"
TALK = "NSDI'22, talk"
MADE: Made = chosen(f"near ideal is {NEAR:g} of the fewest ranks'", by="the word")

KNEE = (
    "rank 0 is at 95 % of the backward pass with 800 ranks, as measured (table `rank_0`), and "
    "saturates beyond; on a core half as fast it would at 420. Missing: a POWER9 core's speed"
)
CLAIMS: tuple[tuple[Model, str, Published, str], ...] = (
    (
        RESNET,
        "central",
        number(400.0, f"{TALK}: drops beyond about 400"),
        KNEE,
    ),
    (RESNET, "cached", more_than(800.0, f"{TALK}: near ideal to about 800"), ""),
    (
        STEMDL,
        "cached, 1 ms, grouped",
        more_than(6000.0, f"{TALK}: near ideal to about 6,000"),
        "",
    ),
)

PEAK = (
    "the source does not say of what the peak is. Ours is all GPUs computing, without any "
    "exchange, at half of a V100's tensor cores, which is assumed"
)
RATIOS = (
    ("tf.distribute, 1536 GPUs", 12.0, "what tf.distribute takes of the host and the network"),
    ("BytePS, 768 GPUs", 20.0, "the model, the servers and the plane of that comparison"),
)
"""By how many per cent Horovod is ahead, and what is missing to compute it."""


def near_ideal(
    percent: Callable[[Model, str, int], float | None], sizes: Mapping[str, Sequence[int]]
) -> list[Row]:
    """Return up to how many ranks each way is near ideal; a way that was not run whole has none.

    Args:
        percent: The efficiency of a model, a way and a number of ranks; None if it was not run.
        sizes: The numbers of ranks that belong to a model, by its name.
    """
    rows = []
    for model, way, stated, why in CLAIMS:
        found = [(ranks, percent(model, way, ranks)) for ranks in sizes[model.name]]
        known = [(ranks, value) for ranks, value in found if value is not None]
        if len(known) < len(found):
            continue
        enough = NEAR * known[0][1]
        most = known[0][0]
        for ranks, value in known:
            if value < enough:
                break
            most = ranks
        rows.append(
            Row(
                f"{model.name}, {way}, near ideal up to",
                float(most),
                stated,
                "ranks",
                within=0.0,
                digits=0,
                how=f"of {', '.join(str(ranks) for ranks, _ in known)}",
                why=why,
                made=MADE,
            )
        )
    return rows


def peak(case: str, exaops: float) -> Row:
    """Return the peak beside what computing alone would be.

    Args:
        case: Its name.
        exaops: Of all GPUs that compute all the time, EFLOP/s.
    """
    return Row(case, exaops, number(2.15, TALK), "EFLOP/s", why=PEAK)


def apart() -> list[Row]:
    """Return what needs an input that no source prints, and STEMDL's size."""
    size = number(220.0, f"{TALK}: parameters of STEMDL")
    millions = sum(STEMDL.tensors) / STEMDL.width / 1e6
    rows = [Row("STEMDL, parameters", millions, size, "M", within=0.01, digits=1)]
    return rows + [
        Row(f"ahead of {name}", None, number(value, ABSTRACT), "%", why=f"missing: {why}")
        for name, value, why in RATIOS
    ]
