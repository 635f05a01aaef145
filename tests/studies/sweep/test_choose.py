"""The first seed chooses the value of one axis. The other seeds run with that value only."""

import re

import pytest

from fairseq_reservoir.commands.sweep import _score
from fairseq_reservoir.errors import InputError
from fairseq_reservoir.studies.sweep.choose import Decisions, _beyond
from fairseq_reservoir.studies.sweep.grid import read_grid
from tests.support.commands import TINY, USER_DIR
from tests.support.logs import Writer

GRID = """
command: fairseq-train data-bin
arms: {plain: '', deep: --encoder-layers 5}
axes: {lr: [1e-3, 4e-3, 2e-3], seed: [1, 2, 3]}
choose: lr
"""


@pytest.fixture
def studied(sweep):
    """Make a sweep with finished runs of the first seed and the given best losses, by name. None marks a failed run."""

    def study(losses, text=GRID):
        sweep.write(text)
        runs, _ = read_grid(str(sweep.grid), str(sweep.out))
        for run in runs:
            run.prepare()
            if run.name not in losses:
                continue
            log = Writer(run.folder).start()
            for update, loss in ((20, 9.0), (40, losses[run.name]), (60, 8.5)):
                loss = 1.0 if loss is None else loss
                log.inner(update, 1, 100, update).valid(update, loss=loss, bleu=loss)
            (run.folder / "train.log").write_text("\n".join(log.lines) + "\n")
            run.write("state", "failed train 1" if losses[run.name] is None else "done")
        return sweep

    return study


def test_the_first_seed_has_every_value_and_the_others_wait(sweep):
    sweep.write(GRID)
    runs, choices = read_grid(str(sweep.grid), str(sweep.out))
    assert [run.name for run in runs] == [
        f"{arm}-lr{lr}-1" for arm in ("plain", "deep") for lr in ("1e-3", "4e-3", "2e-3")
    ]
    plain, deep = choices
    assert (plain.name, deep.name) == ("plain", "deep") and list(deep.first.values()) == runs[3:]
    assert {lr: [run.name for run in others] for lr, others in plain.others.items()} == {
        lr: [f"plain-lr{lr}-{seed}" for seed in (2, 3)] for lr in ("1e-3", "4e-3", "2e-3")
    }


LOSSES = {
    "plain-lr1e-3-1": 5.0, "plain-lr2e-3-1": 4.0, "plain-lr4e-3-1": 4.5,
    "deep-lr1e-3-1": 3.5, "deep-lr2e-3-1": 3.25, "deep-lr4e-3-1": 3.0,
}  # fmt: skip

LOSSES_IN_ORDER = [f"{arm}-lr{lr}-1" for arm in ("plain", "deep") for lr in ("1e-3", "4e-3", "2e-3")]


def shown(sweep, capsys, *flags):
    """Return the runs that --dry-run prints, and its last two lines."""
    capsys.readouterr()
    assert sweep("--dry-run", *flags) == 0
    out = capsys.readouterr().out
    return re.findall(r"^(\S+-\d): ", out, flags=re.MULTILINE), *out.splitlines()[-2:]


def test_each_arm_continues_with_its_own_best_value(studied, capsys):
    assert shown(studied(LOSSES), capsys)[0][6:] == [
        "plain-lr2e-3-2",
        "plain-lr2e-3-3",
        "deep-lr4e-3-2",
        "deep-lr4e-3-3",
    ]


def test_each_arm_continues_after_its_own_rates_have_ended(studied):
    """First plain's other seeds, while one rate of deep is running. Then deep needs 8e-3 before its other seeds. No run comes twice."""
    sweep = studied({name: loss for name, loss in LOSSES.items() if name != "deep-lr4e-3-1"}, GRID + "beyond: 1\n")
    decisions = Decisions(read_grid(str(sweep.grid), str(sweep.out))[1], _score, lambda run: False)

    def next_runs():
        return {line.partition(",")[0]: [run.name for run in runs] for line, runs in decisions.next_runs()}

    assert next_runs() == {"plain: lr 2e-3": ["plain-lr2e-3-2", "plain-lr2e-3-3"]} and next_runs() == {}
    assert [line.partition(",")[0] for line in decisions.lines] == ["plain: lr 2e-3", "deep: no lr chosen"]
    assert "because the runs of the first seed have not ended (" in decisions.lines[1]
    finish(sweep, "deep-lr4e-3-1", 3.0)
    line = "deep: the best lr is the smallest or the largest tried value; adding the next value"
    assert next_runs() == {line: ["deep-lr8e-3-1"]} and next_runs() == {}
    finish(sweep, "deep-lr8e-3-1", 2.9)
    assert next_runs() == {"deep: lr 8e-3": ["deep-lr8e-3-2", "deep-lr8e-3-3"]} and next_runs() == {}
    assert (
        decisions.lines[1] == "deep: lr 8e-3, loss 2.9 (1e-3: 3.5, 4e-3: 3, 2e-3: 3.25); no value beyond 8e-3 was tried"
    )


