"""The job file, `allrail.yaml`: how a job's gradients travel, over which network, under which plan.

It is found where `job=` says, else `ALLRAIL_JOB`, else in the current folder; without one, defaults
hold. Its keys, their defaults and what follows from them are the Rust core's; this file reads it,
and what it names: fabric, plan, secret. A mistake on one rank is an error on all of them.
"""

from __future__ import annotations

import json
import os
import stat
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from allrail import _core
from allrail.base.errors import InputError
from allrail.results.plans import Plan
from allrail.runtime.agreement import Patience
from allrail.runtime.record import folder as traced
from allrail.runtime.record import recording
from allrail.scenario.algorithms import AUTO
from allrail.scenario.dimensions import dimensions_of
from allrail.scenario.explain import at_place, from_core, from_pydantic
from allrail.scenario.fields import table
from allrail.scenario.graph import check_mapping
from allrail.scenario.graph_file import resolve
from allrail.scenario.load import resolve_fabric
from allrail.scenario.model import OnFabric
from allrail.scenario.places import Places
from allrail.scenario.programs import with_programs
from allrail.scenario.text import read_bytes, read_file
from allrail.simulation.plugins import load_text, loaded, tensor_function
from allrail.simulation.plugins.tensors import TensorFunction

JobLike = str | os.PathLike[str] | Mapping[str, Any]
"""A path, or a mapping of the same shape as a file."""

FILE = "allrail.yaml"
ENVIRONMENT = "ALLRAIL_JOB"
SECRET_FILE = "ALLRAIL_SECRET_FILE"  # noqa: S105 - the name of a variable
_FROM_STORE = "store"
OWN_TO_GROUPS = ("order", "send_ahead", "algorithms", "algorithms_by_operation", "programs")
"""Keys of a schedule that process groups of torch.distributed decide for themselves."""
COMPARED_EVERY = 100
"""After how many steps ranks compare their parameters where no file says."""
_LONGEST_SECRET = 4096
_OF_ALL = ("fabric", "plan", "pin", "port")
"""Keys that say something of all ranks together."""


