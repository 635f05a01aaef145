"""Row gains of masked matrices: by hand, and in a model that is trained, resumed, exported and used for translation."""

import pytest
import torch
import torch.nn.functional as F

from fairseq_reservoir import cli
from fairseq_reservoir.checkpoint import load_translator
from fairseq_reservoir.checkpoint.dry_build import build_arch
from fairseq_reservoir.checkpoint.export import export
from fairseq_reservoir.checkpoint.ledger import Ledger, ledger
from fairseq_reservoir.errors import InputError
from fairseq_reservoir.fairseq_repairs.error_report import find_input_error
from fairseq_reservoir.masks.masked_embedding import MaskedEmbedding, TiedProjection
from fairseq_reservoir.masks.masked_linear import MaskedLinear
from fairseq_reservoir.masks.masked_weight import masked_modules
from tests.support.commands import train

WORDS = ["a b c", "h g f e d", "b"]
ARCH = "--arch supermask_one_layer_transformer_tiny --share-decoder-input-output-embed --mask-row-gain".split()


def by_hand():
    """W = [1 -2; 3 4] and g = [2, 0.5]. The mask keeps the larger score of each row: the first and the last entry."""
    layer = MaskedLinear(2, 2, 0.5, scope="row", seed=1, row_gain=True)
    with torch.no_grad():
        layer.frozen_weight.copy_(torch.tensor([[1.0, -2.0], [3.0, 4.0]]))
        layer.scores.copy_(torch.tensor([[0.9, 0.1], [-0.2, -0.8]]))
        layer.row_gain.copy_(torch.tensor([2.0, 0.5]))
    return layer


def test_product_and_gradients_by_hand():
    layer, x = by_hand(), torch.tensor([[1.0, 10.0]])
    y = layer(x)
    assert y.tolist() == [[2.0, 20.0]]  # 2 * 1 * 1 and 0.5 * 4 * 10
    (y * torch.tensor([[1.0, 100.0]])).sum().backward()
    assert layer.row_gain.grad.tolist() == [1.0, 4000.0]  # dy * (W * M) x = 1 * 1 and 100 * 40
    # dy * g * x * W * sign(S): rows 1 * 2 * [1, 10] * [1, -2] * [1, 1] and 100 * 0.5 * [1, 10] * [3, 4] * [-1, -1]
    assert layer.scores.grad.tolist() == [[2.0, -40.0], [-150.0, -2000.0]]


