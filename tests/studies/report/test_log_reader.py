"""Read logs: formats, configurations, and the clock with interruptions and resumes."""

import time

import pytest

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.studies.report.clock import kept_records, read_clock
from fairseq_reservoir.studies.report.configuration import find_key, flatten, parse
from fairseq_reservoir.studies.report.curves import aucc
from fairseq_reservoir.studies.report.log_reader import looks_like_training, read_log, read_record
from fairseq_reservoir.studies.report.runs import find_runs, without_seed
from tests.support.logs import Writer, plain_run


def resumed_twice(folder, **options):
    """Epochs of 20 updates. Stopped at 30 and resumed at 20, stopped at 55 and resumed at 50, in the middle of an epoch."""
    log = Writer(folder, **options).start()
    log.inner(5, 2, 100, 2).inner(10, 2, 100, 4).inner(15, 2, 100, 6).inner(20, 2, 100, 8)
    log.valid(20, loss=9, bleu=10).epoch(20, 8, 100, 9).inner(25, 2, 100, 12).inner(30, 2, 100, 14)
    log.start(restored=20, epoch=2).inner(25, 3, 100, 3).inner(30, 3, 100, 6).inner(35, 3, 100, 9).inner(40, 3, 100, 12)
    log.valid(40, loss=8, bleu=20).epoch(40, 12, 100, 13).inner(45, 3, 100, 16).inner(50, 3, 100, 19)
    log.valid(50, loss=7, bleu=24).inner(55, 3, 100, 23)
    # fairseq restores its meters in the middle of an epoch: 14 = 3 + 3 before the checkpoint and 4 + 4 after it.
    log.start(restored=50, epoch=3).inner(55, 4, 100, 4).inner(60, 4, 100, 8).valid(60, loss=6, bleu=30).epoch(
        60, 14, 100, 9
    )
    return log.done()


@pytest.mark.parametrize("text", [False, True])
def test_two_resumes(tmp_path, text):
    log = resumed_twice(tmp_path, text=text)
    log.write()
    (run,) = find_runs([tmp_path])
    assert (run.resumes, run.state, run.updates, run.wall) == (2, "finished", 60, 14 + 23 + 9)
    assert [(r.updates, r.values["bleu"]) for r in run.validations] == [(20, 10), (40, 20), (50, 24), (60, 30)]
    clock = run.clock
    # 20: 8.  30 - 20 lost: 4.  40: 8 + 4 + 12.  50: + 6.  55 - 50 lost: 3.  60: + 3 + 8.
    assert [clock.seconds_at(update) for update in (20, 40, 50, 60)] == pytest.approx([8, 24, 30, 41])
    assert clock.seconds_at(21) == pytest.approx(8 + 4 + 0.6)
    assert (clock.lost_updates, clock.lost_seconds) == (15, pytest.approx(7))
    assert [clock.tokens_at(update) for update in (20, 50, 60)] == pytest.approx([2000, 5000, 6000])
    assert clock.tokens_per_second == pytest.approx(6000 / (41 - 7))
    curve = [(clock.seconds_at(r.updates), r.values["bleu"]) for r in run.validations]
    # 8 * 10 / 2 + 16 * 15 + 6 * 22 + 11 * 27
    assert aucc(curve, 41, 0.0) == pytest.approx(40 + 240 + 132 + 297)


def test_a_resume_before_the_first_record(tmp_path):
    """2 s per update, a checkpoint every 2 and a record every 5 updates. Stopped at 4 and resumed at 2, stopped at 7 and resumed at 4.

    The first record covers all updates from 0 on, both times. Lost are update 5 and, untold by any record, 3, 4, 6 and 7.
    """
    log = Writer(tmp_path).start().start(restored=2).inner(5, 10, 100, 6)
    log.start(restored=4).inner(5, 10, 100, 2).inner(10, 10, 100, 12).inner(15, 10, 100, 22).inner(20, 10, 100, 32)
    log.valid(20, loss=9, bleu=10).epoch(20, 40, 100, 33).done().write()
    (run,) = find_runs([tmp_path])
    assert run.clock.lost_seconds == pytest.approx(2) and run.clock.seconds_at(20) == pytest.approx(42)


