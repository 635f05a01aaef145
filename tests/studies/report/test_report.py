"""A report of twelve mini runs. Other code recomputes every number of its tables from the logs."""

import csv
import json
import os
import re
import resource
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
from sacrebleu.metrics import BLEU, CHRF

from fairseq_reservoir.cli import main
from fairseq_reservoir.errors import InputError
from fairseq_reservoir.studies.report import ReportOptions, report
from tests.support.logs import Writer, plain_run
from tests.support.runs_of_a_study import ODD, REFERENCES, SCORES, train_a_run, write_runs

PLAIN = ["dense", "keep30", "keep70"]


@pytest.fixture(scope="module")
def study(tmp_path_factory, toy_data):
    """The folders of the runs and of their report."""
    from importlib import import_module
    from unittest.mock import patch

    from tests.support.commands import USER_DIR

    def run_fairseq(command, *words):
        arguments = [f"fairseq-{command}", *map(str, words), "--user-dir", USER_DIR]
        with patch.object(sys, "argv", arguments):
            import_module(f"fairseq_cli.{command}").cli_main()

    folder = tmp_path_factory.mktemp("study")
    write_runs(folder / "runs")
    train_a_run(folder / "runs" / "real-3", toy_data, run_fairseq)
    command = [Path(sys.executable).parent / "fairseq-reservoir", "report", folder / "runs", "--out", folder / "out"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = subprocess.run(
        [*command, "--baseline", "dense", "--against", "keep_ratio"],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPROFILEIMPORTTIME": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    *answered, last = ended.stdout.splitlines() or [""]
    assert last.startswith(f"{folder}/out/index.html is the page: 5 arms, 12 runs, 0 left out. "), ended.stderr
    figures = len(list((folder / "out").glob("figures/*.png")))
    assert last.endswith(f" and figures/ ({figures} figures as PNG and PDF).") and figures > 3
    assert [line.split("?")[0] for line in answered] == [
        "Which arm is best", "By how much", "Is that significant", "How long does it train", "How large is it", "How many seeds",
    ]  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # On a busy machine it took 11 s of CPU time. Only an unbounded computation reaches a minute.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 60
    imported = re.findall(r"^import time: .*\| +(\S+)$", ended.stderr, flags=re.MULTILINE)
    assert "matplotlib" in imported and not {"torch", "fairseq", "omegaconf"} & set(imported)
    return folder / "runs", folder / "out"


def read_csv(out, name):
    """Return the rows by arm or run, each a dictionary of its columns, with numbers as floats."""

    def number(text):
        try:
            return float(text)
        except ValueError:
            return text

    with open(out / "tables" / f"{name}.csv", newline="", encoding="utf-8") as file:
        return {line[next(iter(line))]: {k: number(v) for k, v in line.items()} for line in csv.DictReader(file)}


def validations(log):
    """Return (update, BLEU, seconds, tokens) of each epoch from the end-of-epoch records of an uninterrupted run."""
    text, rows, seconds, tokens, last = log.read_text(), [], 0.0, 0.0, 0
    if '{"epoch"' in text:
        records = [json.loads(line) for line in re.findall(r'\{"epoch".*', text)]
        valid = {int(r["valid_num_updates"]): float(r["valid_bleu"]) for r in records if "valid_bleu" in r}
        keys = ("train_num_updates", "train_train_wall", "train_wpb")
        epochs = [tuple(float(record[key]) for key in keys) for record in records if "train_wpb" in record]
    else:
        pattern = r"valid on.* bleu (\S+) .*num_updates (\d+)"
        valid = {int(update): float(score) for score, update in re.findall(pattern, text)}
        found = re.findall(r"\| train \| epoch.* wpb (\S+) .*train_wall (\S+) .*num_updates (\d+)", text)
        epochs = [(int(update), float(wall), float(wpb)) for wpb, wall, update in found]
    for update, wall, wpb in epochs:
        seconds, tokens, last = seconds + wall, tokens + wpb * (update - last), update
        rows.append((update, valid[update], seconds, tokens))
    return rows


def area(points, horizon):
    """Integrate from (0, 0) in 10,000 steps. The last value is held."""
    total, steps = 0.0, 10_000
    points = [(0.0, 0.0), *points, (float("inf"), points[-1][1])]
    place, width = 0, horizon / steps
    for step in range(steps):
        x = (step + 0.5) * width
        while points[place + 1][0] < x:
            place += 1
        (x0, y0), (x1, y1) = points[place], points[place + 1]
        total += width * (y0 if x1 == float("inf") else y0 + (y1 - y0) * (x - x0) / (x1 - x0))
    return total


def curves(runs):
    """Return the rows of ``validations`` of the plain arms by seed."""
    return {arm: [validations(runs / f"{arm}-{seed}" / "train.log") for seed in (1, 2, 3)] for arm in PLAIN}


def same(row, column, values, scale=1.0):
    values = [value / scale for value in values]
    assert row[column] == pytest.approx(statistics.mean(values), rel=1e-6)
    assert row[f"{column}, deviation"] == pytest.approx(statistics.stdev(values), rel=1e-6, abs=1e-12)


def first_best(rows):
    return max(rows, key=lambda row: row[1])


def seconds_to(score, rows):
    """Return the seconds at which a curve from (0, 0), linear between validations, first reaches ``score``."""
    points = [(0.0, 0.0), *((row[2], row[1]) for row in rows)]
    ahead = next(place for place, (_, reached) in enumerate(points) if reached >= score)
    (x0, y0), (x1, y1) = points[ahead - 1], points[ahead]
    return x0 + (x1 - x0) * (score - y0) / (y1 - y0)


def test_best_scores_and_their_cost(study):
    runs, out = study
    table = read_csv(out, "to_best")
    for arm, seeds in curves(runs).items():
        best = [first_best(rows) for rows in seeds]
        assert [row[1] for row in best] == [max(SCORES[arm, seed][0]) for seed in (1, 2, 3)]
        same(table[arm], "best BLEU (validation)", [row[1] for row in best])
        same(table[arm], "updates", [row[0] for row in best])
        same(table[arm], "epochs", [row[0] / 20 for row in best])
        same(table[arm], "minutes", [row[2] for row in best], 60)
        same(table[arm], "seconds per update", [row[2] / row[0] for row in best])
        for share in (95, 99):
            same(
                table[arm],
                f"minutes to {share}%",
                [seconds_to(share / 100 * max(r[1] for r in rows), rows) for rows in seeds],
                60,
            )
        mflop = {"dense": 7.48, "keep30": 5.0, "keep70": 5.0}[
            arm
        ]  # per target token, from the slot tables of these logs
        same(table[arm], "GFLOP", [row[3] * mflop * 1e6 for row in best], 1e9)


def test_the_target_and_the_two_ratios(study):
    runs, out = study
    real = [row[1] for row in validations(runs / "real-3" / "train.log")]
    # The worst best score of the finished runs.
    target = min(*(max(scores) for scores, _ in SCORES.values()), 20.0, max(real))
    title = re.search(r"To the common target, BLEU \\?\(validation\\?\) (\S+)", (out / "report.md").read_text())
    assert float(title[1]) == pytest.approx(target, rel=1e-5)

    def reached(rows, column):
        previous = (0, 0.0, 0.0, 0.0)
        for row in rows:
            if row[1] >= target:
                return previous[column] + (row[column] - previous[column]) * (target - previous[1]) / (
                    row[1] - previous[1]
                )
            previous = row

    table, ratios = read_csv(out, "to_target"), read_csv(out, "steps_or_speed")
    means = {}
    for arm, seeds in curves(runs).items():
        updates, seconds = ([reached(rows, column) for rows in seeds] for column in (0, 2))
        same(table[arm], "updates", updates)
        same(table[arm], "minutes", seconds, 60)
        mflop = {"dense": 7.48, "keep30": 5.0, "keep70": 5.0}[arm]
        same(table[arm], "GFLOP", [reached(rows, 3) * mflop * 1e6 for rows in seeds], 1e9)
        means[arm] = statistics.mean(updates), statistics.mean(seconds)
    for arm, (updates, seconds) in means.items():
        row, base = ratios[arm], means["dense"]
        assert row["to the target: updates ×"] == pytest.approx(updates / base[0])
        assert row["to the target: time ×"] == pytest.approx(seconds / base[1])
        assert row["to the target: seconds per update ×"] == pytest.approx(
            row["to the target: time ×"] / row["to the target: updates ×"]
        )
    assert ratios["dense"]["to the best score: time ×"] == 1


def test_aucc_over_four_axes(study):
    runs, out = study
    table, found = read_csv(out, "aucc"), curves(runs)
    mflop = {"dense": 7.48, "keep30": 5.0, "keep70": 5.0}  # forward and, in these logs, as much backward
    real = validations(runs / "real-3" / "train.log")
    log = (runs / "real-3" / "train.log").read_text()
    ours = sum(float(re.search(what, log, re.MULTILINE)[1]) for what in (r"^total .* (\S+)$", r"^backward (\S+) MFLOP"))
    best = {arm: [first_best(rows) for rows in seeds] for arm, seeds in found.items()} | {"real": [first_best(real)]}
    best["odd"] = [(40, 20.0, 24.0, 4000.0)]  # 8 s, 4 s lost, 12 s
    axes = {
        "over minutes: AUCC": (60, lambda arm, row: row[2]),
        "over thousand updates: AUCC": (1e3, lambda arm, row: row[0]),
        "over million tokens: AUCC": (1e6, lambda arm, row: row[3]),
        "over GFLOP: AUCC": (1e9, lambda arm, row: row[3] * (mflop | {"real": ours, "odd": 0})[arm] * 1e6),
    }
    for column, (scale, cost) in axes.items():
        horizon = max(cost(arm, row) for arm, rows in best.items() for row in rows)
        for arm, seeds in found.items():
            values = [area([(cost(arm, row), row[1]) for row in rows], horizon) / scale for rows in seeds]
            assert table[arm][column] == pytest.approx(statistics.mean(values), rel=1e-6)
            assert table[arm][f"{column}, deviation"] == pytest.approx(statistics.stdev(values), rel=1e-4)
    largest = max(table[arm]["over minutes: AUCC"] for arm in table)
    assert table["keep30"]["over minutes: normalised"] == pytest.approx(table["keep30"]["over minutes: AUCC"] / largest)
    assert table[ODD]["over GFLOP: AUCC"] == ""  # no slot table in its log


@pytest.mark.parametrize("horizon", [9.0, 1000.0])  # seconds: before the last validation, and after it
def test_aucc_up_to_a_given_horizon(study, tmp_path, horizon):
    runs, default = study
    main(["report", str(runs), "--out", str(tmp_path / "out"), "--horizon", str(horizon)])
    given, before = read_csv(tmp_path / "out", "aucc"), read_csv(default, "aucc")
    for arm, seeds in curves(runs).items():
        values = [area([(row[2], row[1]) for row in rows], horizon) / 60 for rows in seeds]
        assert given[arm]["over minutes: AUCC"] == pytest.approx(statistics.mean(values), rel=1e-4)
        assert given[arm]["over minutes: AUCC"] != before[arm]["over minutes: AUCC"]
        assert given[arm]["over thousand updates: AUCC"] == before[arm]["over thousand updates: AUCC"]


def test_sacrebleu_from_the_translations(study):
    runs, out = study
    table, bleu, words = read_csv(out, "results"), BLEU(), BLEU(tokenize="none", smooth_method="none", force=True)
    scores, tokenised, chrf = {}, {}, {}
    for arm in PLAIN:
        for seed in (1, 2, 3):
            lines = (runs / f"{arm}-{seed}" / "generate.log").read_text().splitlines()
            hypotheses = dict((line.split("\t")[0][2:], line.split("\t")[2]) for line in lines if line.startswith("D-"))
            references = dict((line.split("\t")[0][2:], line.split("\t")[1]) for line in lines if line.startswith("T-"))
            score = bleu.corpus_score([hypotheses[n] for n in hypotheses], [[references[n] for n in hypotheses]]).score
            scores.setdefault(arm, []).append(score)
            score = (
                CHRF().corpus_score([hypotheses[n] for n in hypotheses], [[references[n] for n in hypotheses]]).score
            )
            chrf.setdefault(arm, []).append(score)
            score = words.corpus_score([hypotheses[n] for n in hypotheses], [[references[n] for n in hypotheses]]).score
            tokenised.setdefault(arm, []).append(score)
        same(table[arm], "test sacreBLEU", scores[arm])
        same(table[arm], "test chrF", chrf[arm])
        same(table[arm], "tokenised BLEU", tokenised[arm])
    assert f"tok:13a|smooth:exp|version:{sacrebleu.__version__}" in (out / "index.html").read_text()
    with open(out / "tables" / "bootstrap.csv", newline="") as file:
        pairs = list(csv.DictReader(file))
    assert [(row["arm"], row["seed"]) for row in pairs] == [(arm, seed) for arm in PLAIN[1:] for seed in "123"]
    samples = np.random.default_rng(12345).choice(len(REFERENCES), (1000, len(REFERENCES)))
    for row in pairs:
        seed = int(row["seed"]) - 1
        assert float(row["sacreBLEU"]) == pytest.approx(scores[row["arm"]][seed])
        assert float(row["difference"]) == pytest.approx(scores[row["arm"]][seed] - scores["dense"][seed])
        theirs, base = (resampled(runs / f"{arm}-{seed + 1}", samples) for arm in (row["arm"], "dense"))
        apart = abs(theirs - base)
        by_chance = sum(apart - apart.mean() > abs(float(row["difference"])))
        assert float(row["p"]) == pytest.approx((by_chance + 1) / 1001)
        inner = sorted(theirs)[25:-25]  # 95 % of 1,000
        assert float(row["95 % ±"]) == pytest.approx((inner[-1] - inner[0]) / 2)


def resampled(run, samples):
    """Compute BLEU of samples of a run's sentences. Translations are as long as references here, and n-grams of each order match."""
    text = (run / "generate.log").read_text()
    pairs = sorted((int(n), line.split()) for n, line in re.findall(r"^T-(\d+)\t(.*)", text, flags=re.MULTILINE))
    found = dict(re.findall(r"^D-(\d+)\t.*\t(.*)", text, flags=re.MULTILINE))
    counts = []
    for number, reference in pairs:
        ours = found[str(number)].split()
        assert len(ours) == len(reference)
        grams = [[Counter(zip(*(words[k:] for k in range(n)))) for words in (ours, reference)] for n in (1, 2, 3, 4)]
        counts.append([((left & right).total(), left.total()) for left, right in grams])
    right, total = np.array(counts)[samples].sum(1).transpose(2, 0, 1)
    return 100 * np.exp(np.log(right / total).mean(1))


def test_sizes_and_the_flag(study):
    runs, out = study
    sizes, against = read_csv(out, "sizes"), read_csv(out, "against")
    columns = ("parameters: all", "parameters: trained", "bytes: checkpoint_best.pt", "bytes: packed export")
    assert [sizes["dense"][column] for column in columns] == [1879680, 1417344, 1234, 567]
    assert sizes["real"]["bytes: checkpoint_best.pt"] == (runs / "real-3" / "checkpoint_best.pt").stat().st_size
    assert [against[arm]["mask_keep_ratio"] for arm in ("keep30", "keep70", "dense")] == [0.3, 0.7, 1.0]
    assert {against[arm]["series"] for arm in ("keep30", "keep70", "dense")} == {"dense"} and against["real"][
        "series"
    ] == "real"


def test_interrupted_resumed_and_missing_runs_are_shown_as_such(study):
    runs, out = study
    rows = read_csv(out, "runs")
    resumed = rows[f"{ODD}-1"]
    assert (resumed["resumes"], resumed["updates: lost"]) == (1, 10)
    assert (resumed["minutes: lost"] * 60, resumed["minutes: training"] * 60) == (4, 24)
    assert (resumed["minutes: in all"] * 60, resumed["state"], rows[f"{ODD}-2"]["state"]) == (
        14 + 13,
        "finished",
        "interrupted",
    )
    # Only the 20 of the finished run counts, not the 5.
    assert read_csv(out, "to_best")[ODD]["best BLEU (validation)"] == 20
    text = (out / "report.md").read_text()
    for line in (
        "**Unfinished runs:** odd & \\<b\\>name\\_50%, seed 2: interrupted, not in the means",
        "**Resumed runs:** odd & \\<b\\>name\\_50%, seed 1 (once).",
        "* Seed 3 is missing: odd & \\<b\\>name\\_50% (1 of 5 arms).",
        "* Seeds 1 and 2 are missing: real (1 of 5 arms).",
    ):
        assert line in text


def test_a_real_run_is_read_as_fairseq_wrote_it(study):
    runs, out = study
    rows = validations(runs / "real-3" / "train.log")
    real = read_csv(out, "runs")["real-3"]
    assert (real["state"], real["updates: all"], real["validations"]) == ("finished", rows[-1][0], 3)
    assert real["best BLEU (validation)"] == max(row[1] for row in rows)
    said = re.findall(r"BLEU4 = ([\d.]+)", (runs / "real-3" / "generate.log").read_text())
    assert read_csv(out, "results")["real"]["tokenised BLEU"] == pytest.approx(float(said[-1]), abs=0.0051)


def test_the_same_runs_give_the_same_files_and_old_ones_go(study, tmp_path):
    runs, out = study
    report(ReportOptions([runs / "dense-1"], tmp_path / "out", against="encoder_layers", figures=False))
    report(ReportOptions([runs], tmp_path / "out", baseline="dense", against="keep_ratio"))
    files = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert files == {
        str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()
    }
    assert [name for name in files if (out / name).read_bytes() != (tmp_path / "out" / name).read_bytes()] == []
    report(ReportOptions([runs / "dense-1"], tmp_path / "out", figures=False))
    assert not list((tmp_path / "out").glob("figures/*")) and not (tmp_path / "out" / "tables" / "against.csv").exists()


def test_a_folder_with_other_things_is_left_alone(study, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="--out .*: contains files that do not belong to a report"):
        report(ReportOptions([study[0]], tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"metric": "wer"}, "--metric wer: no validation of these runs has it; choose from bleu, loss"),
        ({"baseline": "nobody"}, "--baseline nobody: no arm has this name; choose from dense, keep30"),
        ({"against": "colour"}, "--against colour: the configurations of the runs do not have this key"),
        ({"horizon": -1.0}, "--horizon -1: must be a positive number of seconds"),
        ({"references": "/nowhere/test.de"}, "--references /nowhere/test.de: cannot be read"),
        ({"references": "/dev/null"}, "--references /dev/null: has no text; give a file with one reference per line"),
    ],
)
def test_errors_come_before_anything_is_written(study, tmp_path, options, message):
    runs = [study[0] / name for name in ("dense-1", "keep30-1")]
    with pytest.raises(InputError) as error:
        report(ReportOptions(runs, tmp_path / "out", **options))
    assert str(error.value).startswith(message) and "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_runs_without_a_validation(tmp_path, capsys):
    Writer(tmp_path / "runs" / "early-1", layers=2).start().inner(5, 2, 100, 2).write()
    with pytest.raises(SystemExit, match="error: RUNS .*early-1/train.log: no log has a finished validation"):
        main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "out")])
    plain_run(tmp_path / "runs" / "late-1", [10, 20], [4, 4]).write()
    main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "out"), "--no-figures"])
    assert "1 arm, 1 run, 1 left out" in capsys.readouterr().out
    assert read_csv(tmp_path / "out", "runs")["early-1"]["state"] == "no validation yet"


