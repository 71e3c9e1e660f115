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
        Verb("simulate", "simulate one scenario, or an ASTRA-sim case"),
        Verb("compare", "compare policies, fabrics, sizes or models side by side"),
        Verb("sweep", "vary any fields of a scenario: one table, with pictures"),
        Verb("tune", "search better settings of a training schedule, in few simulations"),
        Verb("plan", "plan a collective, or rank the layouts of a model"),
        Verb("report", "write a page that opens offline, from saved results"),
        Verb("require", "find the least bandwidth, and the cheapest fabric, for a throughput"),
    ),
    "Run": (
        Verb("launch", "start a script as several ranks"),
        Verb("run", "run a training command and record it: a trace, and a table"),
        Verb("verify", "compare a recorded run with its prediction"),
    ),
    "Apply": (
        Verb("apply", "write files for allrail, DDP, FSDP, Megatron-LM, torchtitan and NCCL"),
    ),
    "Formats": (
        Verb("import", "turn traces of PyTorch, Chakra, ASTRA-sim and SimAI into scenarios"),
        Verb("export", "write a training step as a Chakra trace"),
    ),
    "Networks": (
        Verb("fabric", "list, show and advise on fabrics"),
        Verb("calibrate", "make a fabric from nccl-tests (or compatible) output"),
        Verb("expect", "print the nccl-tests table that a fabric should reach"),
        Verb("cost", "count switches and cables, with their price"),
        Verb("place", "place jobs on boards: how much of a fabric they can use"),
    ),
    "Trust": (Verb("schema", "print the JSON schema of a scenario or a plan"),),
}

HELP = "help"
SEPARATE = {"reproduce": "allrail-reproduce"}
"""Commands of packages beside this one, by name; the folder in a clone has the command's name."""

VERBS: dict[str, Verb] = {verb.name: verb for verbs in SECTIONS.values() for verb in verbs}
OWN = (*VERBS, HELP)
"""Names that no other package can take."""