def test_a_failed_rate_that_is_tried_again_is_waited_for(studied, capsys):
    sweep = studied(LOSSES | {"deep-lr4e-3-1": None})
    names, _, last = shown(sweep, capsys)
    assert "deep-lr2e-3-2" in names and last.startswith("deep: lr 2e-3, loss 3.25")
    names, _, last = shown(sweep, capsys, "--retry-failed")
    assert not {f"deep-lr{lr}-2" for lr in ("1e-3", "2e-3", "4e-3")} & set(names)
    assert last == "deep: once the runs of the first seed have determined lr, 2 more runs follow with the other seeds"


def test_an_error_of_one_arm_does_not_end_the_others(studied, capsys):
    """The folder of deep's rate beyond the edge has other commands, which the sweep finds late. plain's other seeds are done."""
    sweep = studied(LOSSES, GRID + "beyond: 1\n")
    for run in read_grid(str(sweep.grid), str(sweep.out))[1][0].others["2e-3"]:
        run.prepare()
        run.write("state", "done")
    (sweep.out / "deep-lr8e-3-1").mkdir()
    (sweep.out / "deep-lr8e-3-1" / "command").write_text("true\n")
    (sweep.out / "deep-lr8e-3-1" / "checkpoint_last.pt").touch()
    assert sweep() == 1
    *_, plain, deep, error = capsys.readouterr().out.splitlines()
    assert plain.startswith("plain: lr 2e-3") and deep.startswith("deep: no lr chosen")
    assert f"{sweep.out}/deep-lr8e-3-1 belongs to a run with different commands" in error
    assert (sweep.out / "choices.txt").read_text().splitlines() == [plain]


def test_nothing_is_chosen_before_all_rates_have_ended(studied, capsys):
    names, plain, last = shown(
        studied({name: loss for name, loss in LOSSES.items() if name != "deep-lr1e-3-1"}), capsys
    )
    assert names[6:] == ["plain-lr2e-3-2", "plain-lr2e-3-3"]
    assert plain == "plain: lr 2e-3, loss 4 (1e-3: 5, 4e-3: 4.5)"
    assert last == "deep: once the runs of the first seed have determined lr, 2 more runs follow with the other seeds"


def test_a_rate_that_failed_does_not_count(studied, capsys):
    assert "deep-lr2e-3-2" in shown(studied(LOSSES | {"deep-lr4e-3-1": None}), capsys)[0]


def test_a_loss_of_nan_does_not_count(studied, capsys):
    sweep = studied(LOSSES)
    log = sweep.out / "deep-lr4e-3-1" / "train.log"
    log.write_text(re.sub(r'"valid_loss": "[^"]+"', '"valid_loss": "nan"', log.read_text()))
    assert "deep-lr2e-3-2" in shown(sweep, capsys)[0]


def test_a_run_whose_translation_failed_counts(studied, capsys):
    sweep = studied(LOSSES)
    (sweep.out / "deep-lr4e-3-1" / "state").write_text("failed generate 1\n")
    assert "deep-lr4e-3-2" in shown(sweep, capsys)[0]


def test_a_single_value_needs_no_choice(sweep):
    sweep.write(GRID + "exclude: [{arm: deep, lr: [1e-3, 2e-3]}]\n")
    runs, choices = read_grid(str(sweep.grid), str(sweep.out))
    assert [choice.name for choice in choices] == ["plain"]
    assert [run.name for run in runs[3:]] == ["deep-lr4e-3-1", "deep-lr4e-3-2", "deep-lr4e-3-3"]