def test_a_run_of_a_sweep_that_failed_at_once_is_named(tmp_path, capsys):
    """fairseq ended before it printed a configuration. Its log has a line about a flag, or is empty."""
    plain_run(tmp_path / "runs" / "LL-1", [10, 20], [4, 4]).write()
    failed = tmp_path / "runs" / "LX-1"
    failed.mkdir()
    for name, text in (
        ("train.log", "error: --reservoir-decoder LX: X\n"),
        ("state", "failed train 2\n"),
        ("command", "x\n"),
    ):
        (failed / name).write_text(text)
    main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "out"), "--no-figures"])
    assert "1 arm, 1 run, 1 left out" in capsys.readouterr().out
    assert "LX-1: no validation: train failed with status 2\n" in (tmp_path / "out" / "report.md").read_text()
    (failed / "command").unlink()  # a folder with a log of another program
    main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "out"), "--no-figures"])
    assert "1 arm, 1 run, 0 left out" in capsys.readouterr().out


def test_a_target_that_no_run_reaches(tmp_path):
    plain_run(tmp_path / "runs" / "a-1", [10, 20], [4, 4]).write()
    report(ReportOptions([tmp_path / "runs"], tmp_path / "out", target=25, figures=False))
    assert read_csv(tmp_path / "out", "to_target")["a"]["updates"] == "never"
    assert "never" in (tmp_path / "out" / "index.html").read_text()


