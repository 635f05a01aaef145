"""``--optimizer freeze_skip`` in fairseq's trainer: the updated tensors, in every number format, after resuming, on several ranks."""

from unittest.mock import patch

import pytest
import torch
from fairseq.trainer import Trainer

from tests.support.commands import error_of, load, start_training, train

FORMATS = {
    "fp32": [],
    "fp16": ["--fp16", "--fp16-no-flatten-grads"],
    "memory-efficient-fp16": ["--memory-efficient-fp16"],
    "bf16": ["--bf16"],
    "amp": ["--amp"],
}
INNER = {
    "adam": ["--lr", 0.003, "--adam-betas", "(0.9, 0.98)"],
    "adafactor": ["--lr", 0.003, "--scale-parameter"],
    "nag": ["--lr", 0.1, "--momentum", 0.9],
}
# Two layers in each stack, and everything that could change a frozen tensor: weight decay, clipping, accumulated gradients.
MODEL = "--encoder-layers 2 --decoder-layers 2 --weight-decay 0.01 --clip-norm 0.5 --update-freq 2".split()
SCHEDULES = {
    "schedule": ["--freeze-schedule", "0:emb;3:encoder.layers.0,ffn;6:-emb"],
    "progressive": ["--freeze-progressive", "2:3"],
    "rotate": ["--freeze-rotate", "1:2"],
    "update every": ["--freeze-update-every", "ffn:3,emb:2"],
}


# One pair for each of fairseq's wrappers of an optimizer. tests/freezing/test_freeze_skip.py compares steps of all optimizers.
WRAPPED = [("fp32", "adafactor"), ("fp16", "adam"), ("memory-efficient-fp16", "adam"), ("amp", "adam")]


def optimizer(name, inner="adam"):
    return ["--optimizer", name, *INNER[inner]]


def pairs(formats, others, usual):
    """All pairs. Pairs that are not ``usual`` are slow tests."""
    for one in formats:
        for other in others:
            yield pytest.param(one, other, marks=[] if usual(one, other) else [pytest.mark.slow])


@pytest.mark.parametrize("number_format, inner", pairs(FORMATS, INNER, lambda *pair: pair in WRAPPED))
def test_without_a_schedule_it_is_the_optimizer_inside(toy_data, tmp_path, number_format, inner):
    flags = [*MODEL, *FORMATS[number_format], "--reservoir-encoder", "LT", "--max-update", 4, "--disable-validation"]
    bare = train(toy_data, *flags, *optimizer(inner, inner), "--save-dir", tmp_path / "bare")
    ours = train(toy_data, *flags, *optimizer(f"freeze_skip_{inner}", inner), "--save-dir", tmp_path / "ours")
    assert ours.losses == bare.losses and len(ours.losses) == 4
    first, second = load(tmp_path / "bare"), load(tmp_path / "ours")
    assert all(first["model"][name].equal(tensor) for name, tensor in second["model"].items())
    states = [checkpoint["last_optimizer_state"] for checkpoint in (first, second)]
    assert (
        repr(states[0]["param_groups"]) == repr(states[1]["param_groups"])
        and states[0]["state"].keys() == states[1]["state"].keys()
    )
    for one, other in zip(states[0]["state"].values(), states[1]["state"].values()):
        assert all(torch.equal(torch.as_tensor(one[key]), torch.as_tensor(other[key])) for key in one)


class Recording:
    """Records which parameters each update changed, trained and had optimizer state for."""

    def __init__(self):
        self.moved, self.trained, self.with_state = [], [], []
        plain = Trainer.train_step

        def train_step(trainer, samples, *args, **kwargs):
            parameters = dict(trainer.get_model().named_parameters())
            before = {name: p.detach().clone() for name, p in parameters.items()}
            self.trained.append({name for name, p in parameters.items() if p.requires_grad})
            result = plain(trainer, samples, *args, **kwargs)
            self.moved.append({name for name, p in parameters.items() if not p.equal(before[name])})
            inner = trainer.optimizer
            copies = getattr(inner, "fp32_params", None) or list(inner.optimizer.param_groups[0]["params"])
            names = list(trainer.scheduled)
            self.with_state.append({name for name, copy in zip(names, copies) if inner.optimizer.state.get(copy)})
            return result

        self.patch = patch.object(Trainer, "train_step", train_step)

    def __enter__(self):
        self.patch.start()
        return self

    def __exit__(self, *error):
        self.patch.stop()


def is_ffn(name):
    return ".fc1." in name or ".fc2." in name


