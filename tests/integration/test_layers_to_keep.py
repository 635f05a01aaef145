"""After training with --encoder-layers-to-keep, every command reads the checkpoint as a pruned model."""

from functools import partial

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_reservoir.checkpoint.average import average
from fairseq_reservoir.checkpoint.export import export
from fairseq_reservoir.checkpoint.materialize import materialize
from fairseq_reservoir.checkpoint.meta_checkpoint import open_checkpoint
from fairseq_reservoir.errors import InputError
from fairseq_reservoir.freezing.description import BUFFER
from tests.support.building import build, build_roberta, build_supermask, pad, sentences, shift
from tests.support.commands import error_of, load, train

KEEP = "--encoder-layers-to-keep 0,2 --decoder-layers-to-keep 1"
# The kept layers are numbers 0 and 2 of the encoder and 1 of the decoder. Names and seeds use these numbers.
MODELS = {
    "reservoir": "--reservoir-encoder LFT --reservoir-decoder LT",
    "supermask": "--arch supermask_one_layer_transformer --encoder-layers 3 --decoder-layers 2 --mask-share none",
    "frozen": "--arch frozen_transformer --encoder-layers 3 --decoder-layers 2 --freeze encoder.layers.2.ffn,decoder.layers.1.self_att",
}
RUN = "--no-epoch-checkpoints --disable-validation --lr 0.003 --share-decoder-input-output-embed".split()


@pytest.fixture(scope="module")
def whole(toy_data, tmp_path_factory):
    """Return a function that returns the folder of a model's run with all layers."""
    folders = {}

    def get(model):
        if model not in folders:
            folders[model] = tmp_path_factory.mktemp("whole")
            train(toy_data, *MODELS[model].split(), *RUN, "--max-update", 3, "--save-dir", folders[model])
        return folders[model]

    return get


def models_and_ways():
    """All pairs. By default each model and each way once."""
    usual = {("reservoir", "of a trained model"), ("supermask", "from the start")}
    for model in MODELS:
        for way in ("from the start", "of a trained model"):
            marks = [] if (model, way) in usual else [pytest.mark.slow]
            yield pytest.param((model, way), marks=marks, id=f"{model} {way}")


@pytest.fixture(scope="module", params=models_and_ways())
def pruned(request, whole, toy_data, tmp_path_factory):
    """Flags of the pruned model, its run, and its checkpoint."""
    model, way = request.param
    flags, out = [*MODELS[model].split(), *RUN, *KEEP.split()], tmp_path_factory.mktemp("pruned")
    begin = [] if way == "from the start" else ["--finetune-from-model", whole(model) / "checkpoint_last.pt"]
    run = train(toy_data, *flags, *begin, "--max-update", 3, "--save-dir", out)
    if begin:  # it started from the layers of the whole model
        before = load(whole(model))["model"]
        for place, origin in (("encoder.layers.0.", "encoder.layers.0."), ("encoder.layers.1.", "encoder.layers.2.")):
            frozen = [e.name for e in run.model.slot_table.entries if not e.trained and e.name.startswith(place)]
            assert all(run.weights[name].equal(before[name.replace(place, origin, 1)]) for name in frozen)
    return flags, run, out / "checkpoint_last.pt"


def answer(path, **overrides):
    (model,), _ = checkpoint_utils.load_model_ensemble([str(path)], arg_overrides=overrides)
    with torch.no_grad():
        return model.eval()(pad(sentences(3, 6)) % 12, torch.tensor([3, 6]), shift(pad(sentences(4, 5, seed=2)) % 12))[
            0
        ]


def test_it_is_loaded_as_it_was_trained_and_translates(run_fairseq, toy_data, pruned, tmp_path):
    _, run, path = pruned
    (model,), _ = checkpoint_utils.load_model_ensemble([str(path)])
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (2, 1)
    assert model.slot_table == run.model.slot_table
    assert all(tensor.equal(run.weights[name]) for name, tensor in model.state_dict().items())
    run_fairseq("generate", toy_data, "--path", path, "--results-path", tmp_path, "--cpu")
    assert "BLEU4" in (tmp_path / "generate-test.txt").read_text()


def test_it_is_resumed_with_the_same_layers_only(toy_data, pruned, tmp_path):
    flags, _, path = pruned
    goes_on = train(toy_data, *flags, "--restore-file", path, "--max-update", 5, "--save-dir", tmp_path)
    assert goes_on.trainer.get_num_updates() == 5
    assert answer(tmp_path / "checkpoint_last.pt").isfinite().all()
    for keep, given in (("0,1", "0,1"), (None, "not given")):
        with pytest.raises(
            InputError, match=f"--encoder-layers-to-keep {given}: the checkpoint was trained with 0,2; give 0,2"
        ):
            checkpoint_utils.load_model_ensemble([str(path)], arg_overrides={"encoder_layers_to_keep": keep})