def test_a_sweep_without_scores_fails(studied, capsys):
    sweep = studied(LOSSES)
    for log in sweep.out.glob("*/train.log"):
        log.write_text("")
    assert sweep() == 1
    assert capsys.readouterr().out.count("no lr chosen, because the logs of the first seed have no scores") == 4


def test_the_choice_is_printed_with_a_note_at_the_edge(studied, capsys):
    seed_one = GRID.replace("[1, 2, 3]", "1")
    assert studied(LOSSES, seed_one)() == 0
    choices = [
        "plain: lr 2e-3, loss 4 (1e-3: 5, 4e-3: 4.5)",
        "deep: lr 4e-3, loss 3 (1e-3: 3.5, 2e-3: 3.25); no value beyond 4e-3 was tried",
    ]
    assert capsys.readouterr().out.splitlines()[1:3] == choices
    assert (studied(LOSSES, seed_one).out / "choices.txt").read_text().splitlines() == choices
    assert studied(dict.fromkeys(LOSSES), seed_one)() == 1
    assert "deep: no lr chosen, because the logs of the first seed have no scores" in capsys.readouterr().out


def test_values_are_in_order_as_numbers(studied, capsys):
    """1.6e-2 is larger than 8e-3, although it sorts before it as text."""
    losses = {"lr1.6e-2-1": 5.0, "lr4e-3-1": 4.5, "lr8e-3-1": 4.0}
    text = "command: fairseq-train data-bin\naxes: {lr: [1.6e-2, 4e-3, 8e-3], seed: [1]}\nchoose: lr\n"
    assert studied(losses, text)() == 0
    assert "all: lr 8e-3, loss 4 (1.6e-2: 5, 4e-3: 4.5)\n" in capsys.readouterr().out


def test_text_values_have_no_edge(studied, capsys):
    text = "command: fairseq-train data-bin\naxes: {optimizer: [adam, sgd], seed: [1]}\nchoose: optimizer\n"
    assert studied({"adam-1": 4.0, "sgd-1": 5.0}, text)() == 0
    assert "all: optimizer adam, loss 4 (sgd: 5)\n" in capsys.readouterr().out


def finish(sweep, name, loss):
    """Write a finished run with a value outside the grid file."""
    commands = (sweep.out / "deep-lr4e-3-1" / "command").read_text()
    lr = name.split("-lr")[1].removesuffix("-1")
    (sweep.out / name).mkdir(exist_ok=True)
    (sweep.out / name / "command").write_text(
        commands.replace("deep-lr4e-3-1", name).replace("--lr 4e-3", f"--lr {lr}")
    )
    log = Writer(sweep.out / name).start()
    log.inner(20, 1, 100, 20).valid(20, loss=loss, bleu=loss)
    (sweep.out / name / "train.log").write_text("\n".join(log.lines) + "\n")
    (sweep.out / name / "state").write_text("done\n")


def test_a_best_value_at_the_edge_gets_the_next_one(studied, capsys):
    """deep is best at 4e-3, the largest value, so 8e-3 runs before its other seeds. plain is best at 2e-3."""
    sweep = studied(LOSSES, GRID + "beyond: 2\n")
    names, _, last = shown(sweep, capsys)
    assert names[6:] == ["deep-lr8e-3-1", "plain-lr2e-3-2", "plain-lr2e-3-3"]
    assert last == "deep: once the runs of the first seed have determined lr, 2 more runs follow with the other seeds"
    finish(sweep, "deep-lr8e-3-1", 3.5)
    names, _, last = shown(sweep, capsys)
    assert names[6:] == ["deep-lr8e-3-1", "plain-lr2e-3-2", "plain-lr2e-3-3", "deep-lr4e-3-2", "deep-lr4e-3-3"]
    assert last == "deep: lr 4e-3, loss 3 (1e-3: 3.5, 2e-3: 3.25, 8e-3: 3.5)"


