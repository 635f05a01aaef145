"""--mask-embeddings sign|ternary|3...16: trained rounded token vectors with masked layers."""

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_reservoir import cli
from fairseq_reservoir.checkpoint import load_translator
from fairseq_reservoir.checkpoint.export import export
from fairseq_reservoir.checkpoint.ledger import ledger
from fairseq_reservoir.errors import InputError
from fairseq_reservoir.masks.masked_weight import masked_modules
from fairseq_reservoir.masks.rounded_weight import RoundedEmbedding, rounded_modules
from tests.support.building import build_lm, build_roberta, build_supermask, logits, pad, sentences, shift
from tests.support.commands import error_of, train

SOURCE, TARGET = pad(sentences(6, 4, 5)), pad(sentences(5, 7, 3, seed=2))
OF_WORDS = {
    "transformer": {"encoder.embed_tokens", "decoder.embed_tokens"},
    "language model": {"decoder.embed_tokens"},
    "roberta": {"encoder.sentence_encoder.embed_tokens"},
}
BUILD = {"transformer": build_supermask, "language model": build_lm, "roberta": build_roberta}
ARCH = (
    "--arch supermask_one_layer_transformer --encoder-layers 3 --decoder-layers 2 --share-decoder-input-output-embed"
    " --mask-embeddings 8 --lr 0.01"
).split()
TWELVE = ["--max-update", 12, "--disable-validation"]
WORDS = ["a b c", "h g f e d", "b"]


@pytest.mark.parametrize("kind", BUILD)
def test_token_vectors_are_rounded_and_layers_masked(kind):
    arch = {"arch": "supermask_one_layer_transformer_lm"} if kind == "language model" else {}
    model = BUILD[kind](mask_embeddings="8", **arch)
    rounded, masked = rounded_modules(model), masked_modules(model)
    assert rounded.keys() == OF_WORDS[kind]
    assert all(m.levels.count == 8 and m.latent.requires_grad for m in rounded.values())
    assert masked and all(".layers." in name for name in masked)


def test_learned_positions_are_trained_as_beside_trained_vectors():
    model = build_roberta(mask_embeddings="8")
    (positions,) = [p for name, p in model.named_parameters() if "embed_positions" in name]
    assert positions.requires_grad
    (positions,) = [p for name, p in build_roberta().named_parameters() if "embed_positions" in name]
    assert not positions.requires_grad


def test_untied_projection_and_trained_bits_of_another_kind():
    model = build_supermask(mask_embeddings="ternary", mask_trained_weights="sign", mask_share="none",
                            share_decoder_input_output_embed=False)  # fmt: skip
    kinds = {name: module.levels.kind for name, module in rounded_modules(model).items()}
    of_words = {"encoder.embed_tokens", "decoder.embed_tokens", "decoder.output_projection"}
    assert {name for name, kind in kinds.items() if kind == "ternary"} == of_words
    assert {kind for name, kind in kinds.items() if name not in of_words} == {"sign"}
    rows = {row.place: row.kind for row in model.slot_table.rows}
    assert (
        rows["encoder.embed_tokens"] == "token embedding, ternary" and rows["encoder.layers.2"] == "L Transformer, sign"
    )


def test_the_table_of_masks_and_rounded_vectors():
    rows = {row.place: row for row in build_supermask(mask_embeddings="8").slot_table.rows}
    assert rows["encoder.embed_tokens"].kind == "token embedding, 8 levels"
    assert rows["encoder.layers.2"].kind == "L Transformer" and "encoder.shared_layer" not in rows


