"""Averages of checkpoints: scores are averaged, random tensors keep their bits, other models are refused."""

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_reservoir import cli
from fairseq_reservoir.checkpoint.export import export
from fairseq_reservoir.errors import InputError
from fairseq_reservoir.masks.masked_weight import masked_modules
from tests.support.commands import train

ARCH = "--arch supermask_one_layer_transformer --encoder-layers 2 --decoder-layers 1 --share-decoder-input-output-embed".split()


@pytest.fixture(scope="module")
def run(toy_data, tmp_path_factory):
    """A folder with checkpoints of 1 and 2 updates, and one of another seed."""
    folder = tmp_path_factory.mktemp("run")
    flags = "--disable-validation --save-interval-updates 1 --no-epoch-checkpoints --no-last-checkpoints --max-update 2"
    flags = [*ARCH, *flags.split()]
    train(toy_data, *flags, "--save-dir", folder)
    train(toy_data, *flags, "--seed", 4, "--save-dir", folder / "other")
    return folder


@pytest.fixture(scope="module")
def mean(run):
    cli.main(["average", str(run / "checkpoint_1_1.pt"), str(run / "checkpoint_1_2.pt"), str(run / "mean.pt")])
    return run / "mean.pt"


def refusal(*words):
    with pytest.raises(SystemExit) as leaving:
        cli.main(["average", *map(str, words)])
    assert "\n" not in str(leaving.value)
    return str(leaving.value)


def test_scores_are_averaged_and_random_tensors_keep_their_bits(run, mean):
    first, last, result = (
        torch.load(path)["model"] for path in (run / "checkpoint_1_1.pt", run / "checkpoint_1_2.pt", mean)
    )
    assert result.keys() == last.keys()
    for name, tensor in result.items():
        if name.endswith(".scores") or "layer_norm" in name:
            # computed in float64 and rounded once
            assert tensor.equal(((first[name].double() + last[name].double()) / 2).float()), name
            assert not tensor.equal(last[name])
        else:
            assert tensor.equal(first[name]) and tensor.equal(last[name]), name
    assert sum("random_layer" in name for name in result) == 6 + 10


def test_the_mask_is_that_of_the_mean_scores(mean):
    (model,), _ = checkpoint_utils.load_model_ensemble([str(mean)])
    fc1 = masked_modules(model.eval())["encoder.layers.0.fc1"]
    # half of the 24 x 16 weights of fc1 are kept
    largest = fc1.scores.detach().abs().flatten().topk(192).indices
    assert set(fc1.mask.flatten().nonzero().flatten().tolist()) == set(largest.tolist())


def test_it_translates_and_starts_a_training(mean, translate, toy_data):
    assert len([line for line in translate(mean) if line.startswith("H-")]) == 8
    state = torch.load(mean)
    assert state["optimizer_history"][-1]["num_updates"] == 2 and "last_optimizer_state" not in state
    start = ["--finetune-from-model", mean, "--max-update", 1, "--no-save", "--disable-validation"]
    run = train(toy_data, *ARCH, *start)
    assert len(run.losses) == 1 and run.weights["encoder.random_layer.fc1"].equal(
        state["model"]["encoder.random_layer.fc1"]
    )


def test_refusals(run, toy_data, tmp_path):
    last, out = run / "checkpoint_1_2.pt", tmp_path / "mean.pt"
    assert (
        f"CHECKPOINT {run / 'other' / 'checkpoint_1_2.pt'}: trained with mask_seed 4, but {last} was trained with 3"
        in refusal(last, run / "other" / "checkpoint_1_2.pt", out)
    )
    assert "an average needs two or more" in refusal(last, out)
    exported = tmp_path / "a.safetensors"
    export(last, exported)
    assert "is an export, which has no mask scores; average the original checkpoints" in refusal(last, exported, out)
    state = torch.load(last)
    state["model"]["encoder.random_layer.fc1"][0, 0] += 1
    torch.save(state, tmp_path / "altered.pt")
    assert "its random tensor encoder.random_layer.fc1 differs from that of" in refusal(
        last, tmp_path / "altered.pt", out
    )
    state["model"]["encoder.random_layer.fc1"][0, 0] -= 1
    state["model"]["encoder.layers.0.fc1.scores"][0, 0] = torch.nan
    torch.save(state, tmp_path / "nan.pt")
    assert f"CHECKPOINT {tmp_path}/nan.pt: encoder.layers.0.fc1.scores contains NaN" in refusal(
        last, tmp_path / "nan.pt", out
    )
    before = (run / "checkpoint_1_1.pt").read_bytes()
    again = [run / "checkpoint_1_1.pt", last, run / ".." / run.name / "checkpoint_1_1.pt", "--force"]
    assert "checkpoint_1_1.pt: is also an input file; choose another name" in refusal(*again)
    assert (run / "checkpoint_1_1.pt").read_bytes() == before
    out.write_text("old")
    assert "exists; --force replaces it" in refusal(last, run / "checkpoint_1_1.pt", out)
    assert out.read_text() == "old"


