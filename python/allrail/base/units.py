"""Numbers as people read them."""

from __future__ import annotations

import math
from collections.abc import Iterable

TIMES = (("s", 1e6), ("ms", 1e3), ("µs", 1.0), ("ns", 1e-3))
SIZES = (("GB", 1e9), ("MB", 1e6), ("KB", 1e3), ("B", 1.0))


def time_unit(longest_us: float) -> tuple[str, float]:
    """The unit that suits times up to `longest_us`, and how many µs it is.

    Args:
        longest_us: The longest of them, µs.
    """
    for name, factor in TIMES:
        if longest_us >= 10 * factor or name == "ns":
            return name, factor
    raise AssertionError("the last unit always suits")


def show_time(us: float) -> str:
    """A time with its unit and five digits at most.

    Args:
        us: µs.
    """
    name, factor = time_unit(us) if us > 0 else ("µs", 1.0)
    return f"{us / factor:,.5g} {name}" if us / factor < 1e5 else f"{us / factor:,.0f} {name}"


DURATIONS = (("days", 86_400.0), ("h", 3_600.0), ("min", 60.0), ("s", 1.0))


def show_duration(seconds: float) -> str:
    """A time that people wait for, in days, hours, minutes or seconds, with four digits at most.

    Args:
        seconds: s.
    """
    for name, factor in DURATIONS:
        if seconds >= 2 * factor or name == "s":
            return f"{show_number(seconds / factor)} {name}"
    raise AssertionError("the last unit always suits")


def show_size(count: float) -> str:
    """A number of bytes with a decimal unit and four digits at most.

    Args:
        count: Bytes.
    """
    for name, factor in SIZES:
        if count >= factor or name == "B":
            return f"{show_number(count / factor)} {name}"
    raise AssertionError("the last unit always suits")


def show_binary(count: float) -> str:
    """A number of bytes with the unit, binary or decimal, in which it is the shortest.

    Args:
        count: Bytes.
    """
    for power, name in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count and count % (1 << power) == 0:
            return f"{int(count) >> power:,} {name}"
    return show_size(count)


def show_number(value: float, digits: int = 4) -> str:
    """A number with so many digits that count, without an exponent: 11,300, 0.0123.

    Args:
        value: Any number.
        digits: How many count; digits before the point are all shown.
    """
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    rounded = float(f"{value:.{digits - 1}e}")
    places = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    text = f"{rounded:,.{places}f}"
    return text.rstrip("0").rstrip(".") if places else text


def show_count(count: int, one: str, many: str = "") -> str:
    """A number of things: 1 layout, 1,200 layouts.

    Args:
        count: How many.
        one: What one of them is called; a verb may follow, as in `layout is`.
        many: The same of several; `one` with an s if empty.
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def plain_number(value: float, digits: int = 4) -> str:
    """The same without commas, for columns that programs may read: 11300.

    Args:
        value: Any number.
        digits: How many count.
    """
    return show_number(value, digits).replace(",", "")


def show_percent(fraction: float | None) -> str:
    """A fraction as a percentage; a dash where there is none.

    Args:
        fraction: 0 to 1.
    """
    return "–" if fraction is None else f"{100 * fraction:.2f} %"


def show_bandwidth(gbps: float) -> str:
    """A bandwidth in Gb/s.

    Args:
        gbps: Gb/s.
    """
    return f"{show_number(gbps, 6)} Gb/s"


def show_error(errors: Iterable[tuple[float, float | None, float | None]]) -> str | None:
    """How far results are off as far as their fabrics' `error` says; None where none says so.

    Args:
        errors: Of each result its time, and the least and the most that it may be, in one unit.
    """
    known = [(low / at - 1, high / at - 1) for at, low, high in errors if low and high]
    if not known:
        return None
    less, more = 100 * min(low for low, _ in known), 100 * max(high for _, high in known)
    return f"from {less:+.1f} to {more:+.1f} %, as far as the fabric's `error` is measured"
