"""Grid files: the runs that they describe, the names of the runs, and errors."""

import re
import shlex

import pytest

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.studies.sweep.grid import read_grid

SIX = """
command: fairseq-train data-bin --arch reservoir_transformer_study --max-update 700
axes:
  reservoir-encoder: [LLL, LTLTL]
  lr: [1e-3, 2e-3]
  seed: [1, 2]
exclude: [{reservoir-encoder: LLL, lr: 2e-3}]
then: ['fairseq-generate data-bin --path {out}/checkpoint_best.pt']
"""


@pytest.fixture
def read(tmp_path):
    def read(text, out=None):
        (tmp_path / "grid.yaml").write_text(text)
        return {run.name: run for run in read_grid(str(tmp_path / "grid.yaml"), str(out or tmp_path / "out"))[0]}

    return read


def test_six_runs(read, tmp_path):
    runs = read(SIX, tmp_path / "a b")
    assert list(runs) == [
        "LLL-lr1e-3-1",
        "LTLTL-lr1e-3-1",
        "LTLTL-lr2e-3-1",
        "LLL-lr1e-3-2",
        "LTLTL-lr1e-3-2",
        "LTLTL-lr2e-3-2",
    ]
    folder = f"'{tmp_path}/a b/LTLTL-lr2e-3-2'"
    assert runs["LTLTL-lr2e-3-2"].commands == (
        "fairseq-train data-bin --arch reservoir_transformer_study --max-update 700"
        f" --reservoir-encoder LTLTL --lr 2e-3 --seed 2 --save-dir {folder}\n"
        f"fairseq-generate data-bin --path {folder[:-1]}/checkpoint_best.pt'\n"
    )
    assert [step.log.name for step in runs["LLL-lr1e-3-1"].steps] == ["train.log", "generate.log"]


def flags(run):
    return shlex.split(run.commands)[1:]


def test_values_stay_text(read):
    """YAML would read 0.10 as the number 0.1, and no as False."""
    runs = read("command: x\naxes: {dropout: [0.10], --freeze: [emb, 'ln,pos'], fast: [yes, no]}")
    assert [flags(run) for run in runs.values()][:3] == [
        ["--dropout", "0.10", "--freeze", "emb", "--fast"],
        ["--dropout", "0.10", "--freeze", "emb"],
        ["--dropout", "0.10", "--freeze", "ln,pos", "--fast"],
    ]
    assert list(runs) == [
        f"dropout0.10-{freeze}-{fast}" for freeze in ("emb", "ln_pos") for fast in ("fast", "no-fast")
    ]


def test_a_single_value_is_not_in_the_name(read):
    (run,) = read("command: fairseq-train d\naxes: {lr: 1e-3, max-update: [700]}").values()
    assert run.name == "max-update700-1" and flags(run)[1:-2] == ["--lr", "1e-3", "--max-update", "700", "--seed", "1"]
    assert list(read("command: fairseq-train d\naxes: {lr: 1e-3}")) == ["run-1"]


def test_variables_and_arms(read):
    runs = read(
        "command: bash run.sh --save-dir {out}/x\n"
        "environment: {ARM: [T, F], SEED: [7, 8], RUNS: '{out}', N: 5}\n"
        "arms: {plain: '', dropped: --encoder-layerdrop 0.2 --x}\n"
    )
    assert list(runs) == [f"{arm}-{plan}-{seed}" for seed in "78" for arm in ("plain", "dropped") for plan in "TF"]
    run = runs["dropped-F-8"]
    assert run.environment == {"ARM": "F", "RUNS": str(run.folder), "N": "5", "SEED": "8"}
    assert [step.words for step in run.steps] == [
        ("bash", "run.sh", "--save-dir", f"{run.folder}/x", "--encoder-layerdrop", "0.2", "--x")
    ]
    # Not bash.log: it repeats the log of the training, which the report finds in another place.
    assert run.steps[0].log == run.folder / "bash.out"


