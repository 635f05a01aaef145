"""Group runs into arms by their configurations; seeds; metrics."""

import re

import pytest

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.studies.report import ReportOptions, measure, runs
from fairseq_reservoir.studies.report.arms import deviation, find_arm, group, mean
from fairseq_reservoir.studies.report.metrics import choose
from fairseq_reservoir.studies.report.runs import find_runs
from tests.support.logs import Writer, plain_run


def names(arms):
    return {arm.name: (arm.seeds, arm.missing) for arm in arms}


def test_mean_and_deviation():
    assert mean([2, 4, 6]) == 4 and deviation([2, 4, 6]) == pytest.approx(2)  # sqrt((4 + 0 + 4) / 2)
    assert deviation([3.0]) is None


def test_runs_that_differ_only_in_the_seed_are_an_arm(tmp_path):
    for seed in (1, 2, 3):
        plain_run(tmp_path / f"dense-{seed}", [10], [4], seed=seed).write()
    for seed in (1, 3):
        plain_run(tmp_path / f"deep-{seed}", [10], [4], seed=seed, layers=6).write()
    # Another name, but the same flags and another seed.
    plain_run(tmp_path / "deep-again", [10], [4], seed=4, layers=6).write()
    arms = group(find_runs([tmp_path]))
    assert names(arms) == {"deep": ([1, 3, 4], (2,)), "dense": ([1, 2, 3], (4,))}


def test_each_seed_may_start_from_its_own_checkpoint(tmp_path):
    starts = {
        "tuned-1": "lm-1/best.pt",
        "tuned-2": "lm-2/best.pt",
        "tuned-3": "lm-2/best.pt",
        "other-4": "lm12/best.pt",
    }
    for name, path in starts.items():
        log = plain_run(tmp_path / name, [10], [4], seed=int(name[-1]))
        log.lines[0] = log.lines[0].replace("'choice'", f"'finetune_from_model': '{path}', 'choice'")
        log.write()
    assert [arm.seeds for arm in group(find_runs([tmp_path]))] == [[4], [1, 2], [3]]


def test_one_name_with_two_configurations_is_two_arms(tmp_path):
    plain_run(tmp_path / "a-1", [10], [4], seed=1).write()
    plain_run(tmp_path / "a-2", [10], [4], seed=2, max_update=200).write()
    first, second = group(find_runs([tmp_path]))
    assert (first.name, second.name) == ("a", "a (2)")
    assert (
        second.remark
        == "not part of the arm a: optimization.max_update is 200 instead of 100; add --ignore max_update to join both arms"
    )


