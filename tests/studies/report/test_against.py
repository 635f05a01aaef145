"""Score against a flag: which arms are one series."""

from fairseq_reservoir.studies.report import find_runs, measure, translations
from fairseq_reservoir.studies.report.against import points
from tests.support.logs import plain_run


def test_flags_that_say_the_same_are_one_series(tmp_path):
    """The arms differ in the ratio; the second wrote its JSON with other spaces and another order, the third says something else."""
    said = {"a": '{"beam": 5, "lenpen": 1}', "b": '{"lenpen":1,"beam":5}', "c": '{"beam": 4, "lenpen": 1}'}
    for (name, value), keep in zip(said.items(), (0.3, 0.5, 0.7), strict=True):
        log = plain_run(tmp_path / f"{name}-1", [10, 9], [4, 3], keep=keep)
        log.lines = [line.replace("'choice': <Choices.a: 1>", f"'eval_bleu_args': '{value}'") for line in log.lines]
        log.write()
    runs = find_runs([tmp_path])
    study = measure(runs, against="keep_ratio")
    study.tests = {run.name: translations.Test() for run in runs}
    assert [(point.series, point.arm, point.value) for point in points(study)] == [
        ("a", "a", 0.3),
        ("a", "b", 0.5),
        ("c", "c", 0.7),
    ]


def test_rates_are_numbers_although_fairseq_has_lists_of_them(tmp_path):
    for name, rate in (("a", "[0.001]"), ("b", "[5e-05]"), ("c", "[0.01]")):
        log = plain_run(tmp_path / f"{name}-1", [10, 9], [4, 3])
        log.lines = [line.replace("'lr': [0.002]", f"'lr': {rate}") for line in log.lines]
        log.write()
    runs = find_runs([tmp_path])
    study = measure(runs, against="optimization.lr")
    study.tests = {run.name: translations.Test() for run in runs}
    assert [(point.arm, point.value) for point in points(study)] == [("b", 5e-05), ("a", 0.001), ("c", 0.01)]
