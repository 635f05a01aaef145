"""Figure of probes, drawn with matplotlib: accuracy over depth, one plot for each property."""

import math
from collections.abc import Sequence
from typing import Any

from ..figure_style import COLOURS, INK, RC
from .classifier import Estimate
from .results import Probed

SUFFIXES = (".svg", ".png", ".pdf")
_MARKERS = {"trained": "o", "frozen": "s", "partly frozen": "D", "masked": "^", "left out": "x"}
_FILLED = ("trained", "left out")
_COLUMNS = 3
_LONGEST = 26  # characters of a name in the legend
# Dates and versions are left out, so that the same results always give the same file.
_METADATA = {".svg": {"Date": None}, ".png": {"Software": None}, ".pdf": {"CreationDate": None}}


def draw(probed: Sequence[Probed], out: str, suffix: str) -> None:
    """Draw the results of all checkpoints and write the figure to the file ``out``, in the format of ``suffix``."""
    import matplotlib
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(one.name for each in probed for one in each.properties))
    states = [state for state in _MARKERS if any(depth.state == state for each in probed for depth in each.depths)]
    with matplotlib.rc_context(RC):
        lines = math.ceil((len(names) + 1) / _COLUMNS)
        figure = Figure(figsize=(2.5 * _COLUMNS, 2.1 * lines), layout="constrained")
        plots = figure.subplots(lines, _COLUMNS, squeeze=False).flat
        for number, plot in enumerate(plots):
            if number < len(names):
                _draw_property(plot, probed, names[number])
                if number % _COLUMNS == 0:
                    plot.set_ylabel("accuracy, %")
            else:
                plot.set_axis_off()
            if number == len(names):
                plot.legend(handles=_legend(probed, states), loc="center", handlelength=2.2, borderaxespad=0)
        figure.savefig(out, format=suffix[1:], metadata=_METADATA[suffix], dpi=200)


def _draw_property(plot: Any, probed: Sequence[Probed], name: str) -> None:
    shift = 0.5 / max(len(probed), 1) / 2  # so that the intervals of several checkpoints do not hide each other
    for number, each in enumerate(probed):
        if name not in each.results:
            continue
        colour, beside = COLOURS[number % len(COLOURS)], shift * (number - (len(probed) - 1) / 2)
        accuracy, control = (_passed_on(each, name, which) for which in ("accuracy", "control"))
        places = [depth.number + beside for depth in each.depths]
        plot.plot(places, [100 * one.value for one in control], color=colour, linestyle=(0, (2, 1.5)), linewidth=0.9)
        plot.plot(places, [100 * one.value for one in accuracy], color=colour, linewidth=1.2)
        for depth, place, one in zip(each.depths, places, accuracy, strict=True):
            _draw_point(plot, depth.state, place, one, colour)
    majority = next(one.majority for each in probed for one in each.properties if one.name == name)
    plot.axhline(100 * majority, color=INK, linewidth=0.8, linestyle=":")
    plot.set_title(name)
    plot.set_xlabel("layer")
    deepest = max(depth.number for each in probed for depth in each.depths)
    plot.set_xticks(range(0, deepest + 1, max(1, round(deepest / 6))))
    plot.set_ylim(0, 103)


def _draw_point(plot: Any, state: str, place: float, one: Estimate, colour: str) -> None:
    """Draw an accuracy with its confidence interval. For a layer that was left out, draw no interval."""
    value, low, high = (100 * number for number in (one.value, one.low, one.high))
    ends = None if state == "left out" else [[value - low], [high - value]]
    inside = colour if state in _FILLED else "white"
    style: dict[str, Any] = dict(color=colour, markersize=4.5, elinewidth=0.8, markerfacecolor=inside)
    plot.errorbar([place], [value], yerr=ends, fmt=_MARKERS[state], **style)


def _passed_on(each: Probed, name: str, which: str) -> list[Estimate]:
    """Return an estimate for each depth.

    A layer that was left out has no outputs of its own, so it gets the estimate of the layer below.
    """
    found: list[Estimate] = []
    for result in each.results[name]:
        found.append(found[-1] if result is None else getattr(result, which))
    return found


def _short(name: str) -> str:
    """Keep the end of a long name, so that the legend fits into the figure."""
    return name if len(name) <= _LONGEST else f"...{name[3 - _LONGEST :]}"


def _legend(probed: Sequence[Probed], states: Sequence[str]) -> list[Any]:
    from matplotlib.lines import Line2D

    lines = [Line2D([], [], color=COLOURS[i % len(COLOURS)], label=_short(each.name)) for i, each in enumerate(probed)]
    for state in states:
        label = {"frozen": "frozen (reservoir)"}.get(state, state)
        style: dict[str, Any] = dict(
            linestyle="none", markersize=4.5, markerfacecolor=INK if state in _FILLED else "white"
        )
        lines.append(Line2D([], [], color=INK, marker=_MARKERS[state], label=label, **style))
    lines.append(Line2D([], [], color=INK, linestyle=(0, (2, 1.5)), linewidth=0.9, label="control task"))
    lines.append(Line2D([], [], color=INK, linestyle=":", linewidth=0.8, label="most frequent class"))
    return lines