def test_no_ratio_if_a_seed_does_not_reach_the_target(tmp_path):
    """One seed of b reaches 15 in 15 updates, half of those of a. The other seed never does, and a ratio would hide that."""
    for arm, seed, scores in (("a", 1, [10, 20]), ("a", 2, [10, 20]), ("b", 1, [20, 20]), ("b", 2, [10, 12])):
        plain_run(tmp_path / "runs" / f"{arm}-{seed}", scores, [4, 4], seed=seed, layers=ord(arm)).write()
    report(ReportOptions([tmp_path / "runs"], tmp_path / "out", target=15, figures=False))
    assert read_csv(tmp_path / "out", "to_target")["b"]["updates"] == 15
    ratios = read_csv(tmp_path / "out", "steps_or_speed")
    assert (
        ratios["a"]["to the target: time ×"],
        ratios["b"]["to the target: time ×"],
        ratios["b"]["to the best score: updates ×"],
    ) == (
        1,
        "",
        0.75,
    )
    report(ReportOptions([tmp_path / "runs"], tmp_path / "out", target=11, figures=False))
    assert read_csv(tmp_path / "out", "steps_or_speed")["b"]["to the target: updates ×"] == pytest.approx(
        (11 + 30) / (22 + 22)
    )


def test_an_interrupted_arm_sets_neither_target_nor_horizon(tmp_path):
    plain_run(tmp_path / "runs" / "a-1", [10, 20], [4, 4]).write()
    Writer(tmp_path / "runs" / "b-1", layers=9).start().inner(5, 20, 100, 20).valid(5, loss=9, bleu=2).write()
    study = report(ReportOptions([tmp_path / "runs"], tmp_path / "out", figures=False))
    assert (study.target, study.horizons["seconds"]) == (20, 8)
    assert read_csv(tmp_path / "out", "to_target")["b"]["updates"] == "never"


