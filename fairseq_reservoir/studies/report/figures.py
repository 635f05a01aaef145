"""Figures of a report, drawn with matplotlib: PNG and PDF files, and SVG for the HTML page."""

import io
import math
import re
import textwrap
import warnings

from ..figure_style import COLOURS, GRID, INK, RC
from .against import points
from .arms import deviation, mean
from .configuration import is_number
from .curves import value_at
from .exports import front, sized
from .measures import Axis, Study, ratio
from .seed_differences import Score, scores

_STYLES, _MARKERS = ("-", "--", ":", "-."), "osD^vPX"
_OTHERS = "*x+1234"  # markers for the files of --point
# Names are written beside the curves if a figure has at most 12 arms with names of at most 22 characters. Otherwise it has a legend.
_LABELLED, _LONGEST = 12, 22
_LEGEND = 44  # longest line of a legend
_NAMED = "name: "  # prefix of every label, because matplotlib omits labels that begin with "_"; removed before drawing
_AXES = {"seconds": "training time", "updates": "updates", "tokens": "tokens", "flops": "FLOPs"}  # names in titles
# Smallest ranges of the y axis, about four times the difference between two seeds on small data: points of BLEU or per cent, and bits.
_LEAST_POINTS, _LEAST_BITS = 2.0, 0.1
# Name of the figure of each test score; None for a score without a figure.
_OF_TESTS = {"test sacreBLEU": "over_seeds_bleu", "test chrF": None, "test loss (bits)": "over_seeds_test_loss"}


def figures(study: Study) -> dict[str, tuple[str, dict[str, bytes]]]:
    """Draw the figures. Return a dictionary: name of a figure -> (caption, files). ``files`` maps png, pdf and svg to bytes."""
    import matplotlib

    drawn = {}
    with matplotlib.rc_context(RC), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # matplotlib warns if the font lacks a character of a folder's name
        metric, *tests = scores(study)
        for name, score in (("over_seeds", metric), *((_OF_TESTS[one.label], one) for one in tests)):
            if name and any(score.differences(study).values()):
                title = f"{score.label}: each seed, and difference from {study.baseline.name} (95 % interval)"
                drawn[name] = title, _saved(_draw_differences(study, score))
        for axis in study.axes:
            title = f"{study.metric.label} against {_AXES[axis.key]}"
            drawn[f"convergence_{axis.key}"] = title, _saved(_convergence(study, axis))
        if sum(ratio(study, arm, "to_target") is not None for arm in study.arms) > 1:
            drawn["steps_or_speed"] = (
                "Is the target reached in fewer steps, or with faster steps?",
                _saved(_steps_or_speed(study)),
            )
        if study.against:
            leaf = study.against.rpartition(".")[2]
            drawn["against"] = f"Score against {leaf}{_of_one_seed(study)}", _saved(_against(study, leaf))
        if len(sized(study)) > 1:
            drawn["bytes"] = f"Test score against the export's size{_of_one_seed(study)}", _saved(_bytes(study))
    return drawn


def _of_one_seed(study):
    return "" if any(arm.seed_count > 1 for arm in study.arms) else "; one seed each, so small differences may be noise"


def _widen(plot, least):
    """Let the y axis span at least ``least``, so that differences between two seeds do not fill the figure."""
    low, high = plot.get_ylim()
    missing = max(0.0, least - (high - low)) / 2
    plot.set_ylim(low - missing, high + missing)


def _canvas(height=2.9):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2, height), layout="constrained")
    return figure, figure.add_subplot()


def _colour(number):
    """Return the colour of the arm or series at this index."""
    return COLOURS[number % len(COLOURS)]