def test_defaults_are_replaced_in_values_too(read):
    run = read(
        "command: fairseq-train d\ndefaults: {DATA: /there}\nenvironment: {ROOT: '{DATA}'}\naxes: {file: ['{DATA}/a', b]}"
    )["file_there_a-1"]
    assert run.environment == {"ROOT": "/there"} and "/there/a" in flags(run)
    with pytest.raises(
        InputError, match="axes: file: {DATA} is not defined; use one of {out}, or define {DATA} under defaults"
    ):
        read("command: fairseq-train d\naxes: {file: '{DATA}/a'}")
    axes = "command: x\ndefaults: {DATA: /there}\naxes: {file: ['{DATA}/a', b]}\nexclude: [{file: '{DATA}/a'}]"
    assert len(read(axes)) == 1


def test_two_spellings_of_one_folder(read, tmp_path):
    outs = (tmp_path / "runs", tmp_path / "sub" / ".." / "runs")
    (one,), (other,) = (read("command: fairseq-train d", out).values() for out in outs)
    assert one.folder == other.folder and one.commands == other.commands


def test_a_save_dir_is_left_as_it_is(read):
    (run,) = read("command: fairseq-train d --save-dir={out}/here").values()
    assert flags(run) == ["d", f"--save-dir={run.folder}/here", "--seed", "1"]


def test_logs_of_the_same_program_twice(read):
    (run,) = read("command: /bin/x\nthen: [fairseq-generate a, fairseq-generate b, x]").values()
    assert [step.log.name for step in run.steps] == ["x.out", "generate.log", "generate-2.log", "x-2.out"]


def test_logs_of_fairseq_reservoir_are_named_after_the_subcommand(read):
    """The names of the steps stay as in earlier versions, because the files ``state`` contain them."""
    (run,) = read("command: /bin/x\nthen: [fairseq-reservoir export a, fairseq-reservoir --version]").values()
    assert [step.log.name for step in run.steps] == ["x.out", "export.log", "reservoir.log"]
    assert [step.name for step in run.steps] == ["x", "reservoir", "reservoir-2"]


def test_several_values_are_excluded_at_once(read):
    runs = read("command: x\naxes: {a: [1, 2, 3], seed: [1, 2]}\nexclude: [{a: [1, 3], seed: 2}]")
    assert list(runs) == ["a1-1", "a2-1", "a3-1", "a2-2"]


def test_the_environment_overrides_defaults(read, monkeypatch):
    text = (
        "command: >\n  fairseq-train {DATA} {SIZE} --eval-bleu-args '{\"beam\": 1}'\n"
        "defaults: {DATA: runs/bin, SIZE: --arch small --max-tokens 9}\n"
        "then: ['fairseq-generate {DATA} --path {out}/a']\n"
    )
    monkeypatch.delenv("DATA", raising=False)
    monkeypatch.setenv("SIZE", "--arch 'a b'")
    (run,) = read(text).values()
    assert run.steps[0].words[:7] == (
        "fairseq-train",
        "runs/bin",
        "--arch",
        "a b",
        "--eval-bleu-args",
        '{"beam": 1}',
        "--seed",
    )
    assert run.steps[1].words == ("fairseq-generate", "runs/bin", "--path", f"{run.folder}/a")
    monkeypatch.setenv("DATA", "")
    assert read(text)[run.name].steps[0].words[1] == "runs/bin"
    monkeypatch.setenv("DATA", "my-data")
    (run,) = read(text).values()
    assert [step.words[1] for step in run.steps] == ["my-data", "my-data"]


