"""Score against a flag: arms that belong to one series."""

from fairseq_reservoir.studies.report import ReportOptions, measure
from fairseq_reservoir.studies.report.against import points
from tests.support.logs import plain_run


def test_equal_json_flags_are_one_series(tmp_path):
    """Arms a and b differ in the ratio, and in spaces and order of their JSON. Arm c has another value in it."""
    values = {"a": '{"beam": 5, "lenpen": 1}', "b": '{"lenpen":1,"beam":5}', "c": '{"beam": 4, "lenpen": 1}'}
    for (name, value), keep in zip(values.items(), (0.3, 0.5, 0.7), strict=True):
        log = plain_run(tmp_path / f"{name}-1", [10, 9], [4, 3], keep=keep)
        log.lines = [line.replace("'choice': <Choices.a: 1>", f"'eval_bleu_args': '{value}'") for line in log.lines]
        log.write()
    study = measure(ReportOptions([tmp_path], against="keep_ratio"))
    assert [(point.series, point.arm, point.value) for point in points(study)] == [
        ("a", "a", 0.3),
        ("a", "b", 0.5),
        ("c", "c", 0.7),
    ]


def test_learning_rates_in_a_list_are_numbers(tmp_path):
    for name, rate in (("a", "[0.001]"), ("b", "[5e-05]"), ("c", "[0.01]")):
        log = plain_run(tmp_path / f"{name}-1", [10, 9], [4, 3])
        log.lines = [line.replace("'lr': [0.002]", f"'lr': {rate}") for line in log.lines]
        log.write()
    study = measure(ReportOptions([tmp_path], against="optimization.lr"))
    assert [(point.arm, point.value) for point in points(study)] == [("b", 5e-05), ("a", 0.001), ("c", 0.01)]