@dataclass(frozen=True)
class Job:
    """A job file, read and checked as far as one rank can.

    Attributes:
        keys: What it says.
        fabric: The fabric that it names, as the core reads it.
        plans: The plans in the file that it names.
        folder: Where relative paths start.
        places: Where its values were written.
        ranking: The tensor scheduler in the file that `schedule.tensor.plugin` names.
    """

    keys: Mapping[str, Any]
    fabric: Mapping[str, Any] | None
    plans: list[dict[str, Any]]
    folder: Path
    places: Places
    ranking: TensorFunction | None = None

    @property
    def transport(self) -> str:
        """What carries gradients: `auto`, `native` or `c10d`."""
        return str(self.keys.get("transport", "auto"))

    @property
    def schedule(self) -> Mapping[str, Any]:
        """What the file says under `schedule`."""
        return self.keys.get("schedule") or {}

    @property
    def tensor(self) -> Mapping[str, Any]:
        """What the file says under `schedule.tensor`."""
        return self.schedule.get("tensor") or {}

    @property
    def one_order(self) -> tuple[str, ...]:
        """The keys that take ranks which agree on one order of launches.

        Over `native` every rank starts what is ready there, in whatever order.
        """
        orders = {row["name"] for row in table("orders") if row["one_order"]}
        policies = {row["name"] for row in table("tensor_policies") if row["one_order"]}
        asked = {
            "schedule.coordination": "coordination" in self.schedule,
            "schedule.order": self.schedule.get("order") in orders,
            "schedule.tensor.policy": self.tensor.get("policy") in policies,
            "schedule.tensor.credit": "credit" in self.tensor,
        }
        return tuple(key for key, is_so in asked.items() if is_so)

    @property
    def compared_every(self) -> int:
        """After how many steps ranks compare their parameters; 0 for never."""
        return int((self.keys.get("checks") or {}).get("parameters", COMPARED_EVERY))

    @property
    def names_interfaces(self) -> bool:
        """Whether it says over which network ranks reach each other."""
        return bool(self.keys.get("interfaces"))

    @property
    def names_secret(self) -> bool:
        """Whether a file has the secret."""
        return bool(os.environ.get(SECRET_FILE)) or self.keys.get("secret") not in {
            None,
            _FROM_STORE,
        }

    @property
    def draws_secret(self) -> bool:
        """Whether a secret is drawn and may go through the job's store."""
        return not self.names_secret and self.keys.get("secret") == _FROM_STORE

    @property
    def trace(self) -> Path | None:
        """The folder for what a trace is made of: `ALLRAIL_TRACE`, else what the file says."""
        named = self.keys.get("trace")
        return traced() or (None if named is None else self.folder / named)

    def within(self, ranks: int) -> Job:
        """Return the job as a group of some of its ranks sees it: one switch for them.

        They are on the network of the last dimension, which joins all; a plan is for all ranks.

        Args:
            ranks: How many are in the group.
        """
        keys = {key: value for key, value in self.keys.items() if key not in _OF_ALL}
        if self.names_interfaces:
            keys["interfaces"] = list(self.keys["interfaces"])[-1:]
        schedule = dict(keys.get("schedule", {}))
        if isinstance(named := schedule.get("algorithms"), list):
            program = schedule.get("programs", {}).get(named[-1], {})
            # A program is for one number of ranks.
            fits = program.get("ranks", ranks) == ranks
            keys["schedule"] = {**schedule, "algorithms": named[-1:] if fits else AUTO}
        fabric = self.fabric
        if fabric is not None:
            last = {**fabric["dimensions"][-1], "kind": "switch", "size": ranks}
            fabric = {**fabric, "dimensions": [last]}
        return replace(self, keys=keys, fabric=fabric, plans=[])

    def over(self, sizes: Sequence[int]) -> Job:
        """Return the job with alike dimensions of these sizes, where it names none itself.

        Args:
            sizes: How many ranks each joins, the innermost first.
        """
        if self.fabric is not None or self.plans:
            return self
        alike = {"kind": "switch", "bandwidth": "10 Gb/s", "latency": "50 us"}
        dimensions = [{**alike, "size": size} for size in sizes]
        return replace(self, fabric={"name": "mesh", "dimensions": dimensions})

    def reached_by(self, interface: str) -> Job:
        """Return the job as where a file says neither how ranks reach each other nor their secret.

        Args:
            interface: Where this host reaches the others.
        """
        return replace(self, keys={"secret": _FROM_STORE, **self.keys, "interfaces": [interface]})

    def alike(self) -> dict[str, Any]:
        """Return what must be alike on all ranks, by key."""
        alike: dict[str, Any] = json.loads(self._ask(_core.job_alike, {}))
        return alike

    def settings(
        self,
        *,
        rank: int,
        ranks: int,
        local_rank: int = 0,
        one_host: bool = True,
        secret: str | None = None,
        size: int | None = None,
    ) -> dict[str, Any]:
        """Return what this rank's nodes are made with.

        Args:
            rank: This process.
            ranks: How many there are.
            local_rank: Its number on its host.
            one_host: Whether all ranks reach each other over loopback.
            secret: What only the ranks of this job know, in hexadecimal.
            size: The bytes that a step exchanges, alike on all ranks; None if nobody knows.

        Raises:
            InputError: The file does not fit this job, or this host.
        """
        here = {"rank": rank, "ranks": ranks, "local_rank": local_rank, "one_host": one_host}
        known = {"secret": secret, "bytes": None if size is None else f"{size} B"}
        settings: dict[str, Any] = json.loads(self._ask(_core.job_settings, here | known))
        if settings["flight_recorder"] is not None:
            settings["flight_recorder"] = str(self.folder / settings["flight_recorder"])
        return recording(settings, self.trace)

    def secret(self) -> str | None:
        """Return the secret in the file that the environment or the job names; None without one.

        Raises:
            InputError: It cannot be read.
        """
        named, field = os.environ.get(SECRET_FILE), SECRET_FILE
        if not named:
            named, field = self.keys.get("secret"), "secret"
            if named is None or named == _FROM_STORE:
                return None
        path = self.folder / named if field == "secret" else Path(named)
        try:
            with path.open("rb") as file:
                text = file.read(_LONGEST_SECRET).decode("ascii", "replace").strip()
                mode = os.fstat(file.fileno()).st_mode
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise self.at_place(
                InputError(
                    f"it cannot be read: {why}",
                    field=field,
                    value=str(path),
                    hint="`openssl rand -hex 32 > job.secret && chmod 600 job.secret`, the same"
                    " file on every host",
                )
            ) from None
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            warnings.warn(
                f"others than you can read the secret in {path}: `chmod 600 {path}`",
                RuntimeWarning,
                stacklevel=2,
            )
        return text

    def _ask(self, function: Callable[[str, str], str], here: dict[str, Any]) -> str:
        known = {"fabric": self.fabric, "plans": self.plans, **here}
        try:
            return function(json.dumps(self.keys), json.dumps(known))
        except _core.InputError as error:
            raise from_core(error, places=self.places) from None

    def at_place(self, error: InputError) -> InputError:
        """Return an error about a key of the file, with the line where it was written."""
        return at_place(error, self.places)


