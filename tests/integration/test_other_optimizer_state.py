"""A checkpoint with optimizer state that does not fit the run is refused in one line, unless the state is reset."""

import shutil

import pytest
import torch

from fairseq_reservoir.trainer import resuming
from tests.support.commands import error_of, load, train

RUN = "--encoder-layers 2 --decoder-layers 1 --max-update 2 --disable-validation --no-epoch-checkpoints".split()
SKIP = [*RUN, "--optimizer", "freeze_skip"]
SCHEDULE = ["--freeze-schedule", "1:emb"]


def folder_of(toy_data, tmp_path_factory, *flags):
    folder = tmp_path_factory.mktemp("begun")
    train(toy_data, *flags, "--save-dir", folder)
    return folder


@pytest.fixture(scope="module")
def scheduled(toy_data, tmp_path_factory):
    return folder_of(toy_data, tmp_path_factory, *SKIP, *SCHEDULE, "--freeze-update-every", "ffn:2")


@pytest.fixture(scope="module")
def rotated(toy_data, tmp_path_factory):
    return folder_of(toy_data, tmp_path_factory, *SKIP, "--freeze-rotate", "1:2")


@pytest.fixture(scope="module")
def plain(toy_data, tmp_path_factory):
    return folder_of(toy_data, tmp_path_factory, "--arch", "transformer", *RUN)


def refusal(toy_data, folder, tmp_path, *flags):
    last = folder / "checkpoint_last.pt"
    line, status = error_of(toy_data, *flags, "--restore-file", last, "--max-update", 3, "--save-dir", tmp_path)
    assert status != 0 and line.count("\n") == 1 and not list(tmp_path.glob("*.pt"))
    return line.replace(str(last), "LAST").removeprefix("fairseq-train: error: ").strip()


SAME = "add --reset-optimizer, or start a new training without that checkpoint"
CHANGES = {
    "another update": (
        ["--freeze-schedule", "2:emb"],
        f"--freeze-schedule 2:emb: the checkpoint was trained with 1:emb; give 1:emb, {SAME}",
    ),
    "none": ([], f"--freeze-schedule not given: the checkpoint was trained with 1:emb; give 1:emb, {SAME}"),
    "another period": (
        [*SCHEDULE, "--freeze-update-every", "ffn:3"],
        f"--freeze-update-every ffn:3: the checkpoint was trained with ffn:2; give ffn:2, {SAME}",
    ),
    "one more": (
        [*SCHEDULE, "--freeze-update-every", "ffn:2", "--freeze-progressive", "5:5"],
        f"--freeze-progressive 5:5: the checkpoint was trained without this flag; remove it, {SAME}",
    ),
}


# The others give the same messages with another flag or update.
USUAL = ("none", "one more")


@pytest.mark.parametrize(
    "change", [change if change in USUAL else pytest.param(change, marks=pytest.mark.slow) for change in CHANGES]
)
def test_another_schedule(toy_data, scheduled, tmp_path, change):
    flags, expected = CHANGES[change]
    assert refusal(toy_data, scheduled, tmp_path, *SKIP, *flags) == expected


def test_a_checkpoint_found_in_the_folder_needs_another_folder(toy_data, tmp_path):
    train(toy_data, *SKIP, *SCHEDULE, "--max-update", 1, "--save-dir", tmp_path)
    line, _ = error_of(toy_data, *SKIP, "--freeze-schedule", "2:emb", "--max-update", 2, "--save-dir", tmp_path)
    assert line.endswith("give 1:emb, add --reset-optimizer, or start a new training in another --save-dir\n")


def test_a_plain_training_of_its_own(toy_data, tmp_path):
    train(toy_data, "--arch", "transformer", *RUN, "--save-dir", tmp_path)
    line, _ = error_of(toy_data, *RUN, "--freeze", "encoder.layers.1", "--max-update", 3, "--save-dir", tmp_path)
    assert line.endswith(", and give another --save-dir\n")


def test_a_folder_that_holds_another_training(toy_data, plain, scheduled, tmp_path):
    """Without ``--restore-file``, training would resume from it."""
    shutil.copy(plain / "checkpoint_last.pt", tmp_path)
    restore = ["--restore-file", scheduled / "checkpoint_last.pt", "--max-update", 3, "--save-dir", tmp_path]
    line, _ = error_of(toy_data, *SKIP, "--freeze-schedule", "2:emb", *restore)
    assert line.endswith("or start a new training in another --save-dir\n")


def test_another_rotation(toy_data, rotated, tmp_path):
    found = refusal(toy_data, rotated, tmp_path, *SKIP, "--freeze-rotate", "1:3")
    assert found == f"--freeze-rotate 1:3: the checkpoint was trained with 1:2; give 1:2, {SAME}"
    found = refusal(toy_data, rotated, tmp_path, *SKIP, "--freeze-rotate", "1:2", "--seed", 5, "--reservoir-seed", 3)
    assert found == f"--seed 5: the checkpoint was trained with 3; give 3, {SAME}"


# fairseq compares only the names of its own wrappers, which are the same for different optimizers inside.
HIDING = [
    "--amp",
    "--bf16",
    *(pytest.param(f, marks=pytest.mark.slow) for f in ("--fp16 --fp16-no-flatten-grads", "--memory-efficient-bf16")),
]