def expected_idle(kind, update, names, rotated_out):
    """Expected (frozen, skipped) parameters of the schedules above, by hand."""
    emb = {name for name in names if "embed_tokens" in name}
    ffn = {name for name in names if is_ffn(name)}
    bottom = {name for name in names if ".layers.0." in name}
    if kind == "schedule":
        later = {name for name in bottom if name.startswith("encoder")} | ffn
        return (emb, set()) if update < 3 else (emb | later, set()) if update < 6 else (later, set())
    if kind == "progressive":
        return (set(), set()) if update < 2 else (bottom, set())
    if kind == "rotate":
        return rotated_out(update), set()
    return set(), (ffn if update % 3 else set()) | (emb if update % 2 else set())


@pytest.mark.parametrize(
    "number_format, kind",
    pairs(FORMATS, SCHEDULES, lambda form, kind: (form == "fp32") != (kind == "schedule") and form != "bf16"),
)
def test_each_tensor_changes_exactly_when_it_should(toy_data, number_format, kind):
    flags = [*MODEL, *FORMATS[number_format], *optimizer("freeze_skip"), *SCHEDULES[kind]]
    with Recording() as seen:
        run = train(toy_data, *flags, "--max-update", 9, "--no-save", "--disable-validation")
    names = {name for name, _ in run.model.named_parameters()}
    for update in range(9):
        frozen, skipped = expected_idle(kind, update, names, run.trainer.freeze_schedule.frozen)
        assert seen.trained[update] == names - frozen - skipped
        # The bias of keys has zero gradient, and stays at 0.
        quiet = {name for name in names if name.endswith("k_proj.bias")}
        assert seen.moved[update] <= seen.trained[update], update
        still = seen.trained[update] - seen.moved[update] - quiet
        assert not {name for name in still if name.endswith("weight") and "layer_norm" not in name}, (update, still)
        # After the update, its state is dropped for the next one.
        frozen_next, _ = expected_idle(kind, update + 1, names, run.trainer.freeze_schedule.frozen)
        assert not seen.with_state[update] & frozen_next
        assert seen.with_state[update] >= seen.trained[update] - frozen_next


# Updates after which a run is resumed: in each phase of the schedule, and within and between periods.
RESUMED = {"schedule": (2, 4, 7), "progressive": (4,), "rotate": (4, 7), "update every": (4, 7)}


def assert_resumes(data, folder, updates, *flags):
    """Assert that runs resumed after ``updates`` equal the whole run of 8 updates bit for bit."""
    flags = [*MODEL, *flags, "--max-update", 8, "--disable-validation", "--no-epoch-checkpoints"]
    whole = train(data, *flags, "--save-interval-updates", 1, "--save-dir", folder / "whole")
    expected = load(folder / "whole")
    for update in updates:
        begun = ["--restore-file", folder / "whole" / f"checkpoint_1_{update}.pt"]
        rest = train(data, *flags, *begun, "--save-dir", folder / str(update))
        assert len(rest.losses) == 8 - update and rest.losses == whole.losses[update:]
        assert_same_training(load(folder / str(update)), expected)


@pytest.mark.parametrize("kind", SCHEDULES)
def test_resuming_in_every_phase_is_bit_exact(toy_data, tmp_path, kind):
    assert_resumes(toy_data, tmp_path, RESUMED[kind], *optimizer("freeze_skip"), *SCHEDULES[kind])


def assert_same_training(*checkpoints):
    """Assert that two trainings have the same weights and optimizer state, bit for bit."""
    first, second = (checkpoint["model"] for checkpoint in checkpoints)
    assert first.keys() == second.keys() and all(first[name].equal(tensor) for name, tensor in second.items())
    assert_same_state(*checkpoints)


def assert_same_state(*checkpoints):
    first, second = (checkpoint["last_optimizer_state"]["state"] for checkpoint in checkpoints)
    assert first.keys() == second.keys()
    for i, state in second.items():
        assert state.keys() == first[i].keys() and state["exp_avg"].any()
        assert all(torch.equal(torch.as_tensor(first[i][key]), torch.as_tensor(value)) for key, value in state.items())


@pytest.mark.parametrize(
    "number_format", ["--memory-efficient-bf16", pytest.param("--memory-efficient-fp16", marks=pytest.mark.slow)]
)
def test_half_precision_resumes_in_every_phase_too(toy_data, tmp_path, number_format):
    flags = [number_format, *optimizer("freeze_skip"), *SCHEDULES["schedule"]]
    assert_resumes(toy_data, tmp_path, (4, 7), *flags)


@pytest.mark.parametrize("number_format", ["bf16", pytest.param("fp16", marks=pytest.mark.slow)])
def test_beside_fp32_copies_the_optimizers_state_is_resumed(toy_data, tmp_path, number_format):
    """fairseq saves half-precision weights, not their fp32 copies.

    One update after resuming, the moments equal those of the whole run, but the weights do not.
    """
    flags = [*MODEL, *FORMATS[number_format], *optimizer("freeze_skip"), *SCHEDULES["schedule"], "--disable-validation"]
    flags += ["--clip-norm", 0, "--max-update", 5]
    whole = train(toy_data, *flags, "--save-interval-updates", 4, "--save-dir", tmp_path / "whole")
    begun = ["--restore-file", tmp_path / "whole" / "checkpoint_1_4.pt"]
    rest = train(toy_data, *flags, *begun, "--save-dir", tmp_path / "part")
    assert rest.losses == whole.losses[4:]
    assert_same_state(load(tmp_path / "part"), load(tmp_path / "whole"))


