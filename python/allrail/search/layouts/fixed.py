"""`--fix tp=8,pp=16`: what of a layout is given; the rest is searched."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from allrail.base.errors import InputError, did_you_mean

KEYS: dict[str, str] = {
    "tp": "tensor parallelism",
    "cp": "context parallelism",
    "ep": "expert parallelism",
    "pp": "stages of the pipeline",
    "dp": "replicas",
    "zero": "the ZeRO stage",
    "shard": "replicas that share states",
    "virtual_stages": "pieces of the model a stage",
    "micro_batch": "samples of a microbatch",
    "schedule": "the schedule of the pipeline",
    "recompute": "what is computed again",
}
"""What may be fixed."""

_SHORT = {"mb": "micro_batch", "v": "virtual_stages", "micro": "micro_batch"}
"""As rows have them."""
_WORDS = ("schedule", "recompute")


def parse_fixed(texts: Iterable[str]) -> dict[str, Any]:
    """Return what is fixed, by key.

    Args:
        texts: Such as `tp=8,pp=16`; later ones replace earlier ones.

    Raises:
        InputError: A key is not known, or a value is no number.
    """
    found: dict[str, Any] = {}
    for text in texts:
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, equals, value = (word.strip() for word in part.partition("="))
            key = _SHORT.get(name, name)
            if key not in KEYS:
                raise InputError(
                    "no such part of a layout",
                    source="--fix",
                    value=part,
                    hint=did_you_mean(name, KEYS),
                )
            if not equals or not value:
                raise InputError(
                    "it has no value", source="--fix", value=part, hint="such as `--fix tp=8,pp=4`"
                )
            found[key] = value if key in _WORDS else _number(key, value, part)
    return found


def _number(key: str, value: str, part: str) -> int:
    least = 0 if key == "zero" else 1
    if value.isdecimal() and len(value) < 10 and int(value) >= least:
        return int(value)
    raise InputError(
        f"{KEYS[key]}: a whole number from {least} is wanted",
        source="--fix",
        value=part,
        hint="such as `--fix tp=8,pp=4`",
    )