@pytest.mark.parametrize("number_format", HIDING)
def test_a_schedule_where_the_optimizers_class_is_hidden(toy_data, tmp_path, number_format):
    run = [*RUN, *number_format.split(), "--max-update", 1]
    train(toy_data, *run, "--optimizer", "freeze_skip", *SCHEDULE, "--save-dir", tmp_path / "begun")
    found = refusal(
        toy_data, tmp_path / "begun", tmp_path, *run, "--optimizer", "freeze_skip", "--freeze-schedule", "1:ffn"
    )
    assert found == f"--freeze-schedule 1:ffn: the checkpoint was trained with 1:emb; give 1:emb, {SAME}"
    found = refusal(toy_data, tmp_path / "begun", tmp_path, *run, "--optimizer", "adam")
    trained = "freeze_skip_adam --freeze-schedule 1:emb"
    assert found == f"--optimizer adam: the checkpoint was trained with {trained}; give {trained}, {SAME}"


def test_a_plain_optimizers_state_where_its_class_is_hidden(toy_data, tmp_path):
    train(toy_data, *RUN, "--bf16", "--max-update", 1, "--save-dir", tmp_path / "begun")
    found = refusal(toy_data, tmp_path / "begun", tmp_path, *SKIP, "--bf16", *SCHEDULE)
    assert found == f"--freeze-schedule 1:emb: the checkpoint was trained without this flag; remove it, {SAME}"


def test_a_file_of_amp_from_before_it_named_the_schedule(toy_data, tmp_path):
    flags = [*SKIP, "--amp", *SCHEDULE, "--save-dir", tmp_path]
    train(toy_data, *flags)
    older = torch.load(tmp_path / "checkpoint_last.pt")
    del older["last_optimizer_state"]["freeze_skip"]
    torch.save(older, tmp_path / "checkpoint_last.pt")
    run = train(toy_data, *flags, "--max-update", 3)
    assert len(run.losses) == 1 and load(tmp_path)["last_optimizer_state"]["freeze_skip"] == {
        "freeze_schedule": "1:emb"
    }


@pytest.mark.parametrize(
    "number_format",
    [
        pytest.param([], marks=pytest.mark.slow),
        pytest.param(["--bf16"], marks=pytest.mark.slow),
        ["--memory-efficient-bf16"],
    ],
    ids=str,
)
def test_without_its_state_another_schedule_may_follow(toy_data, scheduled, tmp_path, number_format):
    flags = [
        *SKIP,
        *number_format,
        "--freeze-schedule",
        "2:ffn",
        "--reset-optimizer",
        "--restore-file",
        scheduled / "checkpoint_last.pt",
    ]
    train(toy_data, *flags, "--max-update", 3, "--save-dir", tmp_path)
    assert load(tmp_path)["last_optimizer_state"]["freeze_skip"] == {"freeze_schedule": "2:ffn"}
    run = train(
        toy_data, *SKIP, *number_format, "--freeze-schedule", "2:ffn", "--max-update", 4, "--save-dir", tmp_path
    )
    assert len(run.losses) == 1


def test_a_plain_checkpoint_with_something_frozen(toy_data, plain, tmp_path):
    found = refusal(toy_data, plain, tmp_path / "new", *RUN, "--freeze", "encoder.layers.1")
    assert found == (
        "--restore-file LAST: its optimizer state is for different parameters. To continue without this state, add --reset-optimizer. "
        "To start a new training, replace --restore-file with --finetune-from-model LAST"
    )


@pytest.mark.parametrize("size, fits", [(5, True), (4, False)])
def test_a_flat_buffer_that_has_become_shorter(size, fits):
    """fairseq's flat fp16 buffer is one parameter, with or without frozen tensors."""
    state = {"step": 3, "exp_avg": torch.zeros(5), "exp_avg_sq_row": torch.zeros(1)}
    saved = {"state": {0: state}, "param_groups": [{"params": [0]}]}
    assert resuming._fits(saved, [{"params": [torch.zeros(size)]}]) is fits


def test_the_remedy_of_the_message_works(toy_data, plain, tmp_path):
    last = plain / "checkpoint_last.pt"
    for i, flags in enumerate((["--restore-file", last, "--reset-optimizer"], ["--finetune-from-model", last])):
        run = train(toy_data, *RUN, "--freeze", "encoder.layers.1", *flags, "--save-dir", tmp_path / str(i))
        assert torch.equal(
            run.weights["encoder.layers.1.fc1.weight"], load(plain)["model"]["encoder.layers.1.fc1.weight"]
        )


def test_another_optimizer(toy_data, plain, tmp_path):
    found = refusal(toy_data, plain, tmp_path, "--arch", "transformer", *SKIP)
    assert found.startswith(
        "--restore-file LAST: Optimizer does not match; please reset the optimizer (--reset-optimizer). FairseqAdam vs"
    )


def test_adagrad_thaws_where_torch_makes_its_state_when_it_is_built_only(toy_data, tmp_path, monkeypatch):
    """Older versions of torch need ``sum`` in every parameter's state; newer versions create it."""
    flags = [*RUN, "--optimizer", "freeze_skip_adagrad", "--freeze-schedule", "1:emb;3:-emb", "--max-update", 5]
    expected = train(toy_data, *flags, "--save-interval-updates", 3, "--save-dir", tmp_path / "whole")
    make_missing = torch.optim.Adagrad._init_group

    def init_group(self, group, *args):
        assert all("sum" in self.state[p] for p in group["params"] if p.grad is not None)
        return make_missing(self, group, *args)

    monkeypatch.setattr(torch.optim.Adagrad, "_init_group", init_group)
    begun = ["--restore-file", tmp_path / "whole" / "checkpoint_1_3.pt", "--save-dir", tmp_path]
    resumed = train(toy_data, *flags, *begun)
    assert len(resumed.losses) == 2 and resumed.losses == expected.losses[3:]
    assert all(resumed.weights[name].equal(tensor) for name, tensor in expected.weights.items())