def test_a_log_file_of_records_alone_is_split_where_updates_go_back(tmp_path):
    log = resumed_twice(tmp_path)
    (tmp_path / "a-7").mkdir()
    records = [line.split(" | ", 3)[3] for line in log.lines if '{"epoch"' in line]
    (tmp_path / "a-7" / "log.json").write_text("\n".join(records))
    (run,) = find_runs([tmp_path])
    assert (run.resumes, run.state, run.seed) == (2, "end not logged", 7)
    assert run.clock.seconds_at(60) == pytest.approx(41)
    assert (run.clock.lost_updates, run.clock.lost_seconds) == (15, pytest.approx(7))


def test_epoch_totals_scale_rounded_records():
    # Inner records of 0.4 s are logged as 0, those of 0.6 s as 1. The epoch took 2 s.
    log = Writer(None).start()
    for update, seconds in ((5, 0), (10, 1), (15, 0), (20, 0)):
        log.inner(update, seconds, 100, 1)
    clock = read_clock(read_log("\n".join(log.epoch(20, 2, 100, 2).lines)).parts)
    assert [clock.seconds_at(update) for update in (5, 10, 20)] == [0, 2, 2]


def test_an_epoch_without_inner_records_is_divided_evenly():
    clock = read_clock(read_log("\n".join(Writer(None).start().epoch(20, 10, 150, 11).lines)).parts)
    assert (clock.seconds_at(5), clock.tokens_at(5), clock.tokens_at(20)) == (2.5, 750, 3000)


def test_a_start_from_scratch_discards_everything():
    log = Writer(None).start().inner(5, 2, 100, 2).valid(5, loss=3).start().inner(5, 3, 100, 3)
    parts = read_log("\n".join(log.lines)).parts
    clock = read_clock(parts)
    assert [record.kind for record in kept_records(parts)] == ["inner"]
    assert (clock.seconds_at(5), clock.lost_updates, clock.lost_seconds) == (5, 5, 2)


def test_a_start_that_ended_before_loading_changes_nothing():
    log = Writer(None).start().inner(5, 2, 100, 2).valid(5, loss=3).inner(10, 2, 100, 4).valid(10, loss=2).done()
    configuration = log.lines[0]
    before, after = (read_log("\n".join(lines)) for lines in (log.lines, [*log.lines, configuration]))
    assert after.parts == before.parts and after.done and len(read_log(f"{configuration}\n{configuration}").parts) == 1
    log.lines.append(configuration)
    parts = read_log("\n".join(log.start(restored=10).inner(15, 3, 100, 3).lines)).parts
    assert [record.updates for record in kept_records(parts)] == [5, 5, 10, 10, 15]
    assert read_clock(parts).lost_updates == 0


def test_lines_of_other_formats():
    old = read_record("| train | epoch 003 | loss 9.1 | ppl 549 | num_updates 60 | train_wall 12")
    assert (old.kind, old.updates, old.values["loss"]) == ("epoch", 60, 9.1)
    old = read_record(
        "2020-01-01 | INFO | valid | epoch 003 | valid on 'valid1' subset | loss 9.1 | bleu 4.5 | num_updates 60"
    )
    assert (old.kind, old.subset, old.values["bleu"]) == ("valid", "valid1", 4.5)
    bar = read_record("epoch 002:  40%|####   | 20/265 [00:13<02:00, loss=9.1, num_updates=285, wpb=100.5]")
    assert (bar.kind, bar.updates, bar.values["wpb"]) == ("inner", 285, 100.5)
    assert read_record('{"epoch": 1, "valid_loss": "9') is None  # killed while writing
    assert read_record('{"epoch": 1, "valid_loss": null, "valid_num_updates": "5"}').values == {}


def test_an_interrupted_run_and_one_that_diverged(tmp_path):
    Writer(tmp_path / "a-1").start().inner(5, 2, 100, 2).valid(5, loss="nan", bleu=0.1).inner(10, 3, 100, 5).write()
    (run,) = find_runs([tmp_path])
    assert (run.state, run.seconds, run.log.mflop, run.log.trained) == ("interrupted", 5, 2 * 3.74, 1417344)


@pytest.mark.parametrize(
    "state, said, interrupted",
    [
        ("failed train 1\n", "interrupted: train failed with status 1", True),
        ("running train\n", "interrupted", True),
        ("", "interrupted", True),
    ],
)
def test_a_run_that_failed_in_a_sweep(state, said, interrupted, tmp_path):
    Writer(tmp_path / "a-1").start().inner(5, 2, 100, 2).valid(5, bleu=0.1).write()
    (tmp_path / "a-1" / "state").write_text(state)
    (run,) = find_runs([tmp_path])
    assert (run.state, run.interrupted) == (said, interrupted)