def test_at_most_as_many_values_as_beyond(studied, capsys):
    """Scores improve up to 1.6e-2, the second added value. A seed that is excluded for an arm stays excluded."""
    sweep = studied(LOSSES, GRID + "beyond: 2\nexclude: [{arm: deep, seed: 3}]\n")
    finish(sweep, "deep-lr8e-3-1", 2.9)
    finish(sweep, "deep-lr1.6e-2-1", 2.8)
    names, _, last = shown(sweep, capsys)
    assert [name for name in names[6:] if "deep" in name] == ["deep-lr8e-3-1", "deep-lr1.6e-2-1", "deep-lr1.6e-2-2"]
    assert last.endswith("; no value beyond 1.6e-2 was tried")


def test_values_are_added_below_the_smallest_too(studied, capsys):
    sweep = studied(LOSSES | {"plain-lr1e-3-1": 1.0}, GRID + "beyond: 1\n")
    assert shown(sweep, capsys)[0][6:8] == ["plain-lr5e-4-1", "deep-lr8e-3-1"]


def test_excluded_values_are_not_added(studied, capsys):
    """4e-3 is excluded for deep, which is best at 2e-3, its largest value."""
    losses = {name: loss for name, loss in LOSSES.items() if name != "deep-lr4e-3-1"}
    sweep = studied(losses | {"deep-lr1e-3-1": 4.0}, GRID + "beyond: 2\nexclude: [{arm: deep, lr: 4e-3}]\n")
    assert shown(sweep, capsys)[0][5:] == ["plain-lr2e-3-2", "plain-lr2e-3-3", "deep-lr2e-3-2", "deep-lr2e-3-3"]


def test_excluded_values_are_not_added_in_another_notation(studied, capsys):
    """After 1e-3 and 2e-3 comes 4e-3, which the grid file writes as 0.004."""
    grid = GRID.replace("4e-3", "0.004") + "beyond: 2\nexclude: [{arm: deep, lr: 0.004}]\n"
    assert grid != GRID
    losses = {name.replace("4e-3", "0.004"): loss for name, loss in LOSSES.items() if name != "deep-lr4e-3-1"}
    sweep = studied(losses | {"deep-lr1e-3-1": 4.0}, grid)
    assert shown(sweep, capsys)[0][5:] == ["plain-lr2e-3-2", "plain-lr2e-3-3", "deep-lr2e-3-2", "deep-lr2e-3-3"]


def test_what_follows_has_to_be_beyond(studied, capsys):
    """1024 * 1024 / 1000 has the two digits 1000."""
    text = "command: fairseq-train data-bin\naxes: {warmup-updates: [1000, 1024], seed: 1}\nchoose: warmup-updates\nbeyond: 1\n"
    sweep = studied({"warmup-updates1000-1": 4.0, "warmup-updates1024-1": 3.0}, text)
    assert shown(sweep, capsys)[0] == ["warmup-updates1000-1", "warmup-updates1024-1"]


@pytest.mark.parametrize(
    "value, edge, beyond",
    [("4e-3", "8e-3", "1.6e-2"), ("2E-3", "1E-3", "5e-4"), ("0.2", "0.1", "0.05"), ("4", "8", "16"), ("2e-3", "5e-3", "1.2e-2"),
     ("1e-3", "1e-2", "1e-1"), ("1e-3", "0.01", "0.1"), ("2", "3", "4"), ("2", "1", "1")],
)  # fmt: skip
def test_the_value_beyond_the_edge(value, edge, beyond):
    assert _beyond(value, edge) == beyond


def test_the_table_has_the_runs_of_all_seeds(studied, capsys):
    others = {"plain-lr2e-3-2": 4.0, "plain-lr2e-3-3": 4.0, "deep-lr4e-3-2": 3.0, "deep-lr4e-3-3": 3.0}
    sweep = studied(LOSSES)
    for run in (
        run
        for choice in read_grid(str(sweep.grid), str(sweep.out))[1]
        for runs in choice.others.values()
        for run in runs
    ):
        run.prepare()
        run.write("state", "done")
    assert sweep() == 0
    table = capsys.readouterr().out.partition("  state\n")[2]
    assert re.findall(r"^(\S+-\d) ", table, flags=re.MULTILINE) == [*LOSSES_IN_ORDER, *others]


def test_an_unusable_folder_of_another_seed_is_named_at_once(studied):
    sweep = studied(LOSSES)
    (sweep.out / "plain-lr4e-3-3").write_text("a file")
    assert "out/plain-lr4e-3-3 exists, but is not the folder of a run" in sweep()


