"""Named models: one YAML file each, with the source of every number; and models in files.

A preset or a file becomes a mapping with one of the forms of `workload.FORMS` and a `name`. What is
in the form is the Rust core's to read.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from allrail import _core
from allrail.base import late, stdin
from allrail.base.errors import InputError, did_you_mean
from allrail.base.manifest import note_source, note_trace
from allrail.scenario.choices import FORMS
from allrail.scenario.devices import load_device
from allrail.scenario.explain import from_core, from_pydantic
from allrail.scenario.forms import refuse_other
from allrail.scenario.places import Places
from allrail.scenario.sugar import Model
from allrail.scenario.text import read_file
from allrail.scenario.workload import Workload

FOLDER = FilePath(__file__).parent.parent / "presets" / "workloads"
_NEAR = 0.6
_SUFFIXES = (".yaml", ".yml", ".json")
_KEYS = ("schema_version", "name", "about", "sources", "defaults", "model", "rotary_base")


@cache
def model_names() -> tuple[str, ...]:
    """Return the names of the packaged models, in alphabetical order."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


def load_model(name: str, *, folder: FilePath | None = None) -> dict[str, Any]:
    """Read a model.

    Args:
        name: A preset's name or a path: a Hugging Face folder or its `config.json`, or a file
            like a preset.
        folder: Where a relative path starts; the current folder if None.

    Returns:
        Its name, its form, and `defaults`: keys of `workload` that it sets where the scenario does
        not.

    Raises:
        InputError: There is no such preset or file, or it is not a model.
    """
    tree, places = read_model(name, folder=folder)
    if "model_type" in tree or "architectures" in tree:
        path = _file_of(FilePath(name), folder or FilePath())
        above = path.parent.name if path.name == "config.json" else ""
        title = stdin.stem(path) if above in ("", "..") else above
        return {"name": title, "hugging_face": tree}
    refuse_other(tree, places, wanted="model", source=name)
    found = {"name": stdin.stem(FilePath(name)), **_preset(tree, places)}
    model = {**found.pop("model"), **found}
    _check_defaults(model, places)
    return model