@pytest.mark.parametrize("state, said", [("running generate", "finished: generate interrupted"), ("done", "finished")])
def test_a_step_of_a_sweep_after_the_training(state, said, tmp_path):
    plain_run(tmp_path / "a-1", [10], [4]).write()
    (tmp_path / "a-1" / "state").write_text(f"{state}\n")
    (run,) = find_runs([tmp_path])
    assert (run.state, run.interrupted) == (said, False)


def test_a_recipe_in_a_sweep_has_its_log_one_folder_below_the_state(tmp_path):
    plain_run(tmp_path / "arm-1" / "mixing-T-1", [10], [4]).write()
    (tmp_path / "arm-1" / "state").write_text("failed bash 2\n")
    (run,) = find_runs([tmp_path])
    assert run.state == "finished"  # a file of that name alone does not make a sweep
    (tmp_path / "arm-1" / "command").write_text("bash run.sh\n")
    assert run.state == "finished: bash failed with status 2"


def test_a_printed_configuration():
    text = "{'_name': None, 'common': {'seed': 1, 'x': -0.5}, 'model': Namespace(a=relu, b=[1, 2]), 'c': <Enum.a: 3>, 'i': inf}"
    flat = flatten(parse(text))
    assert flat == {
        "_name": None, "common.seed": 1, "common.x": -0.5, "model.a": "relu", "model.b": "[1, 2]", "c": None, "i": "inf",
    }  # fmt: skip
    texts = {"unk": "<unk>", "quoted": "it's <b>", "escaped": "'\"<x>"}
    assert parse(str(texts)) == texts  # objects inside a text stay text
    for wrong in ("{'_name': ", "[1]", "__import__('os').system('false')"):
        with pytest.raises(ValueError, match="not a printed configuration"):
            parse(wrong)


def test_keys_by_their_end():
    configurations = [
        {"model.mask_keep_ratio": 0.5, "model.dropout": 0.1, "task.dropout": 0.1, "a.size": 1, "b.size": 2},
        {"model.mask_keep_ratio": 0.3},
    ]
    for name in ("keep_ratio", "--mask-keep-ratio"):
        assert find_key(name, configurations, "--against") == "model.mask_keep_ratio"
    assert find_key("dropout", configurations, "--against") == "model.dropout"
    with pytest.raises(
        InputError, match="--against size: matches several keys; write one of them in full: a.size, b.size"
    ):
        find_key("size", configurations, "--against")
    with pytest.raises(InputError, match="--against keep_rate: .* similar names: mask_keep_ratio"):
        find_key("keep_rate", configurations, "--against")


@pytest.mark.parametrize(
    "name, stem",
    [("depth-1/1", "depth-1"),
     ("dense-1", "dense"), ("dense/seed=1", "dense"), ("dense-seed1", "dense"), ("dense/1", "dense"), ("a-1/4e-3", "a/4e-3"),
     ("lr0.5-1", "lr0.5"), ("4e-1", "4e-1"), ("v11", "v11"), ("dropout0.1", "dropout0.1"), ("dense.1", "dense"),
     ("dense-2", "dense-2"), ("1", "1")],
)  # fmt: skip
def test_names_without_their_seed(name, stem):
    assert without_seed(name, 1) == stem


def test_one_log_per_folder(tmp_path):
    plain_run(tmp_path / "a-1", [10], [4]).write()
    plain_run(tmp_path / "a-1", [10], [4]).write("again.log")
    (tmp_path / "a-1" / "generate.log").write_text("T-0\tepoch\n")
    (tmp_path / "a-1" / "gone.log").symlink_to(tmp_path / "nowhere")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "preprocess.log").write_text("Namespace()\n")
    assert [run.log_file.name for run in find_runs([tmp_path, tmp_path / "a-1"])] == ["train.log"]
    with pytest.raises(
        InputError, match="RUNS .*bin: neither this folder nor a folder below it has a log of fairseq-train"
    ):
        find_runs([tmp_path / "bin"])
    with pytest.raises(InputError, match="RUNS .*nowhere: does not exist"):
        find_runs([tmp_path / "nowhere"])
    again = tmp_path / "a-1" / "again.log"
    assert [run.log_file for run in find_runs([again, again])] == [again]
    with pytest.raises(
        InputError, match="RUNS .*again.log: .*/a-1/train.log is the log of another run in the same folder"
    ):
        find_runs([tmp_path / "a-1" / "train.log", again])