def test_frozen_tensors_have_no_optimizer_state_in_the_checkpoint(toy_data, tmp_path):
    flags = [*MODEL, "--max-update", 4, "--disable-validation", *optimizer("freeze_skip")]
    run = train(toy_data, *flags, "--freeze-schedule", "0:encoder;2:decoder.ffn", "--save-dir", tmp_path)
    state = load(tmp_path)["last_optimizer_state"]["state"]
    trained = [p.numel() for n, p in run.model.named_parameters() if not n.startswith("encoder") and not is_ffn(n)]
    assert sum(value["exp_avg"].numel() for value in state.values()) == sum(trained) > 0


@pytest.mark.parametrize("arch", ["transformer", "supermask_one_layer_transformer --mask-embeddings trained"])
def test_recomputed_layers_above_frozen_embeddings_are_trained(toy_data, arch):
    """fairseq's activation checkpointing gives no gradient to a layer without any input that needs one."""
    flags = [
        *MODEL,
        *f"--arch {arch}".split(),
        "--checkpoint-activations",
        *optimizer("freeze_skip"),
        "--freeze-schedule",
        "0:emb",
    ]
    run = train(toy_data, *flags, "--max-update", 3, "--no-save", "--disable-validation")
    moved = {name for name, p in run.model.named_parameters() if not p.equal(run.initial[name])}
    assert not any("embed_tokens" in name for name in moved)
    for place in ("encoder.layers.0", "encoder.layers.1", "decoder.layers.0", "decoder.layers.1"):
        assert any(name.startswith(place) for name in moved), place


def test_two_processes_are_one(toy_data, tmp_path):
    flags = "--encoder-layers 2 --decoder-layers 2 --batch-size 8 --dropout 0 --max-epoch 1 --lr 0.001 --disable-validation".split()
    flags += ["--optimizer", "freeze_skip", *SCHEDULES["schedule"], "--freeze-update-every", "decoder.att:2"]
    alone = train(toy_data, *flags, "--update-freq", 2, "--save-dir", tmp_path / "one")
    ended = start_training(
        toy_data, *flags, "--distributed-world-size", 2, "--ddp-backend", "legacy_ddp", "--save-dir", tmp_path / "two"
    )
    assert ended.returncode == 0, ended.stderr
    one, two = load(tmp_path / "one"), load(tmp_path / "two")
    assert two["optimizer_history"][-1]["num_updates"] == 10
    for name, _ in alone.model.named_parameters():
        torch.testing.assert_close(two["model"][name], one["model"][name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "flags, message",
    [
        (
            ["--freeze-schedule", "5:emb", "--quantization-config-path", "pq.yaml"],
            "--freeze-schedule with --quantization-config-path pq.yaml: code books would replace frozen",
        ),
        (
            ["--freeze-schedule", "5:emb", "--fp16"],
            "--freeze-schedule with --fp16: fairseq's flat buffer would mix up the gradients; add --fp16-no",
        ),
        (
            ["--freeze-rotate", "1:2", "--distributed-world-size", 2],
            "--freeze-rotate with --ddp-backend pytorch_ddp: this backend always sums",
        ),
        (
            ["--freeze-rotate", "1:2", "--ddp-backend", "fully_sharded"],
            "--freeze-rotate with --ddp-backend fully_sharded: this backend always sums",
        ),
        (
            ["--freeze-update-every", "ffn:2", "--use-bmuf"],
            "--freeze-update-every with --use-bmuf: its block momentum would change frozen parameters",
        ),
        (["--freeze-schedule", "5:encoder,decoder"], "nothing is trained at update 5"),
        (["--freeze-schedule", "5:emb;3:ffn"], "update 3 comes after update 5; sort the entries by update"),
        (["--freeze-update-every", "ffn"], "'ffn' is not COMPONENT:N"),
        (
            ["--freeze-rotate", "1:2", "--fp16", "--fp16-no-flatten-grads", "--debug-param-names"],
            "--debug-param-names: fairseq reads gradients of frozen parameters",
        ),
        (["--freeze-rotate", "13:2"], "--freeze-rotate 13:2: the model has only 4 layers"),
    ],
)
def test_bad_input(toy_data, tmp_path, flags, message):
    line, status = error_of(
        toy_data, "--optimizer", "freeze_skip", *flags, "--max-update", 2, "--save-dir", tmp_path / "out"
    )
    assert status != 0 and message in line and line.count("\n") == 1
    assert not list(tmp_path.glob("out/*"))