def test_it_is_exported_and_materialized(pruned, toy_data, tmp_path):
    _, run, path = pruned
    assert {name: t.shape for name, t in open_checkpoint(path).model.state_dict().items()} == {
        n: t.shape for n, t in run.weights.items()
    }
    export(path, tmp_path / "model.safetensors")
    data = str(toy_data)  # not stored in an export
    assert answer(tmp_path / "model.safetensors", data=data).equal(answer(path))
    materialize(tmp_path / "model.safetensors", tmp_path / "plain.pt")
    assert torch.load(tmp_path / "plain.pt", weights_only=True)["args"].encoder_layers == 2
    assert torch.allclose(answer(tmp_path / "plain.pt", data=data), answer(path), atol=1e-5)
    average([path, path], tmp_path / "mean.pt")
    assert answer(tmp_path / "mean.pt").equal(answer(path))


def test_pruned_layers_are_drawn_as_in_training(pruned, tmp_path):
    written = export(pruned[2], tmp_path / "model.safetensors", regenerate=True)
    assert written.stored == 0


@pytest.mark.parametrize("adapter", ["lora", "vera"])
def test_adapters_are_added_to_the_layers_that_are_kept_of_a_whole_model(adapter):
    whole = build("LLL")
    adapted = build("LLL", encoder_layers_to_keep="0,2", freeze="encoder.ffn", frozen_adapter=adapter)
    adapted.load_state_dict(whole.state_dict())
    for ours, theirs in ((0, 0), (1, 2)):
        assert adapted.encoder.layers[ours].fc1.weight.equal(whole.encoder.layers[theirs].fc1.weight)


@pytest.mark.parametrize("keep", ["0,1", "0,2", "1,2", "1"])
def test_kept_layers_of_a_plain_checkpoint(keep):
    """T has its number from the whole model and accepts only its own values. An error names its letter and number."""
    whole = build("LTL").state_dict()
    plain = {name: tensor for name, tensor in whole.items() if name != BUFFER}
    build("LTL", encoder_layers_to_keep=keep).load_state_dict(dict(plain))
    if "1" in keep:
        other = {name: tensor + 1 for name, tensor in plain.items()}
        with pytest.raises(
            InputError, match="--reservoir-encoder LTL: T is a random layer.* --freeze encoder.layers.1$"
        ):
            build("LTL", encoder_layers_to_keep=keep).load_state_dict(other)


def test_kept_layers_of_an_old_checkpoint_of_a_roberta():
    """Old checkpoints name the encoder's stack "decoder"."""
    whole = build_roberta("frozen_roberta", encoder_layers=3).state_dict()
    old = {name.replace("encoder.", "decoder.", 1): tensor for name, tensor in whole.items() if name != BUFFER}
    model = build_roberta("frozen_roberta", encoder_layers=3, encoder_layers_to_keep="0,2", torch_seed=2)
    model.load_state_dict(old)
    layer, number = "encoder.sentence_encoder.layers.1.fc1.weight", "encoder.sentence_encoder.layers.2.fc1.weight"
    assert model.state_dict()[layer].equal(whole[number])


def test_layernorms_that_were_trained_within_frozen_layers_are_taken():
    state = build("LT", reservoir_train_layernorm=True).state_dict()
    name = "encoder.layers.1.final_layer_norm.weight"
    state[name] = state[name] + 1
    model = build("LT")
    model.load_state_dict(dict(state))
    assert model.state_dict()[name].equal(state[name])


def test_a_layer_named_twice_is_refused(toy_data):
    expected = "--encoder-layers-to-keep '0,0': give layer numbers between 0 and 2 without repeats, for example 0,2"
    for given in ("0,0", ":"):
        error, status = error_of(toy_data, *MODELS["frozen"].split(), "--encoder-layers-to-keep", given, "--no-save")
        assert (error, status) == (f"fairseq-train: error: {expected.replace('0,0', given)}\n", 2)
    for make in (partial(build, "LFT"), build_supermask):
        with pytest.raises(InputError, match=expected):
            make(encoder_layers_to_keep="0,0")


def test_global_masks_cannot_be_pruned():
    whole, keep = build_supermask(mask_scope="global"), {"encoder_layers_to_keep": "0,2"}
    with pytest.raises(
        InputError, match="^--encoder-layers-to-keep 0,2: with --mask-scope global the scores of all layers are"
    ):
        build_supermask(mask_scope="global", **keep).load_state_dict(whole.state_dict())
    pruned = build_supermask(mask_scope="global", torch_seed=2, **keep)
    build_supermask(mask_scope="global", **keep).load_state_dict(pruned.state_dict())
    build_supermask(mask_scope="row", **keep).load_state_dict(build_supermask(mask_scope="row").state_dict())
