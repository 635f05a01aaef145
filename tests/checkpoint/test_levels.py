"""Models of rounded weights through fairseq's commands: trained, resumed, translated, exported, materialized, measured."""

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_reservoir import cli
from fairseq_reservoir.checkpoint import packed_file, read_state_dict
from fairseq_reservoir.checkpoint.export import export
from fairseq_reservoir.checkpoint.meta_checkpoint import open_checkpoint
from fairseq_reservoir.errors import InputError
from fairseq_reservoir.masks.rounded_weight import rounded_modules
from tests.support.commands import error_of, train

ARCH = "--arch supermask_one_layer_transformer --encoder-layers 3 --decoder-layers 2 --share-decoder-input-output-embed".split()
OWN = ["--mask-trained-weights", "16", "--mask-share", "none"]
# One rounded table with a name in the encoder and a name in the decoder.
TIED = ["--mask-trained-weights", "ternary", "--share-all-embeddings"]
ROWS = ["--mask-trained-weights", "8"]
only_own = pytest.mark.parametrize("checkpoint", [OWN], ids=" ".join, indirect=True)


def trained(folder, toy_data, *flags):
    flags = [*flags, "--max-update", 5, "--no-epoch-checkpoints", "--disable-validation", "--save-dir", folder]
    train(toy_data, *ARCH, *flags)
    return folder / "checkpoint_last.pt"


@pytest.fixture(scope="module", params=[OWN, TIED, pytest.param(ROWS, marks=pytest.mark.slow)], ids=" ".join)
def checkpoint(request, toy_data, tmp_path_factory):
    return trained(tmp_path_factory.mktemp("rounded"), toy_data, *request.param)


def weights(path, data):
    """Return all rounded matrices of the model that fairseq loads."""
    (model,), _ = checkpoint_utils.load_model_ensemble([str(path)], arg_overrides={"data": str(data)})
    return {name: module.weight.detach().clone() for name, module in rounded_modules(model.eval()).items()}


def assert_same(ours, theirs):
    assert ours.keys() == theirs.keys() and all(weight.equal(theirs[name]) for name, weight in ours.items())


def test_an_export_has_the_same_matrices_and_translations(checkpoint, translate, tmp_path, toy_data):
    out = tmp_path / "model.safetensors"
    written = export(checkpoint, out)
    assert 0 < written.bytes - written.predicted_bytes <= 64 * 1024
    assert written.stored == written.drawn_again == 0
    assert_same(weights(out, toy_data), weights(checkpoint, toy_data))
    assert translate(out) == translate(checkpoint) != []
    # The export is built from the same values as the model.
    assert open_checkpoint(out).ledger == open_checkpoint(checkpoint).ledger


@only_own
def test_an_export_of_an_export_is_the_same(checkpoint, tmp_path):
    first, second = (tmp_path / name for name in ("a.safetensors", "b.safetensors"))
    export(checkpoint, first)
    export(first, second)
    (_, ours), (_, theirs) = packed_file.read(first), packed_file.read(second)
    assert_same(ours, theirs)


def test_scales_have_the_dtype_of_the_export(checkpoint, tmp_path, toy_data):
    export(checkpoint, tmp_path / "a.safetensors", dtype="fp16")
    _, tensors = packed_file.read(tmp_path / "a.safetensors")
    latents = [name for name in tensors if name.endswith(".latent")]
    assert latents and all(tensors[name].dtype == torch.uint8 for name in latents)
    assert all(tensors[name.replace(".latent", ".scales")].dtype == torch.half for name in latents)
    expected = weights(checkpoint, toy_data)
    for name, weight in weights(tmp_path / "a.safetensors", toy_data).items():
        torch.testing.assert_close(weight, expected[name], rtol=2**-10, atol=0)


def test_read_without_fairseq(checkpoint, tmp_path, toy_data):
    export(checkpoint, tmp_path / "a.safetensors")
    state, original = read_state_dict(tmp_path / "a.safetensors"), torch.load(checkpoint)["model"]
    assert state.keys() == original.keys() | {
        n.replace(".latent", ".scales") for n in original if n.endswith(".latent")
    }
    for name, weight in weights(checkpoint, toy_data).items():
        assert (state[f"{name}.latent"] * state[f"{name}.scales"]).equal(weight), name


@only_own
def test_altered_files_are_refused(checkpoint, tmp_path):
    export(checkpoint, tmp_path / "a.safetensors")
    body, tensors = packed_file.read(tmp_path / "a.safetensors")
    name = next(iter(body["levels"]))
    for change in ({"kind": "17"}, {"shape": [10**9, 10**9]}):
        packed_file.write(tmp_path / "b.safetensors", body | {"levels": {name: body["levels"][name] | change}}, tensors)
        with pytest.raises(InputError, match=f"b.safetensors: the description of {name} is not usable, because "):
            read_state_dict(tmp_path / "b.safetensors")
    data = bytearray((tmp_path / "a.safetensors").read_bytes())
    data[-1] ^= 1
    (tmp_path / "c.safetensors").write_bytes(data)
    with pytest.raises(InputError, match="altered after it was written"):
        read_state_dict(tmp_path / "c.safetensors")


@only_own
def test_nan_is_named(checkpoint, tmp_path):
    state = torch.load(checkpoint)
    name = next(name for name in state["model"] if name.endswith("fc1.latent"))
    state["model"][name][0, 0] = float("nan")
    torch.save(state, tmp_path / "nan.pt")
    with pytest.raises(InputError, match=f"NaN in {name}"):
        export(tmp_path / "nan.pt", tmp_path / "a.safetensors")


@pytest.mark.parametrize("checkpoint", [TIED, pytest.param(OWN, marks=pytest.mark.slow)], ids=" ".join, indirect=True)
def test_plain_fairseq_translates_the_same(checkpoint, compare_with_plain_fairseq, tmp_path):
    export(checkpoint, tmp_path / "model.safetensors")
    cli.main(["materialize", str(tmp_path / "model.safetensors"), str(tmp_path / "plain.pt")])
    compare_with_plain_fairseq(tmp_path / "plain.pt", checkpoint)


def test_size_lists_levels_and_scales_besides_masks(checkpoint, capsys):
    cli.main(["size", str(checkpoint)])
    text = capsys.readouterr().out
    ternary = "trained weights, ternary, 2 bits per weight, one scale per matrix"
    sixteen = "trained weights, 16 levels, 4 bits per weight, a scale per row"
    eight = "trained weights, 8 levels, 3 bits per weight, a scale per row"
    assert [ternary in text, sixteen in text, eight in text].count(True) == 1
    assert "as the paper counts" not in text and "masks" not in text and "random" not in text


@only_own
def test_training_resumes_from_checkpoints_and_not_from_exports(checkpoint, toy_data, tmp_path):
    export(checkpoint, tmp_path / "a.safetensors")
    flags = ["--restore-file", tmp_path / "a.safetensors", "--save-dir", tmp_path / "other"]
    text, status = error_of(toy_data, *ARCH, *flags)
    assert status == 2 and "is an export with levels, but without the latent weights that training needs" in text


def test_averages(checkpoint, tmp_path, toy_data):
    cli.main(["average", str(checkpoint), str(checkpoint), str(tmp_path / "mean.pt")])
    assert_same(weights(tmp_path / "mean.pt", toy_data), weights(checkpoint, toy_data))