def _style(number):
    """Return the line style of the arm or series at this index. Line styles and markers change each time the colours repeat."""
    return _STYLES[number // len(COLOURS) % len(_STYLES)]


def _marker(number):
    return _MARKERS[number // len(COLOURS) % len(_MARKERS)]


def _draw_differences(study: Study, score: Score):
    """Draw one row for each arm that can be compared, with the best arm on top.

    A row shows a dot for each seed, a bar for the mean over seeds, and the difference from the baseline with a confidence interval.
    """
    from matplotlib.figure import Figure

    found = score.differences(study)
    shown = [arm for arm in study.arms if arm is study.baseline or found[arm.name]]
    shown.sort(key=lambda arm: mean(score.values(arm)), reverse=score.higher)
    names = ["\n".join(textwrap.wrap(_label(arm), _LONGEST)) for arm in shown]
    lines = sum(name.count("\n") + 1 for name in names)
    figure = Figure(figsize=(4.2, 0.75 + 0.2 * max(lines, 6)), layout="constrained")
    seeds, apart = figure.subplots(1, 2, sharey=True)
    for row, arm in enumerate(shown):
        colour, values = _colour(study.arms.index(arm)), score.values(arm)
        seeds.plot(values, [row] * len(values), "o", color=colour, markersize=4, alpha=0.6, markeredgewidth=0)
        seeds.plot([mean(values)], [row], "|", color=colour, markersize=11, markeredgewidth=1.6)
        if one := found.get(arm.name):
            apart.errorbar(
                [one.value], [row], xerr=[one.interval or 0.0], fmt="o", color=colour, markersize=4, capsize=2
            )
    apart.axvline(0, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
    seeds.set_yticks(range(len(shown)), names)
    seeds.set_ylim(len(shown) - 0.5, -0.5)
    apart.tick_params(left=False)
    seeds.set_xlabel(textwrap.fill(score.label, 20))
    apart.set_xlabel("difference\n" + ("better →" if score.higher else "← better"))
    for plot in (seeds, apart):
        plot.tick_params(labelsize=8)
        plot.grid(axis="y", visible=False)
        plot.locator_params(axis="x", nbins=4)
    return figure


def _convergence(study: Study, axis: Axis):
    direct = len(study.arms) <= _LABELLED and max(len(_label(arm)) for arm in study.arms) <= _LONGEST
    figure, plot = _canvas(2.9 + (0.0 if direct else _legend_height(_arm_names(study))))
    last = max(curve[-1][0] for one in study.measured.values() if (curve := one.curves.get(axis.key)))
    unit, scale = _unit(axis, last)
    ends = []
    for number, arm in enumerate(study.arms):
        curves = [one.curves[axis.key] for one in study.measured_runs(arm) if axis.key in one.curves]
        if not curves:
            continue
        xs, middle, spreads = _mean_curve(curves)
        xs = [x / scale for x in xs]
        colour, marker = _colour(number), "o" if len(xs) < 30 else None
        plot.plot(
            xs, middle, label=_NAMED + _label(arm), marker=marker, markersize=3, color=colour, linestyle=_style(number)
        )
        if spreads:
            low, high = ([m + sign * s for m, s in zip(middle, spreads)] for sign in (-1, 1))
            plot.fill_between(xs, low, high, color=colour, alpha=0.18, linewidth=0)
        for run in arm.runs:
            if run.interrupted and (curve := study.measured[run.name].curves.get(axis.key)):
                plot.plot([curve[-1][0] / scale], [curve[-1][1]], "x", color=colour, markersize=6)
        ends.append((middle[-1], xs[-1], _label(arm), colour))
    plot.set_xlabel(unit)
    plot.set_ylabel(study.metric.label)
    if direct:
        _label_ends(plot, ends)
    else:
        _legend(figure, plot, _arm_names(study))
    return figure


def _label(arm):
    return arm.name + " (interrupted)" * arm.interrupted


def _mean_curve(curves):
    """Return three lists: x values, the means of the curves at these x values, and the standard deviations.

    The x values are those of all validations in the range that all curves cover. For a single curve, the list of deviations is empty.
    """
    first, last = max(curve[0][0] for curve in curves), min(curve[-1][0] for curve in curves)
    xs = sorted({x for curve in curves for x, _ in curve if first <= x <= last}) or [last]
    values = [[value_at(curve, x) for curve in curves] for x in xs]
    return xs, [mean(at) for at in values], [deviation(at) for at in values] if len(curves) > 1 else []


def _unit(axis, last):
    if axis.key == "seconds":
        unit, scale = ("seconds", 1) if last < 180 else ("minutes", 60) if last < 3 * 3600 else ("hours", 3600)
        return f"{unit} of training", scale
    if axis.key == "flops":
        return f"{axis.unit} of training", axis.scale
    name = {"updates": "updates", "tokens": "target tokens"}[axis.key]
    return (f"million {name}", 1e6) if last >= 2e6 else (f"thousand {name}", 1e3) if last >= 2e4 else (name, 1)


def _label_ends(plot, ends):
    """Write the names of the curves to their right. Connect each name to its curve by a thin line. Move overlapping names apart."""
    low, high = plot.get_ylim()
    step = (high - low) / 17
    ends.sort()
    heights = []
    for end, *_ in ends:
        heights.append(max(end, heights[-1] + step) if heights else end)
    excess = max(0.0, heights[-1] - high) if heights else 0.0
    for place in reversed(range(len(heights))):
        ceiling = heights[place + 1] - step if place + 1 < len(heights) else high
        heights[place] = min(heights[place], ceiling) if excess else heights[place]
    left, right = plot.get_xlim()
    beside = right + 0.05 * (right - left)
    for (end, x, label, colour), height in zip(ends, heights):
        plot.plot([x, beside], [end, height], color=colour, linewidth=0.7, alpha=0.7, clip_on=False)
        plot.text(beside, height, f" {label}", va="center", fontsize=8)
    plot.set_xlim(left, right)
    plot.set_ylim(low, high)


def _columns(names):
    return 2 if max(map(len, names)) <= 26 and len(names) > 3 else 1


def _legend_height(names, others=0):
    """Return the height in inches of a legend with these ``names``. ``others`` is the number of additional lines."""
    lines = sum(len(textwrap.wrap(name, _LEGEND)) for name in names) + others
    return 0.17 * math.ceil(lines / _columns(names))


def _legend(figure, plot, names):
    """Draw the legend, then remove the prefix ``_NAMED`` from its labels. Long labels have several lines."""
    handles, labels = plot.get_legend_handles_labels()
    legend = figure.legend(handles, labels, loc="outside lower left", ncols=_columns(names), handlelength=2.4)
    for text, label in zip(legend.get_texts(), labels, strict=True):
        text.set_text("\n".join(textwrap.wrap(label.removeprefix(_NAMED), _LEGEND)))


def _arm_names(study):
    return [arm.name for arm in study.arms]


def _steps_or_speed(study):
    figure, plot = _canvas(3.0 + _legend_height(_arm_names(study), others=1))
    found = [(number, arm, ratio(study, arm, "to_target")) for number, arm in enumerate(study.arms)]
    found = [(number, arm, pair) for number, arm, pair in found if pair]
    for number, arm, (updates, speed, _) in found:
        style = dict(color=_colour(number), markersize=7, label=_NAMED + arm.name, linestyle="none")
        plot.plot([updates], [speed], _marker(number), **style)
    plot.set_xscale("log")
    plot.set_yscale("log")
    reach = max(1.25, *(max(ratio, 1 / ratio) * 1.15 for _, _, pair in found for ratio in pair[:2]))
    plot.set_xlim(1 / reach, reach)
    plot.set_ylim(1 / reach, reach)
    plot.plot(
        [1 / reach, reach],
        [reach, 1 / reach],
        color=INK,
        linewidth=0.8,
        linestyle=(0, (4, 3)),
        label=f"{_NAMED}equal time",
    )
    ticks = [
        tick
        for tick in (0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 3, 5, 10)
        if 1 / reach <= tick <= reach
    ]
    ticks = [tick for tick in ticks if reach < 1.6 or tick not in (0.8, 0.9, 1.1, 1.25)]
    for one in (plot.xaxis, plot.yaxis):
        one.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
        one.set_ticks([], minor=True)
    plot.set_xlabel(f"updates, relative to {study.baseline.name}")
    plot.set_ylabel("seconds per update, relative")
    _legend(figure, plot, _arm_names(study))
    return figure


def _against(study, leaf):
    placed = points(study)
    tested = all(point.test.mean is not None for point in placed)
    numbers = all(is_number(point.value) for point in placed)
    names = list(dict.fromkeys(str(point.value) for point in placed))
    series = list(dict.fromkeys(point.series for point in placed))
    figure, plot = _canvas(2.9 + (_legend_height(series) if len(series) > 1 else 0.0))
    for number, name in enumerate(series):
        mine = [point for point in placed if point.series == name]
        xs = [point.value if numbers else names.index(str(point.value)) for point in mine]
        scores = [point.test if tested else point.best for point in mine]
        plot.errorbar(
            xs, [score.mean for score in scores], [score.deviation or 0 for score in scores], marker="o", markersize=4, capsize=2,
            color=_colour(number), linestyle=_style(number), label=_NAMED + name,
        )  # fmt: skip
    if not numbers:
        long = max(map(len, names)) > 8
        plot.set_xticks(range(len(names)), names, rotation=30 * long, ha="right" if long else "center")
    _widen(plot, _LEAST_POINTS if tested or study.metric.higher else _LEAST_BITS)
    plot.set_xlabel(leaf)
    plot.set_ylabel("test sacreBLEU" if tested else f"best {study.metric.label}")
    if len(series) > 1:
        _legend(figure, plot, series)
    return figure


def _bytes(study):
    placed = sized(study)
    names = [one.name for one in placed]
    figure, plot = _canvas(2.9 + _legend_height(names, others=1))
    best = front(placed)
    if len(best) > 1:
        plot.plot(
            [one.bytes / 1e6 for one in best], [one.test.mean for one in best], drawstyle="steps-post",
            color=INK, linewidth=0.8, linestyle=(0, (4, 3)), label=f"{_NAMED}no smaller file scores as high",
        )  # fmt: skip
    for one in placed:
        plot.errorbar(
            [one.bytes / 1e6], [one.test.mean], [one.test.deviation or 0], capsize=2, markersize=6, linestyle="none",
            **_drawn_as(study, one),
        )  # fmt: skip
    plot.set_xscale("log")
    low, high = placed[0].bytes / 1.25e6, placed[-1].bytes * 1.25 / 1e6
    marks = _marks(low, high)
    plot.xaxis.set_ticks(marks, [f"{mark:g}" for mark in marks])
    plot.xaxis.set_ticks([], minor=True)
    plot.set_xlim(low, high)
    _widen(plot, _LEAST_POINTS)
    plot.set_xlabel("size of the file, MB" if study.points else "packed export, MB")
    plot.set_ylabel("test sacreBLEU")
    _legend(figure, plot, names)
    return figure


def _drawn_as(study, one):
    if one.arm is None:
        place = [point.name for point in study.points].index(one.name)
        return dict(marker=_OTHERS[place % len(_OTHERS)], color=INK, label=_NAMED + one.name, zorder=3)
    number = study.arms.index(one.arm)
    return dict(marker=_marker(number), color=_colour(number), label=_NAMED + _label(one.arm))


def _marks(low, high):
    """Return two to eight round numbers for a logarithmic axis from ``low`` to ``high``, which is at least 1.5 times ``low``."""
    for steps in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), [tenth / 10 for tenth in range(10, 100)]):
        marks = [float(f"{step}e{power}") for power in range(-9, 9) for step in steps]
        marks = [mark for mark in marks if low <= mark <= high]
        if len(marks) > 2:
            break
    return marks[:: math.ceil(len(marks) / 8)]


def _saved(figure):
    # Dates and versions are omitted, so that the same runs always give the same files.
    formats = {"png": dict(dpi=200, metadata={"Software": None}), "pdf": dict(metadata={"CreationDate": None})}
    formats["svg"] = dict(transparent=True)
    saved = {}
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # do not compute the layout again for each format
    for name, options in formats.items():
        out = io.BytesIO()
        figure.savefig(out, format=name, **options)
        saved[name] = out.getvalue()
    saved["svg"] = _for_the_page(saved["svg"].decode()).encode()
    return saved


def _for_the_page(svg: str) -> str:
    """Return the ``svg`` element, changed so that it scales with the page and uses the page's colours."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg [^>]*?)\bwidth="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg [^>]*?)\bheight="[^"]*"', r"\1", svg, count=1)
    svg = svg.replace("*{stroke-linejoin", "svg *{stroke-linejoin")
    return svg.replace(INK, "currentColor").replace(GRID, "var(--grid)")
