"""Other libraries' errors in our words: field, value, why, hint, and the place in the file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pydantic import BaseModel

from allrail.base.errors import InputError, show
from allrail.scenario.former import hint_for_key, models_in
from allrail.scenario.places import Path, Place, Places, parse_path, show_path

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

_MISSING = {
    "schema_version": "write `schema_version: 1`",
    "fabric": "name a preset (`allrail fabric list`), a file, or write the fabric in place",
    "collective": "for example `collective: {kind: all_reduce, size: 1 GiB}`",
    "model": "for example `model: resnet152`, or the path of a `config.json`",
    "factor": "for example `factor: 1.5`",
    "deviation": "for example `deviation: 0.05`",
    "dimensions": "for example `dimensions: [{kind: switch, size: 8, bandwidth: 50 GiB/s, "
    "latency: 1 us}]`",
    "kind": "for example `kind: all_reduce`",
    "size": "for example `size: 1 GiB`",
    "dimensions.kind": "a dimension is a `ring`, `fully_connected` or a `switch`",
    "dimensions.size": "a number of NPUs, such as `size: 8`",
    "bandwidth": "for example `bandwidth: 400 Gb/s`",
    "latency": "for example `latency: 700 ns`",
}
_TYPES = {
    "model_type": "it is not a mapping of keys to values",
    "dict_type": "it is not a mapping of keys to values",
    "tuple_type": "it is not a list",
    "too_short": "it is empty",
    "too_long": "it has too many entries",
}


def from_pydantic(error: ValidationError, *, model: type[BaseModel], places: Places) -> InputError:
    """Explain the first thing that pydantic refused; unknown keys come before anything else.

    Args:
        error: What pydantic raised.
        model: The model that was validated.
        places: Where its values were written.
    """
    details = error.errors(include_url=False)
    first = min(details, key=lambda detail: detail["type"] != "extra_forbidden")
    inner = first.get("ctx", {}).get("error")
    if isinstance(inner, InputError):
        return at_place(inner, places)
    why, hint = _words(first, model)
    # Which form of a fabric it is stands between `<` and `>`; people did not write it.
    path: Path = tuple(step for step in first["loc"] if not str(step).startswith("<"))
    place = places.of(path)
    return InputError(
        why,
        hint=hint,
        source=place.source,
        line=place.line,
        field=show_path(places.as_written(path)),
        value=None if first["type"] == "missing" else show(first["input"]),
    )


def from_core(error: Exception, *, places: Places, index: int | None = None) -> InputError:
    """Explain what the Rust core refused.

    Args:
        error: The core's `InputError`.
        places: Where the scenario's values were written.
        index: Which of several scenarios it was.
    """
    told = json.loads(str(error.args[0]))
    value = told.get("value")
    return at_place(
        InputError(
            told["why"],
            hint=told.get("hint") or "",
            field=told.get("field") or "",
            value=None if value in (None, "") else show(value),
            index=index,
        ),
        places,
    )


def at_place(error: InputError, places: Places) -> InputError:
    """Give an error that knows its field the place of that field.

    Args:
        error: The error; one that already has a source is returned as it is.
        places: Where the values were written.
    """
    if error.source:
        return error
    path = (parse_path(error.field) if error.field else None) or ()
    place: Place = places.of(path)
    return InputError(
        error.why,
        hint=error.hint,
        source=place.source,
        line=place.line if path else None,
        field=show_path(places.as_written(path)) if path else error.field,
        value=error.value,
        index=error.index,
    )


def _words(detail: ErrorDetails, model: type[BaseModel]) -> tuple[str, str]:
    kind = detail["type"]
    if kind == "refused":
        return detail["ctx"]["why"], detail["ctx"]["hint"]
    last = detail["loc"][-1] if detail["loc"] else ""
    if kind == "extra_forbidden":
        here = _model_at(model, tuple(detail["loc"])[:-1])
        hint = hint_for_key(str(last), detail["input"], model=here, top=model)
        return "there is no such key", hint
    if kind == "missing":
        inside = f"dimensions.{last}" if "dimensions" in detail["loc"] else str(last)
        return "it is missing", _MISSING.get(inside, _MISSING.get(str(last), f"add `{last}: ...`"))
    hint = _MISSING.get(str(last), "`allrail schema scenario` prints what is taken where")
    return _TYPES.get(kind, detail["msg"][:1].lower() + detail["msg"][1:]), hint


def _model_at(model: type[BaseModel], path: Path) -> type[BaseModel]:
    """Return the model of what stands at `path` below `model`."""
    for step in path:
        field = model.model_fields.get(str(step)) if isinstance(step, str) else None
        if field is not None:
            model = next(models_in(field.annotation), model)
    return model