def transformer_of(model: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the sizes of a transformer, however its model says them; None of other models.

    Args:
        model: As `load_model` returns it.

    Raises:
        InputError: A Hugging Face configuration lacks a size, or has one that cannot be.
    """
    config = model.get("hugging_face")
    if config is None:
        sizes: dict[str, Any] | None = model.get("transformer")
        return sizes
    text = _hugging_face(config)[0]
    return {key: value for key, value in json.loads(text).items() if value is not None}


def parameters_of(model: Mapping[str, Any]) -> int:
    """Return how many parameters a Hugging Face model has, shared ones once.

    Args:
        model: As `load_model` returns it, with `hugging_face`.

    Raises:
        InputError: Its configuration lacks a size, or has one that cannot be.
    """
    parameters: int = _hugging_face(model["hugging_face"])[2]
    return parameters


def _hugging_face(config: Any) -> tuple[str, list[str], int]:
    """A configuration's sizes as JSON, what was assumed, how many parameters they make."""
    try:
        return _core.hugging_face(json.dumps(config))
    except _core.InputError as error:
        raise from_core(error, places=Places()) from None


def rotary_of(model: Mapping[str, Any]) -> dict[str, float]:
    """Return what is known of a model's positions beside its sizes, for tools that build it.

    Nothing of it changes a step: allrail's core does not read it.

    Args:
        model: As `load_model` returns it.

    Returns:
        Of `base` (of rotary positions), `share` (of a head that is turned), `factor` (by which
        positions are scaled) and `positions` those that are known and not the usual ones.
    """
    if "hugging_face" not in model:
        base = model.get("rotary_base")
        return {} if base is None else {"base": float(base)}
    config = dict(model["hugging_face"])
    config = {**config, **(config.get("text_config") or config.get("llm_config") or {})}
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    found = {
        "base": scaling.get("rope_theta", config.get("rope_theta")),
        "share": scaling.get("partial_rotary_factor", config.get("partial_rotary_factor")),
        "positions": config.get("max_position_embeddings"),
    }
    if scaling.get("rope_type", scaling.get("type")) in ("llama3", "yarn"):
        found["factor"] = scaling.get("factor")
    known = {key: value for key, value in found.items() if isinstance(value, (int, float))}
    return {key: value for key, value in known.items() if (key, value) != ("share", 1)}


def _preset(tree: dict[str, Any], places: Places) -> dict[str, Any]:
    """Return the name, the model and the defaults of a file like a preset."""
    for key in tree:
        if key not in _KEYS:
            place = places.of((key,))
            raise InputError(
                "there is no such key",
                hint=did_you_mean(str(key), _KEYS, others="the keys of a model's file are"),
                source=place.source,
                line=place.line,
                field=str(key),
            )
    model = tree.get("model")
    if not isinstance(model, dict) or len(model) != 1 or set(model) - set(FORMS):
        place = places.of(("model",))
        raise InputError(
            "it is no model",
            hint="`model` has one of "
            + ", ".join(f"`{form}`" for form in FORMS)
            + "; a Hugging Face `config.json` has `model_type`",
            source=place.source,
            line=place.line,
            field="model",
        )
    kept = ("name", "model", "defaults", "rotary_base")
    return {key: tree[key] for key in kept if key in tree}


def _check_defaults(model: dict[str, Any], places: Places) -> None:
    """Refuse defaults that are no keys of a workload."""
    defaults = model.get("defaults", {})
    inner = {path[1:]: place for path, place in places.known.items() if path[:1] == ("defaults",)}
    try:
        Workload.model_validate({**defaults, "model": model})
    except ValidationError as error:
        raise from_pydantic(error, model=Workload, places=Places(inner)) from None


def read_model(name: str, *, folder: FilePath | None = None) -> tuple[dict[str, Any], Places]:
    """Read a model's file as plain values.

    Args:
        name: A preset's name, or the path of a file or a Hugging Face folder.
        folder: Where a relative path starts; the current folder if None.

    Raises:
        InputError: There is no such preset or file, or it is not a mapping.
    """
    if name in model_names():
        path = FOLDER / f"{name}.yaml"
    else:
        within = folder or FilePath()
        path = within / _file_of(FilePath(name), within)
    named = path == stdin.STDIN or path.suffix in _SUFFIXES
    if path.parent != FOLDER and not named and not path.is_file():
        raise InputError(
            "there is no such model",
            hint=_meant(name),
            field="workload.model",
            value=name,
        )
    tree, places = read_file(path)
    if not isinstance(tree, dict):
        raise InputError(
            "it is not a mapping of keys to values",
            hint="a model is a `config.json`, or a file like those of `presets/workloads`",
            source=str(path),
        )
    return tree, places


def _meant(name: str) -> str:
    """What an unknown model stands for: names on Hugging Face have an owner, dashes and more."""
    names = {_bare(one): one for one in model_names()}
    near = difflib.get_close_matches(_bare(name.rpartition("/")[2]), names, n=1, cutoff=_NEAR)
    if near:
        return f"did you mean `{names[near[0]]}`?"
    if "/" in name:
        return "download its `config.json`, and name that file"
    return did_you_mean(name, model_names(), others="the presets are")


def _bare(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def _file_of(path: FilePath, folder: FilePath) -> FilePath:
    """A model's file: of a Hugging Face folder its `config.json`."""
    if not (folder / path).is_dir():
        return path
    if not (folder / path / "config.json").is_file():
        raise InputError(
            "the folder has no `config.json`",
            hint="name a model's folder as Hugging Face saves it, or a file",
            field="workload.model",
            value=str(path),
        )
    return path / "config.json"


def resolve(workload: dict[str, Any], *, folder: FilePath) -> dict[str, Any]:
    """Put a model and a device's file in place of their names; paths start at the folder.

    Args:
        workload: The key `workload` as plain values.
        folder: Of the scenario.

    Raises:
        InputError: There is no such preset or file, or it is not a model.
    """
    compute = workload.get("compute")
    if isinstance(compute, dict) and isinstance(compute.get("device"), str):
        device = load_device(compute["device"], folder=folder)
        workload = {**workload, "compute": {**compute, "device": device}}
    model = workload.get("model")
    if isinstance(model, str):
        try:
            return {**workload, "model": load_model(model, folder=folder)}
        except InputError as error:
            if error.field or (folder / model).exists():
                raise
            hint = error.hint
            raise InputError(error.why, hint=hint, field="workload.model", value=model) from None
    if isinstance(model, dict):
        return {**workload, "model": _from_files(model, folder)}
    return workload


_NAMED = {
    "hugging_face": (
        "it has no `model_type`",
        "name the `config.json` of a Hugging Face model, or its folder",
    ),
    "steps": ("it has no `steps`", "see the presets `hammingmesh_...` for examples"),
}
"""Forms that may name a file, and what is said of one that is of another form."""


def _from_files(model: dict[str, Any], folder: FilePath) -> dict[str, Any]:
    """Read a file of a model, of steps or of ASTRA-sim; a trace's paths start at the folder."""
    found = dict(model)
    for form, (why, hint) in _NAMED.items():
        name = model.get(form)
        if isinstance(name, str):
            loaded = load_model(name, folder=folder)
            if form not in loaded:
                raise InputError(why, hint=hint, field=f"workload.model.{form}", value=name)
            return {**loaded, **{key: one for key, one in found.items() if key != form}}
    trace, layers = model.get("trace"), model.get("astra_sim")
    if isinstance(trace, str):
        found.setdefault("name", FilePath(trace).name)
        found["trace"] = _read_there(folder / trace)
    elif isinstance(trace, dict):
        found.setdefault("name", FilePath(str(trace.get("path", "trace"))).name)
        found["trace"] = {key: _placed(key, value, folder) for key, value in trace.items()}
    if isinstance(layers, str):
        found.setdefault("name", FilePath(layers).stem)
        found["astra_sim"] = late.call("layers of ASTRA-sim", folder / layers).to_json()
    return found


def _placed(key: str, value: Any, folder: FilePath) -> Any:
    """A value of `trace`, its paths from the scenario's folder on."""
    if key == "collectives" and isinstance(value, dict):
        return {kind: _placed(kind, one, folder) for kind, one in value.items()}
    if key == "nodes" and isinstance(value, dict):
        return {node: _read_there(folder / str(one)) for node, one in value.items()}
    paths = ("path", "groups", "all_reduce", "reduce_scatter", "all_gather", "all_to_all")
    return _read_there(folder / str(value)) if key in paths and value is not None else value


def _read_there(path: FilePath) -> str:
    """The path of a file, or of a trace's files, that the core reads."""
    note_source(path)
    note_trace(path)
    return str(path)


Model.by_name = load_model