def test_it_starts_as_a_layer_without():
    ours, plain = (MaskedLinear(8, 6, 0.5, seed=3, name="a", row_gain=given) for given in (True, False))
    assert plain.row_gain is None and set(ours.state_dict()) == {*plain.state_dict(), "row_gain"}
    assert torch.equal(ours.weight, plain.weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_folded(dtype):
    layer, x = by_hand().to(dtype).eval(), torch.randn(3, 2, dtype=dtype)
    assert torch.equal(layer.folded()(x), layer(x)) and layer.weight.dtype == dtype


def test_embedding_and_its_projection():
    table = MaskedEmbedding(5, 4, padding_idx=1, seed=2, row_gain=True)
    with torch.no_grad():
        table.row_gain.copy_(torch.arange(5.0))
    weight = table.frozen_weight * table.mask * torch.arange(5.0)[:, None]
    tokens, x = torch.tensor([4, 1, 2]), torch.randn(3, 4)
    assert torch.equal(table(tokens), weight[tokens]) and not table(tokens)[1].any()
    assert torch.equal(TiedProjection(table)(x), F.linear(x, weight))


def test_a_random_mask_with_trained_factors():
    layer = MaskedLinear(4, 3, 0.5, seed=1, random=True, row_gain=True)
    layer(torch.randn(2, 4)).sum().backward()
    assert layer.scores is None and (layer.row_gain.grad != 0).all()


def translations(path, data, **options):
    # The model has learned little, so it would generate 200 words for each line.
    return load_translator(str(path), str(data), **options).translate(WORDS, max_len_b=10)


@pytest.fixture(scope="module")
def trained(toy_data, tmp_path_factory):
    """A run of 20 updates and its checkpoint after 10."""
    folder = tmp_path_factory.mktemp("gain")
    flags = ["--save-interval-updates", 10, "--no-epoch-checkpoints", "--disable-validation"]
    run = train(toy_data, *ARCH, *flags, "--max-update", 20, "--save-dir", folder)
    return run, folder


@pytest.fixture(scope="module")
def expected(trained, toy_data):
    """Translations of the checkpoint."""
    return translations(trained[1] / "checkpoint_last.pt", toy_data)


def test_every_factor_moves(trained):
    run, _ = trained
    modules = masked_modules(run.model)
    assert all((m.row_gain != 1).any() for m in modules.values()) and len(modules) > 5


def test_resuming_is_bit_exact(trained, toy_data):
    run, folder = trained
    middle = next(folder.glob("checkpoint*_10.pt"))
    resumed = train(toy_data, *ARCH, "--max-update", 20, "--restore-file", middle, "--no-save", "--disable-validation")
    assert resumed.losses == run.losses[10:]
    assert all(torch.equal(resumed.weights[name], tensor) for name, tensor in run.weights.items())


@pytest.mark.parametrize("without", [True, False])
def test_resuming_otherwise_is_refused(trained, toy_data, tmp_path, without):
    if without:
        checkpoint, flags, said = trained[1] / "checkpoint_last.pt", ARCH[:-1], "give it"
    else:
        train(toy_data, *ARCH[:-1], "--max-update", 1, "--disable-validation", "--save-dir", tmp_path)
        checkpoint, flags, said = tmp_path / "checkpoint_last.pt", ARCH, "the checkpoint was trained without this flag"
    with pytest.raises(Exception) as error:
        train(toy_data, *flags, "--max-update", 50, "--restore-file", checkpoint, "--save-dir", tmp_path / "again")
    mistake = find_input_error(error.value)
    assert isinstance(mistake, InputError) and "--mask-row-gain" in str(mistake) and said in str(mistake)


def test_with_trained_weights_it_is_refused(toy_data):
    with pytest.raises(Exception) as error:
        train(toy_data, *ARCH, "--mask-trained-weights", "sign", "--max-update", 1, "--no-save")
    assert "--mask-row-gain: cannot be combined with --mask-trained-weights sign" in str(find_input_error(error.value))


def test_frozen_with_its_matrix(toy_data):
    run = train(toy_data, *ARCH, "--freeze", "ffn,emb", "--max-update", 3, "--no-save", "--disable-validation")
    for name, module in masked_modules(run.model).items():
        assert module.row_gain.requires_grad == ("attn" in name)
        assert (module.row_gain == 1).all() == ("attn" not in name), name


@pytest.mark.parametrize("flags", [{}, {"compact": True}], ids=str)
def test_exports_translate_alike(trained, expected, toy_data, tmp_path, flags):
    out = tmp_path / "model.safetensors"
    written = export(str(trained[1] / "checkpoint_last.pt"), str(out), **flags)
    assert translations(out, toy_data) == expected
    assert translations(out, toy_data, regenerate_weights=True) == expected
    assert written.stored == 0


def test_regenerated_modules_take_the_place_of_all(trained, toy_data):
    translator = load_translator(str(trained[1] / "checkpoint_last.pt"), str(toy_data), regenerate_weights=True)
    kinds = [type(m).__name__ for m in translator.modules()]
    assert kinds.count("RegeneratedLinear") > 5 and "RegeneratedEmbedding" in kinds and "MaskedLinear" not in kinds


def test_materialized_it_is_fairseqs(trained, expected, toy_data, tmp_path):
    plain = tmp_path / "plain.pt"
    cli.main(["materialize", str(trained[1] / "checkpoint_last.pt"), str(plain)])
    assert translations(plain, toy_data) == expected


def test_size_counts_them(trained, tmp_path, capsys):
    """The prediction of `size` equals the bytes of the file's data."""
    out = tmp_path / "model.safetensors"
    written = export(str(trained[1] / "checkpoint_last.pt"), str(out))
    cli.main(["size", str(trained[1] / "checkpoint_last.pt")])
    assert f"{written.predicted_bytes:,}" in capsys.readouterr().out


def test_in_memory_they_are_folded():
    """A gain takes 4 bytes in training, and its gradient and Adam's moments 12 more. In inference it takes none."""
    arch = "supermask_one_layer_transformer_tiny"
    whole = (ledger(build_arch(arch, flags, 300)) for flags in (["--mask-row-gain"], []))
    # Without the description of the model, which includes the flag.
    ours, plain = (Ledger(tuple(item for item in one.items if item.role != "buffer")) for one in whole)
    rows = sum(item.size for item in ours.items if item.name.endswith(".row_gain"))
    assert rows > 300 and ours.inference_bytes == plain.inference_bytes
    assert ours.training_bytes - plain.training_bytes == 16 * rows
    assert ours.export_bytes("fp16") - plain.export_bytes("fp16") == 2 * rows
