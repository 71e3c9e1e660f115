"""Every verb: one line here, one file beside this one with `command` in it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb of the command line.

    Attributes:
        name: As it is typed.
        about: One line for the help page.
    """

    name: str
    about: str


SECTIONS: dict[str, tuple[Verb, ...]] = {
    "Predict": (
        Verb("simulate", "simulate one scenario, or an ASTRA-sim case as it is"),
        Verb("compare", "several policies, fabrics, sizes or models side by side"),
        Verb("sweep", "any fields of a scenario over many values: one table, with pictures"),
        Verb("tune", "better values of a training schedule's knobs, by few simulations"),
        Verb("plan", "make the plan alone, or rank the layouts of a model"),
        Verb("report", "one page that opens offline, of results that `--out` has written"),
        Verb("require", "the least bandwidth, and the cheapest fabric, for a throughput"),
    ),
    "Run": (
        Verb("launch", "a script as several ranks on this host"),
        Verb("run", "any training command with recording on: a trace, and a table"),
        Verb("verify", "predicted against measured, of a run that was recorded"),
    ),
    "Apply": (Verb("apply", "files for allrail, DDP, FSDP, Megatron-LM, torchtitan and NCCL"),),
    "Formats": (
        Verb("import", "traces of PyTorch, Chakra, ASTRA-sim and SimAI, as scenarios that run"),
        Verb("export", "a training step as a Chakra trace"),
    ),
    "Networks": (
        Verb("fabric", "list, show and advise on fabrics"),
        Verb("calibrate", "a fabric from what nccl-tests and their kin have measured"),
        Verb("expect", "the table of nccl-tests that a fabric should show, beside a measured one"),
        Verb("cost", "switches, cables and their price, for any list of fabrics"),
        Verb("place", "jobs on boards: how much of a fabric mixes of jobs can use"),
    ),
    "Trust": (
        Verb("reproduce", "published numbers beside ours, with the difference"),
        Verb("schema", "the JSON schema of a scenario or of a plan"),
    ),
}

VERBS: dict[str, Verb] = {verb.name: verb for verbs in SECTIONS.values() for verb in verbs}
