"""Hints for unknown keys: names of before, words of other tools, keys of other places."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel

from allrail.base.errors import did_you_mean
from allrail.scenario.job import KINDS, NAMES

RENAMED = {"batch_per_npu": "batch_per_replica", "world": "network_model"}
"""Keys that had another name, by that name; of any place that has the key of today."""
MOVED = {
    "schedule": ("cut", "loads", "communicators", "groups"),
    "workload": ("issue",),
    "messages": ("endpoint_delay",),
}
"""Keys that stand in `compat` today, by the key that had them."""
_NAMED_ANEW = {"endpoint_delay": "message_endpoint_delay"}
_WORDS = {
    "fabric": ("topology", "network", "system", "cluster", "hardware", "interconnect"),
    "workload": ("training", "train", "training_step", "step"),
    "collective": ("comm", "communication", "operation", "coll"),
    "network_model": ("backend", "fidelity", "simulator"),
    "schedule": ("scheduler", "scheduling"),
}
"""By key: what other tools, or people, call it."""
_JOB = ("job", "jobs", "kind", "type", "task")
"""What people write to say which kind of job it is."""


def hint_for_key(key: str, value: Any, *, model: type[BaseModel], top: type[BaseModel]) -> str:
    """Return what to write instead of a key that there is not.

    Args:
        key: What was written.
        value: Its value.
        model: What has no such key.
        top: The whole, with the keys of other places.
    """
    known = list(model.model_fields)
    if RENAMED.get(key) in known:
        return f"it was renamed: write `{RENAMED[key]}`"
    if key in MOVED.get(model.__name__.lower(), ()):
        return f"it was renamed: write `compat.{_NAMED_ANEW.get(key, key)}`"
    meant = next((one for one, words in _WORDS.items() if one in known and key in words), None)
    if meant is not None:
        return f"did you mean `{meant}`?"
    scenario = model is top and {*NAMES} <= {*known}
    if key in _JOB and scenario:
        return f"a job is named by its own key: {KINDS}"
    places = sorted(set(_places(key, top)), key=lambda place: (place.count("."), place))
    if places:
        return f"did you mean {' or '.join(f'`{place}`' for place in places[:2])}?"
    near = did_you_mean(key, known)
    if near.startswith("did you mean"):
        return near
    if scenario and isinstance(value, dict):
        return f"a job is one of {KINDS}; other keys are: " + ", ".join(
            f"`{one}`" for one in known if one not in NAMES
        )
    return did_you_mean(key, known, others="the keys here are")


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models that a field may hold.

    Args:
        annotation: Its type.
    """
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models_in(part)


def _places(key: str, model: type[BaseModel], at: str = "", deep: int = 3) -> Iterator[str]:
    """The dotted places of a key, down to some depth."""
    if key in model.model_fields:
        yield f"{at}.{key}" if at else key
    if deep:
        for name, field in model.model_fields.items():
            for inner in models_in(field.annotation):
                yield from _places(key, inner, f"{at}.{name}" if at else name, deep - 1)