@pytest.mark.parametrize("target", [float("nan"), float("inf"), -float("inf")])
def test_a_target_that_is_not_finite_is_refused(tmp_path, target):
    plain_run(tmp_path / "runs" / "a-1", [10, 20], [4, 4]).write()
    with pytest.raises(InputError, match=f"--target {target:g}: must be a finite number"):
        report(ReportOptions([tmp_path / "runs"], tmp_path / "out", target=target))
    assert not (tmp_path / "out").exists()


def test_runs_that_all_diverged_are_refused(tmp_path):
    for seed in (1, 2):
        plain_run(tmp_path / "runs" / f"a-{seed}", [float("inf")] * 2, [4, 4], seed=seed).write()
    with pytest.raises(
        InputError, match="RUNS .*a-1/train.log, .*: no validation has a finite bleu; choose a different --metric"
    ):
        report(ReportOptions([tmp_path / "runs"], tmp_path / "out", metric="bleu"))
    assert not (tmp_path / "out").exists()


def test_without_matplotlib(tmp_path, monkeypatch):
    plain_run(tmp_path / "runs" / "a-1", [10, 20], [4, 4]).write()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match="figures need matplotlib: run pip install matplotlib, or add --no-figures"):
        report(ReportOptions([tmp_path / "runs"], tmp_path / "out"))
    report(ReportOptions([tmp_path / "runs"], tmp_path / "out", figures=False))
