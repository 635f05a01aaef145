"""The figure of probes marks each layer by its state, and draws the numbers of the table."""

from types import SimpleNamespace

import pytest

from fairseq_reservoir.studies.probe.classifier import Estimate, Result
from fairseq_reservoir.studies.probe.properties import Property
from fairseq_reservoir.studies.probe.results import Probed

figures = pytest.importorskip("matplotlib.figure", reason="matplotlib is not installed")
from fairseq_reservoir.studies.probe import figure  # noqa: E402  which needs matplotlib


def probed(name, states, values):
    """Results of one property. A layer has accuracy ``value``, control 0.25, and an interval of 0.02 to each side."""
    depths = [
        SimpleNamespace(number=number, kind="", state=state, shown_state=state) for number, state in enumerate(states)
    ]
    results = [
        None
        if value is None
        else Result(*(Estimate(v, v - 0.02, v + 0.02) for v in (value, 0.25, value - 0.25)), (1, 1))
        for value in values
    ]
    return Probed(name, name, "encoder", depths, None, [Property("token", "", None, None, 4, 0.3)], {"token": results})


def test_markers_and_values():
    each = probed("a", ["trained", "frozen", "left out", "masked"], [0.9, 0.8, None, 0.7])
    plot = figures.Figure().add_subplot()
    figure._draw_property(plot, [each], "token")
    points = {
        line.get_marker(): (float(line.get_xdata()[0]), round(float(line.get_ydata()[0]), 6))
        for line in plot.lines
        if line.get_marker() in figure._MARKERS.values()
    }
    # A layer that was left out passes on the outputs of the layer below.
    assert points == {"o": (0, 90), "s": (1, 80), "x": (2, 80), "^": (3, 70)}
    drawn = [[round(float(y), 6) for y in line.get_ydata()] for line in plot.lines]
    assert [90, 80, 80, 70] in drawn and [25, 25, 25, 25] in drawn and [30, 30] in drawn


def test_equal_results_give_equal_files(tmp_path):
    several = [probed(f"{'folder/' * 9}{i}", ["trained", "frozen"], [0.9, 0.8]) for i in range(3)]
    for suffix in figure.SUFFIXES:
        files = [tmp_path / f"{number}{suffix}" for number in range(2)]
        for file in files:
            figure.draw(several, str(file), suffix)
        assert files[0].read_bytes() == files[1].read_bytes()
    text = (tmp_path / "0.svg").read_text()
    assert "frozen (reservoir)" in text and "masked" not in text and ".../folder/folder/folder/1" in text