def test_a_score_is_best_where_it_is_highest(studied, capsys, monkeypatch):
    """The metric and its direction are those of checkpoint_best.pt."""
    from tests.support import logs

    by_bleu = logs._CONFIGURATION.replace("metric': 'loss'", "metric': 'bleu'").replace(
        "metric': False", "metric': True"
    )
    monkeypatch.setattr(logs, "_CONFIGURATION", by_bleu)
    assert studied({name: 10 * loss for name, loss in LOSSES.items()}, GRID.replace("[1, 2, 3]", "1"))() == 0
    assert "plain: lr 1e-3, bleu 50 (4e-3: 45, 2e-3: 40); no value beyond" in capsys.readouterr().out


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("choose: lr", "choose: dropout", "choose: dropout: not an axis with several values; choose from arm, lr"),
        ("choose: lr", "choose: seed", "choose: seed: not an axis with several values; choose from arm, lr"),
        ("choose: lr", "choose: [lr]", "choose: ['lr']: not an axis"),
        ("choose: lr", "choose:", "choose: nothing: not an axis with several values; choose from arm, lr"),
        ("choose: lr", "choose: lr\nenvironment: {SEED: [1, 2]}",
         "choose: the seed is both under axes and under environment; remove one of them"),
        ("choose: lr", "beyond: 2", "beyond: has no effect without the key 'choose'; add choose: AXIS"),
        ("choose: lr", "choose: lr\nbeyond: -1", "beyond: '-1' is not a whole number"),
        ("choose: lr", "choose: arm\nbeyond: 1", "beyond: arm: plain is not a number above 0, so the next value cannot be computed"),
        ("4e-3, 2e-3], seed: [1, 2, 3]}", "0], seed: 1}\nbeyond: 1", "beyond: lr: 0 is not a number above 0"),
        ("[1e-3, 4e-3, 2e-3]", "1e-3", "choose: lr: not an axis with several values; choose from arm"),
        ("fairseq-train data-bin", "bash run.sh",
         "choose: needs fairseq-train as the command, because scores are read from the log of fairseq-train"),
        ("choose: lr", "choose: lr\nexclude: [{lr: 4e-3, seed: 1}]",
         "choose: plain-lr4e-3-2 needs a run with the first seed, 1, but the key exclude removes that run"),
    ],
)  # fmt: skip
def test_errors_name_the_key(old, new, message, sweep):
    sweep.write(GRID.replace(old, new))
    with pytest.raises(InputError, match=rf"^GRID \S*grid.yaml: {re.escape(message)}"):
        read_grid(str(sweep.grid), str(sweep.out))


@pytest.mark.slow
def test_real_trainings_choose(sweep, toy_data, capsys):
    """A rate that learns nothing in 60 updates does not run with the second seed. A better rate, added later, does."""
    flags = (
        " ".join(TINY)
        .replace("--log-format none", "--log-format json")
        .replace("--seed 3", "")
        .replace("--lr 0.01", "")
    )
    text = (
        f"command: fairseq-train {toy_data} --user-dir {USER_DIR} {flags} --max-update 60 --save-interval-updates 20\n"
        "axes: {lr: [1e-9, 1e-5], seed: [1, 2]}\n"
        "choose: lr\n"
    )
    assert sweep.write(text)("--jobs", "2") == 0
    assert sweep.states() == dict.fromkeys(["lr1e-5-1", "lr1e-5-2", "lr1e-9-1"], "done")
    assert re.search(
        r"all: lr 1e-5, loss [\d.]+ \(1e-9: [\d.]+\); no value beyond 1e-5 was tried", capsys.readouterr().out
    )
    assert sweep.write(text.replace("1e-5", "1e-5, 1e-2"))("--jobs", "2") == 0
    assert {"lr1e-2-1", "lr1e-2-2", "lr1e-5-2"} < set(sweep.states())
    assert "all: lr 1e-2, loss" in capsys.readouterr().out
    assert sweep.write(text + "beyond: 1\n")("--jobs", "2") == 0  # 1e-5 / 1e-9 beyond 1e-5
    assert sweep.states()["lr1e-1-1"] == "done"
    assert (
        "all: the best lr is the smallest or the largest tried value; adding the next value\n1 more runs in"
        in capsys.readouterr().out
    )