def test_several_logs_in_one_folder_are_refused(tmp_path):
    """Unless one of them is called train.log."""
    for name in ("dense-1.log", "dense-2.log"):
        plain_run(tmp_path / "two", [10], [4]).write(name)
    with pytest.raises(
        InputError, match=r"RUNS .*two: dense-1.log and dense-2.log are both logs of training; give each run"
    ):
        find_runs([tmp_path])


def test_logs_of_other_commands_are_not_training_logs(tmp_path):
    """They begin with their configuration, as fairseq-train does. fairseq-validate also prints a similar line of results."""
    lines = plain_run(tmp_path / "a-1", [10], [4]).lines
    plain_run(tmp_path / "a-1", [10], [4]).write("training.log")
    begin, valid = lines[0], next(line for line in lines if "| valid |" in line)
    for program in ("generate", "eval_lm", "validate"):
        other = begin.replace("fairseq_cli.train", f"fairseq_cli.{program}")
        assert other != begin and looks_like_training(begin) and not looks_like_training(f"{other}\n{valid}")
        (tmp_path / "a-1" / f"{program}.log").write_text(f"{other}\n{valid}\n")
        (tmp_path / "a-1" / "test").mkdir(exist_ok=True)
        (tmp_path / "a-1" / "test" / f"{program}.log").write_text(f"{other}\n{valid}\n")
    assert [run.log_file.name for run in find_runs([tmp_path])] == ["training.log"]
    prepared = "2026-11-20 10:00:00 | INFO | fairseq_cli.preprocess | Namespace(no_progress_bar=False)"
    assert looks_like_training(f"{prepared}\n{begin}\n{valid}")  # a script that prepares data and trains


def test_a_decimal_at_the_end_of_a_name_is_not_a_seed(tmp_path):
    """Without a configuration in the log the seed is read from the folder's name."""
    for name in ("dropout0.1", "dropout0.2", "b-1", "b-2"):
        lines = [line for line in plain_run(tmp_path / name, [10], [4]).lines if "'_name'" not in line]
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.log").write_text("\n".join(lines))
    assert {run.name: run.seed for run in find_runs([tmp_path])} == {
        "dropout0.1": None,
        "dropout0.2": None,
        "b-1": 1,
        "b-2": 2,
    }


@pytest.mark.parametrize(
    "part",
    [
        "epoch 1:",
        "epoch 1 | ",
        "{'_name': ",
        "{'_name': 'common': ",
        '{"epoch": ',
        "Loaded checkpoint ",
        "epoch 1: num_updates=1 a",
        "epoch 1",
    ],
)
def test_a_line_of_a_megabyte_is_read_at_once(part):
    """A regular expression with two ".*" would take hours, quadratic in the length."""
    line, begin = part * (1_000_000 // len(part)), time.process_time()
    looks_like_training(line)
    read_log(line)
    assert time.process_time() - begin < 5


@pytest.mark.parametrize(
    "line",
    [
        '{"epoch": 1e999, "valid_num_updates": "20"}',
        '{"epoch": 1, "valid_num_updates": "1e999"}',
        '{"epoch": 1, "valid_loss": "9", "valid_num_updates": "nan"}',
        '{"epoch": [1], "valid_num_updates": "20"}',
        f'{{"epoch": {"9" * 5000}, "valid_num_updates": "20"}}',
        '{"epoch": ' + "[" * 100_000 + "}",
    ],
)
def test_very_long_numbers_are_not_records(line):
    assert read_record(line) is None


def test_very_long_amounts_are_left_out():
    record = read_record(
        '{"epoch": 1, "valid_loss": "inf", "valid_wall": "1e999", "valid_wpb": "-5", "valid_num_updates": "20"}'
    )
    assert record.values == {"loss": float("inf")} and record.updates == 20


@pytest.mark.parametrize(
    "line", ["total   ,   ,   ,.0", "backward 1.2.3 MFLOP/token", "num. shared model params: , (num. trained: ,)"]
)
def test_malformed_sizes_are_not_read(line):
    log = read_log(line)
    assert (log.parameters, log.mflop, log.table) == (None, None, False)
