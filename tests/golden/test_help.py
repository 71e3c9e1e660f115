"""Defaults that help states are those of the code, and names in its lists are names of today."""

from __future__ import annotations

import inspect
import re

import click
import pytest

from allrail.cli import main, options, report
from allrail.scenario.fields import names
from allrail.search.layouts import HEADROOM, asked
from allrail.simulation import graphs, kinds, placement

SAYS = re.compile(r"if left out|\[default|\(default\)|by default|\belse\b")
"""Help that states a default without click's `show_default`."""


def queue(name):
    return inspect.signature(placement.queue).parameters[name].default


STATED = {
    "--timeline": f"{options.MAX_SLICES:,} slices",
    "--cache": "on by default",
    "compare --policy": f"{','.join(kinds.DEFAULT_POLICIES)} if left out",
    "--device": f"else {asked._DEVICE}",
    "--launch": f"else {asked._LAUNCH}",
    "plan --headroom": f"[default: {100 * HEADROOM:g}]",
    "report --out": f"`{report._PAGE}`",
    "cost --prices": f"`{graphs.DEFAULT_PRICES}` if left out",
    "place --unit": f"`{placement.UNITS[0]}` (default)",
    "place --load": f"{queue('load'):g} if left out",
    "place --duration": f"`{queue('duration')}` if left out",
}
"""What the help of an option says, by command and option, or by option alone."""

PROSE = {
    "--global-batch",
    "--recipe",
    "--name",
    "--reference",
    "--sequence",
    "--table",
    "apply --for",
    "calibrate device --device",
    "compare --order",
    "expect --machines",
    "expect --ranks",
    "launch --token-file",
    "place --leaf-boards",
    "sweep --out",
    "sweep --workers",
}
"""Options whose default is another option's, the file's or the machine's: no constant."""


def walk(command, context, path=()):
    yield path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            inner = click.Context(found, parent=context, info_name=name)
            yield from walk(found, inner, (*path, name))


# Its settings: a command keeps the first help option that it was asked for.
CONTEXT = click.Context(main.cli, **main.cli.context_settings)
OPTIONS = [
    (" ".join((*path, option.opts[0])), option)
    for path, command in walk(main.cli, CONTEXT)
    for option in command.params
    if isinstance(option, click.Option)
]


def known(table, name):
    return next((one for one in (name, name.rpartition(" ")[2]) if one in table), None)


def test_every_default_that_help_states_is_the_codes():
    seen = set()
    for name, option in OPTIONS:
        if not SAYS.search(option.help or "") or option.show_default:
            continue
        prose, stated = known(PROSE, name), known(STATED, name)
        entry = name if name in (*PROSE, *STATED) else prose or stated
        assert entry, f"`{name}` states a default: list it here with its constant"
        seen.add(entry)
        if entry in STATED:
            assert STATED[entry] in option.help, name
    assert seen == {*STATED, *PROSE}


def test_each_option_has_help_without_a_full_stop():
    """An imperative or a noun phrase; `...` stands for more."""
    helps = {name: option.help or "" for name, option in OPTIONS}
    full = [name for name, text in helps.items() if text.endswith(".") and not text.endswith("...")]
    assert full == []
    assert [name for name, text in helps.items() if len(text) < 8] == []


def test_plans_are_kept_by_default():
    assert {option.default for name, option in OPTIONS if name.endswith(" --cache")} == {True}


LISTS = {
    "--policy": "policies",
    "--order": "orders",
    "--tensor": "tensor_policies",
    "--coordination": "coordinations",
}


@pytest.mark.parametrize("option", LISTS)
def test_names_in_the_help_of_an_axis_are_names_of_today(option):
    texts = [one.help for name, one in OPTIONS if name.endswith(f" {option}")]
    assert texts
    listed = [
        name
        for text in texts
        for part in re.findall(r"\w+(?:,\w+)+", text)
        for name in part.split(",")
    ]
    assert set(listed) <= set(names(LISTS[option]))


def test_policies_of_examples_in_help_are_names_of_today():
    """`--policy A,B` and `schedule.policy=A` in the text of any command."""
    found = set()
    for _, command in walk(main.cli, CONTEXT):
        text = " ".join(
            [command.help or "", *(getattr(one, "help", None) or "" for one in command.params)]
        )
        for given in re.findall(r"(?:--policy |schedule\.policy=)([a-z_]+(?:,[a-z_]+)*)", text):
            found |= set(given.split(","))
    assert found
    assert found <= {*names("policies"), "nccl"}
