"""Scores and times against a flag: arms that belong to one series, and arms that are compared."""

from fairseq_reservoir.studies.report import ReportOptions, measure
from fairseq_reservoir.studies.report.against import against_table, points
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


def trained_run(folder, layers, trained, seconds):
    """A run of two epochs with the best score in the second one."""
    kind, _, seed = folder.name.split("-")
    log = plain_run(folder, [10, 20], seconds, layers=layers, keep=0.5 if kind == "L" else 0.6, seed=int(seed))
    log.lines = [line.replace("trained: 1,417,344", f"trained: {trained:,}") for line in log.lines]
    log.write()


def test_times_relative_to_equal_depth_and_to_equally_many_trained_parameters(tmp_path):
    """Frozen layers add to the depth, not to the trained parameters: F-6 is compared with L-6 and with L-4."""
    trained_run(tmp_path / "L-4-1", 4, 1000, [8, 8])
    trained_run(tmp_path / "L-4-2", 4, 1000, [8, 12])
    trained_run(tmp_path / "L-6-1", 6, 1500, [12, 12])
    trained_run(tmp_path / "F-6-1", 6, 1000, [12, 6])
    trained_run(tmp_path / "F-8-1", 8, 1500, [15, 15])
    table = against_table(measure(ReportOptions([tmp_path], against="encoder_layers", baseline="L-4")))
    assert table.head[-3:] == ["minutes", "time ×, same encoder_layers", "time ×, same trained parameters"]
    rows = {row[0].text: [row[2].text, *(cell.text for cell in row[-2:])] for row in table.rows}
    # L-4 takes (16 + 20) / 2 seconds, L-6 24, F-6 18, F-8 30.
    assert rows == {
        "L-4": ["L", "1.000", "1.000"],
        "L-6": ["L", "1.000", "1.000"],
        "F-6": ["F", "0.750", "1.000"],
        "F-8": ["F", "—", "1.250"],
    }
    assert table.groups[-3:] == ["to the best score"] * 3 and "series (L)" in table.notes[-1]


def test_times_of_a_single_series_are_not_compared(tmp_path):
    trained_run(tmp_path / "L-4-1", 4, 1000, [8, 8])
    trained_run(tmp_path / "L-6-1", 6, 1500, [12, 12])
    table = against_table(measure(ReportOptions([tmp_path], against="encoder_layers")))
    assert table.head[-1] == "minutes" and len(table.notes) == 1
    # Both arms of the series have as many trained parameters as F-9, so neither is the one to compare with.
    trained_run(tmp_path / "L-6-1", 6, 1000, [12, 12])
    trained_run(tmp_path / "F-9-1", 9, 1000, [12, 12])
    table = against_table(measure(ReportOptions([tmp_path], against="encoder_layers", baseline="L-4")))
    assert table.head[-1] == "minutes"
