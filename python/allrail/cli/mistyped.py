"""What the command line cannot parse, in the shape of all other messages, and what was meant.

A hint works when it is typed: an option of this command that is near, the one that other tools
call by that name, a number without its unit. Else it names the command's help.
"""

from __future__ import annotations

import difflib
import re

import click

from allrail.base.errors import InputError, did_you_mean

_HABITS = {
    "--global-batch": ("gbs", "global-batch-size", "batch", "batch-size"),
    "--npus": ("gpus", "ngpus", "num-gpus", "n-gpus", "world-size", "ranks", "devices"),
    "--sequence": ("seq", "seqlen", "seq-length", "context-length", "max-seq-len"),
    "--fabric": ("topology", "network", "cluster", "system"),
    "--out": ("output", "output-dir", "outdir", "dir", "save"),
    "--json": ("format", "output-format"),
    "--network-model": ("world", "backend"),
}
"""By option of ours: what other tools call it."""
_DEGREES = ("tp", "cp", "ep", "pp", "dp")
_FIXED = {
    "tp": ("tensor-parallel", "tensor-parallel-size", "tensor-model-parallel-size", "tp-size"),
    "pp": (
        "pipeline-parallel",
        "pipeline-parallel-size",
        "pipeline-model-parallel-size",
        "pp-size",
    ),
    "cp": ("context-parallel", "context-parallel-size", "cp-size"),
    "ep": ("expert-parallel", "expert-parallel-size", "expert-model-parallel-size", "ep-size"),
    "dp": ("data-parallel", "data-parallel-size", "dp-size"),
    "mb": ("mbs", "micro-batch", "micro-batch-size", "microbatch"),
    "zero": ("zero", "zero-stage"),
}
"""By key of `--fix`: what other tools call it as an option."""
_KEYS = {
    "fabric": "fabric=dgx-h100",
    "policy": "schedule.policy=themis",
    "chunks": "schedule.chunks=64",
    "order": "schedule.order=fifo",
    "size": "collective.size=1GiB",
    "network_model": "network_model=links",
    "seed": "seed=1",
    **{degree: f"workload.parallelism.{degree}=8" for degree in _DEGREES},
}
"""What is no option but a key of scenarios, with a value."""
_NEAR = 0.6
_DASHES = "-\N{HYPHEN}\N{NON-BREAKING HYPHEN}\N{EN DASH}\N{EM DASH}\N{MINUS SIGN}"
_SAID = re.compile(r"(?P<value>.+?) is not (a valid|in the range|one of)")
_KINDS = {
    "is not a valid integer range": "is not a whole number",
    "is not a valid integer": "is not a whole number",
    "is not a valid float range": "is not a number",
    "is not a valid float": "is not a number",
}


def message_of(error: click.ClickException) -> str:
    """Return what is wrong, and a hint.

    Args:
        error: What click has found.
    """
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "allrail"
    hint = f"`{path} --help` lists what it takes"
    known = _options(context)
    if isinstance(error, click.NoSuchOption):
        meant = _option(error.option_name, known) or hint
        wrong = InputError(
            "there is no such option", hint=meant, source=path, value=error.option_name
        )
        return str(wrong)
    text = error.format_message().rstrip(".")
    for click_says, we_say in _KINDS.items():
        text = text.replace(click_says, we_say)
    if isinstance(error, click.BadParameter) and error.param is not None:
        hint = _value(error, error.param) or hint
    before = context is not None and not context.allow_interspersed_args
    if before and isinstance(error, click.MissingParameter):
        hint = f"options stand before the command; `{path} --help` shows how"
    extra = re.search(r"unexpected extra arguments? \((\S+)", text)
    if extra is not None:
        typed = extra[1].rstrip(")")
        hint = _argument(typed, known) or _list(typed, context) or hint
    return str(InputError(text[:1].lower() + text[1:], hint=hint, source=path))


def _options(context: click.Context | None) -> list[str]:
    if context is None:
        return []
    own = [name for param in context.command.params for name in param.opts]
    return [*own, *context.help_option_names]


def _option(typed: str, known: list[str]) -> str:
    """What an option stands for that is not there; empty if nothing is like it."""
    bare = typed.lstrip("-").casefold().replace("_", "-")
    fixed = next((key for key, others in _FIXED.items() if bare in (key, *others)), None)
    if fixed is not None and "--fix" in known:
        return f"for example `--fix {fixed}={8 if fixed in _DEGREES else 1}`"
    if fixed in _KEYS and "--set" in known:
        return f"for example `--set {_KEYS[fixed]}`"
    ours = next((name for name, others in _HABITS.items() if bare in others), None)
    if ours in known:
        return f"did you mean `{ours}`?"
    if bare in _KEYS and "--set" in known:
        return f"for example `--set {_KEYS[bare]}`"
    names = {name.lstrip("-"): name for name in known}
    near = difflib.get_close_matches(bare, names, n=1, cutoff=_NEAR)
    return f"did you mean `{names[near[0]]}`?" if near else ""


def _value(error: click.BadParameter, param: click.Parameter) -> str:
    """What a value stands for that an option does not take."""
    said = _SAID.match(error.message)
    option = max(param.opts, key=len)
    if said is None:
        return ""
    value = said["value"].strip("'\"")
    if isinstance(param.type, click.Choice):
        near = did_you_mean(value, [str(one) for one in param.type.choices])
        return near if near.startswith("did you mean") else ""
    plain = _plain(value, percent=getattr(param, "metavar", None) == "PERCENT")
    try:
        param.type.convert(plain, param, error.ctx)
    except click.UsageError:
        return ""
    return f"did you mean `{option} {plain}`?" if plain != value else ""


def _plain(value: str, *, percent: bool) -> str:
    """A number without its unit and commas; of 95%, where it is no option in percent, 0.95."""
    value = re.sub(r"(?<=[0-9]),(?=[0-9]{3}\b)", "", value)
    number = value.removesuffix("%").strip()
    if number != value and not percent and re.fullmatch(r"[0-9]+(\.[0-9]+)?", number):
        return f"{float(number) / 100:g}"
    return number.removesuffix("s").strip()


def _list(typed: str, context: click.Context | None) -> str:
    """The option whose list has a blank in it, where one option that takes a list was given."""
    if context is None:
        return ""
    lists = [
        (max(param.opts, key=len), context.params.get(param.name or ""))
        for param in context.command.params
        if param.metavar == "A,B,..."
    ]
    given = [(option, value) for option, value in lists if value]
    if len(given) != 1:
        return ""
    option, values = given[0]
    return f"did you mean `{option} {','.join([*values, typed])}`?"


def _argument(typed: str, known: list[str]) -> str:
    """What one argument too many stands for: an option whose dash is a letter of a text."""
    bare = typed.lstrip(_DASHES)
    if bare != typed and f"--{bare}" in known:
        return f"did you mean `--{bare}`?"
    key, _, value = typed.partition("=")
    return f"did you mean `--set {typed}`?" if "." in key and value and "--set" in known else ""