@pytest.mark.parametrize(
    "text, message",
    [
        ("command: x\naxes: {? [a, b] : c}", "line 2: a key is not text"),
        (
            "command: x\nenvironment: {a=b: c}",
            "environment: 'a=b': is not the name of a variable; use letters, digits and _",
        ),
        ("command: x\nenvironment: {'': c}", "environment: '': is not the name of a variable"),
        ("command: x\naxes: {'a b': c}", "axes: 'a b': is not the name of a flag"),
        (
            f"command: x\naxes: {{{', '.join(f'{c}: {list(range(10))}' for c in 'abcdefgh')}}}",
            "axes: 100000000 combinations; a sweep has at most 10000",
        ),
        ("command: x\naxes: " + "[" * 2000, "is nested too deeply"),
        ("axes: {lr: [1]}", "command: must be a command"),
        ("command: ''", "command: must be a command"),
        ("command: 'x \"'", "command: 'x \"': No closing quotation"),
        ("- x", "command: must be a command"),
        (
            "command: x\nseeds: [1]",
            "seeds: unknown; choose from command, environment, axes, arms, exclude, then, choose",
        ),
        ("command: x\naxes: {lr: []}", "axes: lr: must be a value or a list of values"),
        ("command: x\naxes: {lr: {a: b}}", "axes: lr: must be a value or a list of values"),
        ("command: x\naxes: [lr]", "axes: must be a mapping, as in {lr: [1e-3, 2e-3]}"),
        ("command: x\naxes: {lr: [1e-3, 1e-3]}", "axes: lr: 1e-3 appears twice"),
        ("command: x\naxes:\n  lr: 1\n  lr: 2", "line 4: lr appears twice"),
        ("command: x\naxes: {lr: [1", "line 3: expected ',' or ']', but got"),
        ("command: x --lr=3\naxes: {lr: [1]}", "axes: lr: --lr is also set in the command; remove it there"),
        (
            "command: x\narms: {a: --lr 3, b: ''}\naxes: {lr: [1]}",
            "axes: lr: --lr is also set in arms: a; remove it there",
        ),
        ("command: fairseq-train d --seed 1", "command: move --seed to the axes, as in seed: [1, 2]"),
        ("command: fairseq-train d --seed=3", "command: move --seed to the axes, as in seed: [1, 2]"),
        ("command: fairseq-train d\narms: {a: --seed 7}", "arms: a: move --seed to the axes, as in seed: [1, 2]"),
        ("command: x\naxes: {seed: [one]}", "axes: seed: 'one' is not a whole number"),
        (
            "command: x\naxes: {a: [b/c, b_c]}",
            "axes: two runs would have the name b_c; under the key arms, define different names for their flags",
        ),
        ("command: x\narms: {a: [--x]}", "arms: a: must be flags, in one line"),
        ("command: x\narms: {'': --x}", "arms: '': a name needs a letter or a digit"),
        ("command: x\narms: {.: --x}", "arms: '.': a name needs a letter or a digit"),
        ("command: x\narms: {plain: '', ..: --x}\naxes: {seed: [1]}", "arms: '..': a name needs a letter or a digit"),
        ("command: x\narms: {/: --x}", "arms: '/': a name needs a letter or a digit"),
        (
            "command: x\naxes: {seed: [1]}\narms: {" + 254 * "a" + ": ''}",
            f"axes: the name of a run, {40 * 'a'}..., has more than 255 bytes",
        ),
        ("command: x\naxes: {a: [1]}\nexclude: [a]", "exclude: 'a' is not a mapping such as {lr: 1e-3, seed: 2}"),
        ("command: x\naxes: {a: [1, 2]}\nexclude: [{a: 3}]", "exclude: a: 3: choose from 1, 2"),
        ("command: x\naxes: {a: [1, 2]}\nexclude: [{b: 3}]", "exclude: b: 3: not an axis; choose from a"),
        ("command: x\naxes: {a: [1]}\nexclude: [{a: 1}]", "exclude: excludes all runs"),
        ("command: x\nthen: y", "then: must be a list"),
        ("command: x\ndefaults: {DATA: y}", "defaults: no command contains {DATA}"),
        (
            "command: x {DATA}\ndefaults: {BIN: y}\nthen: ['z {BIN}']",
            "command: {DATA} is not defined; use one of {out}, {BIN}, or",
        ),
        ("command: x\ndefaults: {out: y}", "defaults: 'out': is not the name of a variable"),
        ("command: x {A}\ndefaults: {A: [b]}", "defaults: A: must be text, in one line"),
        (
            "command: x {A}{B}\ndefaults: {A: 'y/{B}', B: z}",
            "defaults: A: {B} is not allowed here, because names are not replaced under defaults; write the text itself",
        ),
        ("command: x\nthen: [{a: b}]", "then: must be a command, in one line"),
    ],
)
def test_errors_name_the_key(text, message, read):
    with pytest.raises(InputError, match=rf"^GRID \S*grid.yaml: {re.escape(message)}") as error:
        read(f"{text}\n")
    assert "\n" not in str(error.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match="GRID nowhere.yaml: cannot be read .No such file"):
        read_grid("nowhere.yaml", str(tmp_path))