def test_bytes_by_hand():
    """Tables of 20 x 8: 3 bits per number and a scale of two bytes for each of 20 rows. Masked tables have one bit and no scale."""
    rounded, masked = (ledger(build_supermask(mask_embeddings=how)) for how in ("8", "masked"))
    without = [
        one.export_bytes("fp16") - sum(i.stored_bytes for i in one.with_roles("buffer")) for one in (rounded, masked)
    ]
    bits = 3
    tables = len(rounded.with_roles("rounded"))
    assert tables == 2
    assert without[0] - without[1] == tables * (20 * 8 * bits // 8 + 20 * 2 - 20 * 8 // 8)


@torch.no_grad()
@pytest.mark.parametrize("regenerate", [False, True])
def test_folding_changes_nothing_but_the_modules(regenerate):
    model = build_supermask(mask_embeddings="4").eval()
    expected = logits(model, SOURCE, shift(TARGET))
    model.regenerate_weights = regenerate
    model.make_generation_fast_()
    torch.testing.assert_close(logits(model, SOURCE, shift(TARGET)), expected)
    assert not rounded_modules(model) and not masked_modules(model)
    assert any(type(m).__name__ == "RegeneratedLinear" for m in model.modules()) == regenerate


@pytest.mark.parametrize("options, message", [
    ({"mask_embeddings": "17"}, "--mask-embeddings '17': choose from masked, frozen, trained, sign, ternary, 3, "),
    ({"mask_embeddings": "8", "freeze": "att,ffn,emb,ln"}, "freezes every parameter"),
])  # fmt: skip
def test_refusals_name_the_flag(options, message):
    with pytest.raises(InputError) as error:
        build_supermask(**options)
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.fixture(scope="module")
def trained(toy_data, tmp_path_factory):
    """A run of 12 updates and its checkpoint after 6."""
    folder = tmp_path_factory.mktemp("rounded-embeddings")
    run = train(toy_data, *ARCH, *TWELVE, "--save-interval-updates", 6, "--save-dir", folder)
    return run, folder


def translations(path, data, **options):
    # The model has learned little, so it would generate 200 words for each line.
    return load_translator(str(path), str(data), **options).translate(WORDS, max_len_b=10)


@pytest.fixture(scope="module")
def translated(trained, toy_data):
    return translations(trained[1] / "checkpoint_last.pt", toy_data)


def test_vectors_move_and_resuming_is_bit_exact(trained, toy_data, tmp_path):
    run, folder = trained
    assert all(
        not module.latent.equal(run.initial[f"{name}.latent"]) for name, module in rounded_modules(run.model).items()
    )
    middle = next(folder.glob("checkpoint*_6.pt"))
    resumed = train(toy_data, *ARCH, *TWELVE, "--restore-file", middle, "--save-dir", tmp_path)
    assert resumed.losses == run.losses[6:]
    assert all(torch.equal(resumed.weights[name], tensor) for name, tensor in run.weights.items())


def test_other_levels_are_refused_when_resuming(trained, toy_data, tmp_path):
    flags = ["--restore-file", trained[1] / "checkpoint_last.pt", "--mask-embeddings", "4", "--save-dir", tmp_path]
    text, status = error_of(toy_data, *ARCH, *flags)
    assert status == 2 and "--mask-embeddings 4: the checkpoint was trained with 8" in text


@pytest.mark.parametrize("flags", [
    ["--freeze", "emb"],
    ["--checkpoint-activations", "--encoder-layers-to-keep", "0,2", "--decoder-layers-to-keep", "1"],
], ids=" ".join)  # fmt: skip
def test_beside_other_flags(toy_data, flags):
    run = train(toy_data, *ARCH, *flags, "--max-update", 2, "--no-save", "--disable-validation")
    moved = {
        name: not module.latent.equal(run.initial[f"{name}.latent"])
        for name, module in rounded_modules(run.model).items()
    }
    assert moved == dict.fromkeys(OF_WORDS["transformer"], flags[0] != "--freeze")


def test_given_vectors_are_where_the_latent_ones_start(toy_data, tmp_path):
    (tmp_path / "vectors.txt").write_text("2 16\na " + " ".join(["0.5"] * 16) + "\nb " + " ".join(["-2"] * 16) + "\n")
    flags = ["--encoder-embed-path", tmp_path / "vectors.txt", "--embed-min-coverage", 0.01]
    run = train(toy_data, *ARCH, *flags, "--max-update", 1, "--no-save", "--disable-validation")
    index = run.model.encoder.dictionary.index("b")
    assert run.initial["encoder.embed_tokens.latent"][index].tolist() == [-2] * 16


def test_fast_gives_the_same_losses(toy_data):
    flags = [*ARCH, "--dropout", 0, "--max-update", 3, "--no-save", "--disable-validation"]
    assert train(toy_data, *flags, "--fast").losses == pytest.approx(train(toy_data, *flags).losses, rel=1e-4)


@pytest.mark.parametrize("flags", [{}, {"compact": True}], ids=str)
def test_exports_translate_alike(trained, translated, toy_data, tmp_path, flags):
    checkpoint, out = str(trained[1] / "checkpoint_last.pt"), str(tmp_path / "model.safetensors")
    written = export(checkpoint, out, **flags)
    assert translations(out, toy_data) == translated
    assert translations(out, toy_data, regenerate_weights=True) == translated
    assert written.stored == 0
    matrices, kinds = [], []
    for path in (checkpoint, out):
        (model,), _ = checkpoint_utils.load_model_ensemble([path], arg_overrides={"data": str(toy_data)})
        kinds.append(type(model.encoder.embed_tokens))
        modules = rounded_modules(model) | masked_modules(model.eval())
        matrices.append({name: module.weight.detach().clone() for name, module in modules.items()})
    assert len(matrices[0]) > 10 and all(weight.equal(matrices[1][name]) for name, weight in matrices[0].items())
    assert kinds == [RoundedEmbedding] * 2


def test_materialized_it_is_fairseqs(trained, translated, toy_data, tmp_path):
    plain = tmp_path / "plain.pt"
    cli.main(["materialize", str(trained[1] / "checkpoint_last.pt"), str(plain)])
    assert translations(plain, toy_data) == translated