def find_job(job: JobLike | None = None) -> Job:
    """Read the job file.

    Args:
        job: A path or a mapping; if None, `ALLRAIL_JOB`, else `allrail.yaml` in the current folder,
            else defaults.

    Raises:
        InputError: It cannot be read, or something in it is refused.
    """
    if isinstance(job, Mapping):
        return _read(dict(job), Places(), Path())
    if job is None:
        job = os.environ.get(ENVIRONMENT) or (FILE if Path(FILE).is_file() else None)
    if job is None:
        return _read({"schema_version": 1}, Places(), Path())
    path = Path(job)
    tree, places = read_file(path)
    return _read(tree, places, path.parent)


_SECONDS = {"ps": 1e-12, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


def patience_of(job: JobLike | Job | None = None) -> Patience:
    """Return how long ranks wait for each other, as this rank's job file says.

    It is asked before ranks compare their files: one that cannot be read has the defaults, and
    whoever reads it next says what is wrong.

    Args:
        job: As of `find_job`, or what it returns.
    """
    try:
        found = job if isinstance(job, Job) else find_job(job)
        times = found.settings(rank=0, ranks=1)["timeouts"]
    except InputError:
        return Patience()

    def seconds(key: str) -> float:
        number, unit = str(times[key]).split()
        return float(number) * _SECONDS[unit]

    return Patience(*(seconds(key) for key in ("connect", "warn", "stalled")))


def _read(tree: Any, places: Places, folder: Path) -> Job:

    if not isinstance(tree, dict):
        place = places.of(())
        raise InputError(
            "a job file is a mapping of keys to values",
            hint="it starts with `schema_version: 1`; see `allrail schema job`",
            source=place.source,
            line=place.line,
        )
    check_mapping(tree, job_schema(), path=(), places=places)
    if "schedule" in tree:
        tree = {**tree, "schedule": _schedule(tree["schedule"], places, folder)}
    fabric = _fabric(tree["fabric"], places, folder) if "fabric" in tree else None
    plans = Plan.load(folder / tree["plan"]).plans if "plan" in tree else []
    return Job(tree, fabric, plans, folder, places, _ranking(tree, places, folder))


def _ranking(tree: Mapping[str, Any], places: Places, folder: Path) -> TensorFunction | None:
    """Return the tensor scheduler of a file of one's own, if the job has one."""
    tensor = (tree.get("schedule") or {}).get("tensor") or {}
    if "plugin" not in tensor:
        return None

    path = folder / tensor["plugin"]
    text = read_bytes(path)
    policy = str(tensor.get("policy", ""))
    found = tensor_function(policy)
    if found is None or loaded().get(found.source) != text:
        load_text(str(path), text)
        found = tensor_function(policy)
    if found is None or loaded().get(found.source) != text:
        raise at_place(
            InputError(
                f"it registers no tensor scheduler `{policy}`",
                hint="name it in `schedule.tensor.policy` as `@allrail.tensor_scheduler` does",
                field="schedule.tensor.plugin",
                value=str(tensor["plugin"]),
            ),
            places,
        )
    return found


def _schedule(said: Any, places: Places, folder: Path) -> Any:
    """Return the schedule with the programs that its algorithms name."""
    try:
        return with_programs(said, folder=folder)
    except InputError as error:
        raise at_place(error, places) from None


def _fabric(named: Any, places: Places, folder: Path) -> dict[str, Any]:
    """Return the fabric that the file names or holds, as planners see it."""
    tree = {"fabric": named}
    if isinstance(named, str):
        resolve_fabric(tree, places, folder)
    elif isinstance(named, Mapping) and "topology" in named:
        tree["fabric"] = resolve(named, places=places, folder=folder, at=("fabric",))
    try:
        fabric = OnFabric.model_validate(tree).fabric
    except ValidationError as error:
        raise from_pydantic(error, model=OnFabric, places=places) from None
    try:
        return dimensions_of(fabric).model_dump()
    except InputError as error:
        raise at_place(error, places) from None


@cache
def job_schema() -> dict[str, Any]:
    """Return the JSON schema of the job file."""
    schema: dict[str, Any] = json.loads(_core.job_schema())
    return schema