def test_json_flags_are_compared_by_value(tmp_path):
    for seed, value in ((1, '{"beam":1,"a":[2]}'), (2, '{"a": [2], "beam": 1}'), (3, '{"beam": 2}')):
        log = plain_run(tmp_path / f"a-{seed}", [10], [4], seed=seed, max_update=100 + seed // 3)
        log.lines[0] = log.lines[0].replace("'choice'", f"'eval_bleu_args': {value!r}, 'choice'")
        log.write()
    first, second = group(find_runs([tmp_path]))
    assert (first.seeds, second.seeds) == ([1, 2], [3])
    *ignored, _ = re.findall(r"--ignore (\w+)|$", second.remark)
    assert ignored == ["max_update", "eval_bleu_args"]
    (arm,) = measure(ReportOptions([tmp_path], ignore=ignored)).arms
    assert arm.seeds == [1, 2, 3]


def test_ignored_flags_do_not_separate_arms_and_are_named(tmp_path):
    plain_run(tmp_path / "a-1", [10], [4], seed=1).write()
    plain_run(tmp_path / "a-2", [10], [4], seed=2, max_update=200).write()
    (arm,) = group(find_runs([tmp_path]), ("optimization.max_update",))
    assert (arm.seeds, arm.remark) == ([1, 2], "runs differ in optimization.max_update (100, 200)")
    (arm,) = measure(ReportOptions([tmp_path], ignore=["--max-update"])).arms
    assert arm.seeds == [1, 2]
    with pytest.raises(InputError, match="--ignore sizes: the configurations of the runs do not have this key"):
        measure(ReportOptions([tmp_path], ignore=["sizes"]))


def test_one_configuration_and_seed_twice_are_two_arms(tmp_path):
    for name in ("once", "twice"):
        plain_run(tmp_path / f"{name}-1", [10], [4]).write()
    assert list(names(group(find_runs([tmp_path])))) == ["once", "twice"]


def test_seeds_of_another_version_are_one_arm_by_their_folders(tmp_path):
    for seed in (1, 2):
        log = plain_run(tmp_path / f"a-{seed}", [10], [4], seed=seed)
        if seed == 2:
            log.lines[0] = log.lines[0].replace("'lr': [0.002]", "'lr': [0.002], 'new_flag': 8")
        log.write()
    (arm,) = group(find_runs([tmp_path]))
    assert (arm.name, arm.seeds) == ("a", [1, 2])
    assert arm.remark == (
        "its runs were trained with different versions of fairseq or the plugin: some configurations lack optimization.new_flag"
    )
    (tmp_path / "a-2").rename(tmp_path / "b-2")  # now the folders have different names
    assert list(names(group(find_runs([tmp_path])))) == ["a", "b"]


def test_without_a_configuration_folders_make_arms(tmp_path):
    for seed in (1, 2):
        writer = Writer(tmp_path / f"b-{seed}").inner(5, 2, 100, 2).valid(5, loss=3)
        writer.write("log.json")
    assert names(group(find_runs([tmp_path]))) == {"b": ([1, 2], ())}


def test_a_baseline_by_arm_or_run(tmp_path):
    plain_run(tmp_path / "a-1", [10], [4]).write()
    plain_run(tmp_path / "b-1", [10], [4], layers=4).write()
    arms = group(find_runs([tmp_path]))
    assert [find_arm(name, arms).name for name in (None, "b", "b-1")] == ["a", "b", "b"]
    with pytest.raises(InputError, match="--baseline c: no arm has this name; choose from a, b"):
        find_arm("c", arms)


def test_the_metric(tmp_path):
    plain_run(tmp_path / "a-1", [10], [4]).write()
    runs = find_runs([tmp_path])
    assert (choose(None, runs).name, choose(None, runs).higher, choose(None, runs).start) == ("bleu", True, 0.0)
    assert (choose("valid_loss", runs).higher, choose("loss", runs).start) == (False, None)
    with pytest.raises(InputError, match="--metric wer: no validation of these runs has it; choose from bleu, loss"):
        choose("wer", runs)
    Writer(tmp_path / "b-1", layers=2).start().valid(20, loss=4).write()
    assert choose(None, find_runs([tmp_path])).name == "loss"  # not all have BLEU


@pytest.mark.parametrize("name, higher", [("pearson_and_spearman", True), ("pearson", True), ("ppl", False)])
def test_the_direction_of_metrics(name, higher, tmp_path):
    Writer(tmp_path / "a-1").start().valid(20, loss=4, **{name: 0.8}).write()
    assert choose(name, find_runs([tmp_path])).higher is higher


def test_the_maximize_flag_decides(tmp_path):
    log = Writer(tmp_path / "a-1").start().valid(20, loss=4)
    log.lines[0] = log.lines[0].replace(
        "'maximize_best_checkpoint_metric': False", "'maximize_best_checkpoint_metric': True"
    )
    log.write()
    assert choose(None, find_runs([tmp_path])).higher


def test_names_of_folders_are_counted_once(tmp_path, monkeypatch):
    """Comparing each name with all others took a second for 1,000 runs. For 10 runs it would read 10 * 10 = 100 names."""
    for seed in range(1, 11):
        plain_run(tmp_path / f"dense-{seed}", [10, 20], [4, 4], seed=seed).write()
    asked = []
    monkeypatch.setattr(runs, "printable", lambda name: asked.append(name) or name)
    assert {run.name for run in find_runs([tmp_path])} == {f"dense-{seed}" for seed in range(1, 11)}
    assert len(asked) == 20
