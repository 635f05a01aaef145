"""The figure of seeds and differences draws the numbers of the tables."""

import pytest

from fairseq_reservoir.studies.report import ReportOptions, report
from fairseq_reservoir.studies.report.seed_differences import difference, scores
from tests.support.logs import generated, plain_run

pytest.importorskip("matplotlib", reason="matplotlib is not installed")
from fairseq_reservoir.studies.report import figures  # noqa: E402  which needs matplotlib
from fairseq_reservoir.studies.report.figures import _draw_differences  # noqa: E402

SCORES = {"dense": [30.0, 31.0, 32.0], "frozen": [27.0, 28.5, 30.0], "better": [33.0, 35.0], "lone": [29.0]}


def write(folder, arms, with_tests=False):
    references = [f"the {number} small red cats sat on the mat ." for number in range(40)]
    for layers, (arm, values) in enumerate(arms.items(), start=1):
        for seed, score in enumerate(values, start=1):
            plain_run(folder / f"{arm}-{seed}", [score - 5, score], [8, 8], seed=seed, layers=layers).write()
            if with_tests:
                translated = [line if n < score else line.replace("cats", "dogs") for n, line in enumerate(references)]
                generated(folder / f"{arm}-{seed}", references, translated)


def drawn(folder, **options):
    study = report(ReportOptions([folder / "runs"], folder / "out", baseline="dense", figures=False, **options))
    figure = _draw_differences(study, scores(study)[0])
    figure.draw_without_rendering()
    return figure


def rows_of(plot, marker):
    """Return the values that are drawn with a marker, by row."""
    lines = [line for line in plot.lines if line.get_marker() == marker]
    return {line.get_ydata()[0]: [float(x) for x in line.get_xdata()] for line in lines}


def test_a_dot_for_each_seed_the_mean_and_the_interval(tmp_path):
    """The best arm is on top. An arm with a single seed has no row."""
    write(tmp_path / "runs", SCORES)
    seeds, apart = drawn(tmp_path).axes
    assert [label.get_text() for label in seeds.get_yticklabels()] == ["better", "dense", "frozen"]
    assert rows_of(seeds, "o") == {0: [33.0, 35.0], 1: [30.0, 31.0, 32.0], 2: [27.0, 28.5, 30.0]}
    assert rows_of(seeds, "|") == {0: [34.0], 1: [31.0], 2: [28.5]}
    assert seeds.get_ylim() == (2.5, -0.5)  # downwards
    assert rows_of(apart, "o") == {0: [3.0], 2: [-2.5]}
    ends = [segment[:, 0] for bars in apart.collections for segment in bars.get_segments()]
    for (low, high), arm in zip(ends, ("better", "frozen"), strict=True):
        wanted = difference(SCORES[arm], SCORES["dense"])
        assert (low, high) == pytest.approx((wanted.value - wanted.interval, wanted.value + wanted.interval))
    assert apart.get_xlabel() == "difference\nbetter →"


def test_the_lowest_loss_is_on_top(tmp_path):
    write(tmp_path / "runs", SCORES)
    seeds, apart = drawn(tmp_path, metric="loss").axes
    means = [bar[0] for _, bar in sorted(rows_of(seeds, "|").items())]
    assert len(means) == 3 and means == sorted(means)
    assert (seeds.get_xlabel(), apart.get_xlabel()) == ("loss (bits)", "difference\n← better")


def test_a_long_name_leaves_room_for_both_panels(tmp_path):
    name = "an-arm-with-every-flag-that-it-differs-in-lr8e-3-dropout0.1"
    write(tmp_path / "runs", {"dense": [30.0, 31.0], name: [29.0, 30.5]})
    figure = drawn(tmp_path)
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert "".join(labels[1].split("\n")) == name and max(map(len, labels[1].split("\n"))) <= 22
    for plot in figure.axes:
        assert plot.get_window_extent().width > 0.25 * figure.get_window_extent().width
        assert figure.get_window_extent().contains(*plot.xaxis.label.get_window_extent().min)
        assert figure.get_window_extent().contains(*plot.xaxis.label.get_window_extent().max)


def test_legends_show_names_that_begin_with_an_underscore(tmp_path):
    """matplotlib leaves out such labels. The names are too long for the ends of curves."""
    arms = {f"_mask-of-a-name-of-many-letters{number}": values for number, values in enumerate(SCORES.values())}
    write(tmp_path / "runs", arms, with_tests=True)
    for i, folder in enumerate(sorted((tmp_path / "runs").iterdir())):
        (folder / "model.safetensors").write_bytes(b"x" * (1000 + 100 * i))
    study = report(ReportOptions([tmp_path / "runs"], tmp_path / "out", figures=False))
    names = {arm.name for arm in study.arms}
    assert len(names) == 4 and all(name.startswith("_") for name in names)
    wanted = {"equal time"} | names, {"no smaller file scores as high"} | names, names
    for draw, entries in zip(
        (figures._steps_or_speed, figures._bytes, lambda study: figures._convergence(study, study.axes[0])), wanted
    ):
        (legend,) = draw(study).legends
        assert {text.get_text() for text in legend.get_texts()} == entries


def test_a_figure_of_each_test_score_and_none_without_seeds(tmp_path, monkeypatch):
    # Saving takes a second for each figure. The report of test_report.py has saved ones.
    monkeypatch.setattr(figures, "_saved", lambda figure: dict.fromkeys(("png", "pdf", "svg"), b"<svg/>"))
    write(tmp_path / "runs", {arm: SCORES[arm] for arm in ("dense", "frozen")}, with_tests=True)
    for i, folder in enumerate(sorted((tmp_path / "runs").iterdir())):  # a run that was also scored as a language model
        (folder / "eval-lm.log").write_text(f"Loss (base 2): {3 + i / 10}, Perplexity: 1\n")
    report(ReportOptions([tmp_path / "runs"], tmp_path / "out", baseline="dense"))
    page = (tmp_path / "out" / "report.md").read_text()
    drawn = {
        "over_seeds": "BLEU (validation)",
        "over_seeds_bleu": "test sacreBLEU",
        "over_seeds_test_loss": "test loss (bits)",
    }
    assert {path.stem for path in (tmp_path / "out" / "figures").glob("over_seeds*")} == set(drawn)
    for name, label in drawn.items():
        assert {path.suffix for path in (tmp_path / "out" / "figures").glob(f"{name}.*")} == {".png", ".pdf"}
        caption = f"{label}: each seed, and difference from dense (95 % interval)"
        assert f"![{caption}](figures/{name}.png)" in page
    write(tmp_path / "few", {arm: SCORES[arm][:1] for arm in ("dense", "frozen")})
    report(ReportOptions([tmp_path / "few"], tmp_path / "out", baseline="dense"))
    assert list((tmp_path / "out" / "figures").glob("convergence_*"))
    assert not list((tmp_path / "out" / "figures").glob("over_seeds*"))


def test_differences_between_single_seeds_do_not_fill_the_figure(tmp_path):
    """The axis spans two points of BLEU, although the arms differ by 0.1."""
    for name, keep, score in (("a", 0.3, 30.0), ("b", 0.5, 30.1)):
        plain_run(tmp_path / "runs" / f"{name}-1", [score - 5, score], [8, 8], keep=keep).write()
    options = ReportOptions([tmp_path / "runs"], tmp_path / "out", against="keep_ratio", figures=False)
    study = report(options)
    low, high = figures._against(study, "keep_ratio").axes[0].get_ylim()
    assert low < 30.0 and high > 30.1 and high - low == pytest.approx(2.0)
    assert figures._of_one_seed(study).startswith("; one seed each")
