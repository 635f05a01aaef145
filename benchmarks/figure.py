"""Figures of the results of ``pairs.measure``: ratios with intervals, ratios of FLOPs and peak memory. Needs matplotlib."""

import argparse
from importlib.util import find_spec
from pathlib import Path

SUFFIXES = (".png", ".pdf", ".svg")


def figure_path(text):
    """Parse a path to which ``draw`` can write; a type for argparse.

    Raises:
        ArgumentTypeError: matplotlib is not installed, or does not support the format.
    """
    if Path(text).suffix not in SUFFIXES:
        raise argparse.ArgumentTypeError(f"{text!r}: the name must end in {', '.join(SUFFIXES)}")
    if find_spec("matplotlib") is None:
        raise argparse.ArgumentTypeError(f"{text!r}: needs matplotlib; pip install matplotlib")
    return Path(text)


def add_figure(parser):
    parser.add_argument(
        "--figure", type=figure_path, metavar="FILE", help="also draw the table (.png, .pdf, .svg); needs matplotlib"
    )


def draw(path, tables, caption):
    """Draw a row of two panels for each table: time and memory.

    Args:
        path: the file to write.
        tables: title -> results of ``pairs.measure`` with ``flop_ratio`` and ``peak_mib``, the baseline first. Absent arms are
            skipped.
        caption: line below the panels.
    """
    from matplotlib.figure import Figure  # without pyplot, which may need a display

    tables = {title: [arm for arm in found if "absent" not in arm] for title, found in tables.items()}
    heights = [max(1, len(found)) for found in tables.values()]
    figure = Figure(figsize=(11, 1.5 + 0.32 * sum(heights) + 0.7 * len(tables)), layout="constrained")
    rows = figure.subplots(len(tables), 2, squeeze=False, sharey="row", height_ratios=heights)
    for (title, found), (times, memory) in zip(tables.items(), rows):
        _times(times, found)
        _memory(memory, found)
        times.set_title(title, loc="left")
    figure.supxlabel(caption, fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def _times(axes, found):
    places, arms = range(len(found)), [arm["arm"] for arm in found]
    ratios = [arm.get("ratio", 1) for arm in found]
    spread = [
        [r - arm.get("low", r) for r, arm in zip(ratios, found)],
        [arm.get("high", r) - r for r, arm in zip(ratios, found)],
    ]
    axes.errorbar(ratios, places, xerr=spread, fmt="o", color="C0", capsize=3, label="measured, 95 % interval")
    axes.plot(
        [arm["flop_ratio"] for arm in found], places, "d", color="C1", markerfacecolor="none", label="ratio of FLOPs"
    )
    axes.axvline(1, color="0.7", linewidth=1, zorder=0)
    axes.set_yticks(places, arms)
    axes.invert_yaxis()
    axes.set_xlabel(f"time of a step / {arms[0] if arms else 'nothing'}")
    axes.legend(fontsize="small")


def _memory(axes, found):
    axes.barh(range(len(found)), [arm["peak_mib"] for arm in found], color="C2")
    axes.set_xlabel("peak memory, MiB")