SMALL = "--encoder-layers 1 --decoder-layers 1 --disable-validation --no-epoch-checkpoints --save-interval-updates 1".split()


def without_mark(path):
    """Remove the run id, as in checkpoints of plain fairseq and of earlier versions."""
    state = torch.load(path)
    del state["extra_state"]["fairseq_reservoir"]
    path = path.with_name(f"unmarked_{path.name}")
    torch.save(state, path)
    return path


def assert_other_seeds_are_refused(one, two, out):
    assert f"CHECKPOINT {two}: from a different training run than {one}; average checkpoints of one run" in refusal(
        one, two, out
    )
    unmarked = without_mark(one)
    assert f"CHECKPOINT {two}: trained with --seed 2, but {unmarked} was trained with 1; average" in refusal(
        unmarked, two, out
    )
    assert not out.exists()


@pytest.mark.parametrize(
    "flags", [pytest.param([], marks=pytest.mark.slow), ["--arch", "transformer_tiny"]], ids=" ".join
)
def test_runs_of_other_seeds(flags, toy_data, tmp_path):
    """Models of only L and fairseq's own have no random tensors of this plugin."""
    for seed in (1, 2):
        train(toy_data, *flags, *SMALL, "--seed", seed, "--max-update", 1, "--save-dir", tmp_path / f"{seed}")
    one, two = (tmp_path / f"{seed}" / "checkpoint_1_1.pt" for seed in (1, 2))
    assert_other_seeds_are_refused(one, two, tmp_path / "mean.pt")


def test_frozen_tensors_are_those_of_the_run(toy_data, tmp_path):
    """--freeze freezes tensors drawn by --seed."""
    for seed in (1, 2):
        flags = f"--freeze emb --seed {seed} --max-update {3 - seed}".split()
        train(toy_data, *SMALL, *flags, "--save-dir", tmp_path / f"{seed}")
    one, two = (tmp_path / "1" / f"checkpoint_1_{update}.pt" for update in (1, 2))
    assert_other_seeds_are_refused(one, tmp_path / "2" / "checkpoint_1_1.pt", tmp_path / "mean.pt")
    state = torch.load(two)
    state["model"]["encoder.embed_tokens.weight"][0, 0] += 1
    torch.save(state, two)
    assert "its frozen tensor encoder.embed_tokens.weight differs from that of" in refusal(
        one, two, tmp_path / "mean.pt"
    )


def test_a_resumed_run_is_one_run(toy_data, tmp_path):
    """Also with another --seed, with epoch 1 again, in another folder, and without a run id in its first part.

    A training from its weights only is another run. The mean stores tied tensors once.
    """
    small = [*SMALL, "--share-all-embeddings"]
    first, second = tmp_path / "first" / "checkpoint_1_1.pt", tmp_path / "second" / "checkpoint_1_2.pt"
    train(toy_data, *small, "--max-update", 1, "--save-dir", first.parent)
    on = [*small, "--max-update", 2]
    elsewhere = ["--seed", 9, "--reset-dataloader", "--restore-file", first, "--save-dir", second.parent]
    train(toy_data, *on, *elsewhere)
    cli.main(["average", str(first), str(second), str(tmp_path / "mean.pt")])
    mean = torch.load(tmp_path / "mean.pt")
    assert set(mean["extra_state"]["fairseq_reservoir"]) == {"dictionaries"}
    names = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "decoder.output_projection.weight")
    assert len({mean["model"][name].data_ptr() for name in names}) == 1
    train(toy_data, *on, "--restore-file", without_mark(first), "--save-dir", tmp_path / "third")
    cli.main(
        ["average", str(without_mark(first)), str(tmp_path / "third" / "checkpoint_1_2.pt"), str(tmp_path / "other.pt")]
    )
    train(toy_data, *on, "--finetune-from-model", first, "--save-dir", tmp_path / "tuned")
    tuned = tmp_path / "tuned" / "checkpoint_1_2.pt"
    assert f"CHECKPOINT {tuned}: from a different training run than {first}" in refusal(
        first, tuned, tmp_path / "no.pt"
    )
    unmarked = without_mark(first)  # as a mean; whichever is the first, no two of the others may be of two runs
    assert "from a different training run" in refusal(unmarked, first, tuned, tmp_path / "no.pt")


def test_a_mean_of_other_seeds_made_elsewhere_does_not_load(run, tmp_path):
    """Seeds 3 and 4 differ in one digit. fairseq's script rounds the mean of their codes down, to seed 3."""
    ours, other = torch.load(run / "checkpoint_1_2.pt"), torch.load(run / "other" / "checkpoint_1_2.pt")
    name = "reservoir_version"
    assert ours["model"][name].shape == other["model"][name].shape
    ours["model"][name] = (ours["model"][name] + other["model"][name]) // 2
    torch.save(ours, tmp_path / "mean.pt")
    with pytest.raises(InputError, match="reservoir_version: the checkpoint's description of its model is damaged"):
        checkpoint_utils.load_model_ensemble([str(tmp_path / "mean.pt")])
