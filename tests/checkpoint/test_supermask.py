"""Exports, materialized checkpoints and sizes of the one-layer supermask model."""

import re
import sys
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_reservoir import cli
from fairseq_reservoir.checkpoint import dry_build, load_translator, packed_file, read_state_dict
from fairseq_reservoir.checkpoint.export import export
from fairseq_reservoir.checkpoint.ledger import ledger
from fairseq_reservoir.checkpoint.meta_checkpoint import open_checkpoint
from fairseq_reservoir.errors import InputError
from fairseq_reservoir.masks.masked_weight import masked_modules
from tests.support.building import build_supermask
from tests.support.commands import train

ARCH = "--arch supermask_one_layer_transformer --encoder-layers 3 --decoder-layers 2 --share-decoder-input-output-embed".split()


def trained(folder, toy_data, *flags):
    train(
        toy_data,
        *ARCH,
        "--max-update",
        5,
        "--no-epoch-checkpoints",
        "--disable-validation",
        "--save-dir",
        folder,
        *flags,
    )
    return folder / "checkpoint_last.pt"


def masks(path, data):
    (model,), _ = checkpoint_utils.load_model_ensemble([str(path)], arg_overrides={"data": str(data)})
    return {name: module.mask.clone() for name, module in masked_modules(model.eval()).items()}


@pytest.fixture(scope="module")
def checkpoint(toy_data, tmp_path_factory):
    return trained(tmp_path_factory.mktemp("supermask"), toy_data)


@pytest.fixture(scope="module")
def exported(checkpoint, tmp_path_factory):
    out = tmp_path_factory.mktemp("exports") / "model.safetensors"
    return SimpleNamespace(path=out, written=export(checkpoint, out))


def test_everything_random_is_left_out_and_drawn_again(checkpoint, exported):
    body, tensors = packed_file.read(exported.path)
    assert exported.written.stored == 0 and not body["random"].keys() & tensors
    state, original = read_state_dict(exported.path), torch.load(checkpoint)["model"]
    assert state.keys() == original.keys()
    for name in original.keys() - body["masks"]:
        assert state[name].equal(original[name]), name
    assert 0 < exported.written.bytes - exported.written.predicted_bytes <= 64 * 1024


def test_masks_are_the_same(checkpoint, exported, toy_data):
    ours, theirs = masks(exported.path, toy_data), masks(checkpoint, toy_data)
    assert ours.keys() == theirs.keys() and all(mask.equal(theirs[name]) for name, mask in ours.items())


def test_translations_are_the_same_also_without_random_weights(checkpoint, exported, translate, toy_data):
    overrides = ["--model-overrides", "{'regenerate_weights': True}"]
    expected = translate(checkpoint)
    assert translate(exported.path) == expected != []
    assert translate(exported.path, *overrides) == translate(checkpoint, *overrides) == expected
    models = [load_translator(exported.path, toy_data, regenerate_weights=flag) for flag in (True, False)]
    sentence = models[0].src_dict.string(torch.arange(4, 9))
    assert models[0].translate(sentence, max_len_b=10) == models[1].translate(sentence, max_len_b=10)
    found = [{type(m).__name__ for m in model.modules()} for model in models]
    assert "RegeneratedLinear" in found[0] and not found[1] & {"RegeneratedLinear", "MaskedLinear"}


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(["--mask-kind", "signed", "--mask-coats", "0.3,0.1"], marks=pytest.mark.slow),
        pytest.param(["--mask-coats", "0.3,0.1"], marks=pytest.mark.slow),
        "--mask-scope global --mask-share none --mask-pin 0.3 --mask-init-weights paper_code".split(),
        ["--mask-init-weights", "kaiming_normal", "--mask-layernorm", "affine", "--mask-embeddings", "trained"],
        pytest.param(["--mask-embeddings", "frozen"], marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_other_choices(toy_data, tmp_path, flags):
    path = trained(tmp_path, toy_data, *flags)
    written = export(path, tmp_path / "a.safetensors")
    # normal tensors differ in their last bits between machines, so they are stored
    assert (written.stored == 0) == ("kaiming_normal" not in flags and "frozen" not in flags)
    assert 0 < written.bytes - written.predicted_bytes <= 64 * 1024
    ours, theirs = masks(tmp_path / "a.safetensors", toy_data), masks(path, toy_data)
    assert all(mask.equal(theirs[name]) for name, mask in ours.items())
    original, state = torch.load(path)["model"], read_state_dict(tmp_path / "a.safetensors")
    assert all(state[name].equal(tensor) for name, tensor in original.items() if not name.endswith(".scores"))
    if find_spec("constriction"):
        export(path, tmp_path / "b.safetensors", compact=True)
        compact = read_state_dict(tmp_path / "b.safetensors")
        assert compact.keys() == state.keys() and all(compact[name].equal(tensor) for name, tensor in state.items())


@pytest.mark.parametrize(
    "choices",
    [{}, {"mask_share": "none"}, {"mask_init_weights": "paper_code"}, {"share_decoder_input_output_embed": False}],
)
def test_recipes_draw_the_weights(choices):
    model = build_supermask(**choices)
    buffers = dict(model.named_buffers())
    assert model.recipes.keys() == {n for n in buffers if n.endswith(".frozen_weight") or ".random_layer." in n}
    for name, recipe in model.recipes.items():
        assert recipe.draw(1).equal(buffers[name]), name


@pytest.mark.parametrize("tied", [True, False])
def test_frozen_embeddings_are_random_tensors_too(tied):
    model = build_supermask(mask_embeddings="frozen", share_decoder_input_output_embed=tied)
    tables = ["encoder.embed_tokens.weight", "decoder.embed_tokens.weight"] + ["decoder.output_projection.weight"] * (
        not tied
    )
    for name in tables:
        assert model.recipes[name].draw(1).equal(model.get_parameter(name)), name
    found = ledger(model)
    assert {item.name for item in found.with_roles("random")} >= set(tables)
    # 20 words x 8, stored unless --regenerate is given
    assert found.export_bytes() - found.export_bytes(regenerate=True) == len(tables) * 20 * 8 * 4
    trained = build_supermask(mask_embeddings="trained")
    assert not [name for name in trained.recipes if "embed" in name]


def test_frozen_embeddings_regenerate(toy_data, tmp_path):
    path = trained(tmp_path, toy_data, "--mask-embeddings", "frozen", "--max-update", 1)
    assert export(path, tmp_path / "plain.safetensors").stored == 2
    assert export(path, tmp_path / "a.safetensors", regenerate=True).stored == 0
    original, state = torch.load(path)["model"], read_state_dict(tmp_path / "a.safetensors")
    assert state["decoder.embed_tokens.weight"].equal(original["decoder.embed_tokens.weight"])


def test_plain_fairseq_translates_the_same(checkpoint, compare_with_plain_fairseq, tmp_path):
    cli.main(["materialize", str(checkpoint), str(tmp_path / "plain.pt")])
    compare_with_plain_fairseq(tmp_path / "plain.pt", checkpoint)


def test_ctranslate2_translates_the_same(toy_data, tmp_path):
    ctranslate2 = pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: pip install ctranslate2")
    # Untrained, with large LayerNorms, because a model of 20 updates translates all sentences alike.
    state = torch.load(trained(tmp_path, toy_data, "--lr", 1e-9, "--max-update", 1))
    for name, tensor in state["model"].items():
        tensor.mul_(3 if name.endswith("layer_norm.weight") else 1)
    torch.save(state, tmp_path / "large.pt")
    cli.main(["materialize", str(tmp_path / "large.pt"), "--ctranslate2", str(tmp_path / "ct2")])
    theirs = ctranslate2.Translator(str(tmp_path / "ct2"), device="cpu", inter_threads=1, intra_threads=1)
    ours, said = load_translator(tmp_path / "large.pt", toy_data), set()

    def symbols(hypothesis):
        """Its words and special symbols, less the end of sentence."""
        return [ours.tgt_dict[token] for token in hypothesis["tokens"][:-1]]

    for words in ("d h", "b h a b f a", "c a f c", "a", "e", "a c", "d", "a f", "f a c h g", "d d d e"):
        source = ours.src_dict.encode_line(words, add_if_not_exist=False).long()
        (greedy, *_), (best, *_) = (ours.generate([source], beam=beam, max_len_a=0, max_len_b=10)[0] for beam in (1, 3))
        found = theirs.translate_batch([words.split()], beam_size=1, max_decoding_length=10)[0]
        assert found.hypotheses[0] == symbols(greedy)
        said.add(" ".join(found.hypotheses[0]))
        # The two normalise beams by length differently while an end of sentence is not allowed, so compare probabilities.
        scored = theirs.score_batch([words.split()], [symbols(best)])[0]
        assert scored.log_probs == pytest.approx(best["positional_scores"].tolist(), abs=1e-4)
    assert len(said) > 2


def test_the_papers_small_model_in_4_7_mib():
    """Masks of one bit: encoder 6 x 2.10 M, decoder 6 x 3.15 M, tables of 8,848 and 6,632 words x 512."""
    model = dry_build.build_arch("supermask_one_layer_transformer_iwslt_de_en", [], 8848, 6632)
    found = ledger(model)
    assert (
        sum(item.export_bytes() for item in found.with_roles("mask")) == (6 * 2097152 + 6 * 3145728 + 15480 * 512) // 8
    )
    # and LayerNorms, gain and bias of 512 each: 2 per encoder layer, 3 per decoder layer
    assert found.export_bytes("fp16") / 2**20 == pytest.approx(4.7, abs=0.1)


@pytest.fixture(scope="module")
def of_coats(toy_data, tmp_path_factory):
    """A checkpoint with four signed coats, and two exports of it, ``plain`` and ``compact``."""
    if not find_spec("constriction"):
        pytest.skip("constriction is not installed: pip install constriction")
    folder = tmp_path_factory.mktemp("coats")
    wide = "--encoder-embed-dim 64 --encoder-ffn-embed-dim 128 --mask-kind signed --mask-keep-ratio 0.8 --mask-coats 0.5,0.25,0.1"
    path = trained(folder, toy_data, *wide.split())
    plain, compact = folder / "plain.safetensors", folder / "compact.safetensors"
    return SimpleNamespace(
        path=path,
        plain=SimpleNamespace(path=plain, written=export(path, plain, dtype="fp16")),
        compact=SimpleNamespace(path=compact, written=export(path, compact, dtype="fp16", compact=True)),
    )


def test_a_compact_export_is_the_same_model(of_coats, translate, tmp_path, toy_data):
    plain, compact = (read_state_dict(out.path) for out in (of_coats.plain, of_coats.compact))
    ours, theirs = masks(of_coats.plain.path, toy_data), masks(of_coats.path, toy_data)
    assert all(mask.equal(theirs[name]) for name, mask in ours.items()) and of_coats.plain.written.stored == 0
    assert plain.keys() == compact.keys() and all(compact[name].equal(tensor) for name, tensor in plain.items())
    assert len(translate(of_coats.compact.path)) == 16
    files = []
    for out in (of_coats.plain, of_coats.compact):
        files.append(tmp_path / f"{out.path.stem}.pt")
        cli.main(["materialize", str(out.path), str(files[-1])])
    one, other = (torch.load(file)["model"] for file in files)
    assert all(other[name].equal(tensor) for name, tensor in one.items())


def test_a_compact_export_is_near_its_entropy(of_coats, capsys):
    """Nine values need 3.03 bits in place of 4. The rest of the file is the description."""
    written = of_coats.compact.written
    assert written.entropy_bytes == of_coats.plain.written.entropy_bytes
    cli.main(["size", str(of_coats.compact.path)])
    printed = capsys.readouterr().out
    sizes = {
        what: int(re.search(rf"^{what} +([\d,]+)$", printed, flags=re.MULTILINE)[1].replace(",", ""))
        for what in ("this file", "tensors in it", "entropy of these tensors", "description in it")
    }
    assert sizes["this file"] == written.bytes == of_coats.compact.path.stat().st_size
    assert sizes["tensors in it"] + sizes["description in it"] == written.bytes
    assert sizes["entropy of these tensors"] == written.entropy_bytes
    assert sizes["tensors in it"] <= 1.03 * written.entropy_bytes < of_coats.plain.written.predicted_bytes
    assert "masks, 4 bits per entry, entropy 3.03" in printed


def test_a_compact_export_without_the_package(of_coats, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "constriction", None)
    expected = "the package constriction, which is not installed: pip install constriction"
    with pytest.raises(InputError, match=f"^{of_coats.compact.path}: a compact export; reading it needs {expected}$"):
        checkpoint_utils.load_checkpoint_to_cpu(str(of_coats.compact.path))
    with pytest.raises(SystemExit, match=f"^fairseq-reservoir: error: --compact needs {expected}$"):
        cli.main(["export", str(of_coats.path), str(tmp_path / "a.safetensors"), "--compact"])
    assert not list(tmp_path.iterdir())
    assert read_state_dict(of_coats.plain.path)  # which needs none


def test_the_house_size_near_its_entropy():
    """Four signed coats, 5,996 + 4 words x 256, 4 + 2 layers of 256/1024: 4 bits per entry packed, 3.03 by entropy."""
    flags = "--encoder-embed-dim 256 --encoder-ffn-embed-dim 1024 --encoder-layers 4 --decoder-layers 2 --share-all-embeddings"
    masks = "--mask-kind signed --mask-keep-ratio 0.8 --mask-coats 0.5,0.25,0.1"
    model = dry_build.build_arch("supermask_one_layer_transformer", f"{flags} {masks}".split(), 6000, 6000)
    found = ledger(model)
    # encoder 4 (4 x 256^2 + 2 x 256 x 1024), decoder 2 (8 x 256^2 + 2 x 256 x 1024)
    entries = 4 * 786432 + 2 * 1048576 + 6000 * 256
    assert sum(item.size for item in found.with_roles("mask")) == entries
    assert found.saved_by_entropy == pytest.approx(entries * (4 - 3.0282) / 8, rel=1e-4)
    assert found.export_bytes("fp16") - found.saved_by_entropy < 2.6e6 < found.export_bytes("fp16")


def test_nan_scores_are_named(checkpoint, tmp_path):
    state = torch.load(checkpoint)
    state["model"]["encoder.layers.1.fc1.scores"][0, 0] = float("nan")
    torch.save(state, tmp_path / "nan.pt")
    with pytest.raises(ValueError, match="NaN in encoder.layers.1.fc1.scores"):
        export(tmp_path / "nan.pt", tmp_path / "a.safetensors")


def test_size_also_counts_like_the_paper(checkpoint, capsys):
    cli.main(["size", str(checkpoint)])
    text = capsys.readouterr().out
    found = open_checkpoint(checkpoint).ledger
    # 3 masks of 50 % on the encoder's 4 x 16 x 16 + 2 x 16 x 24, 2 on the decoder's 8 x 16 x 16 + 2 x 16 x 24
    assert found.share_in_use == pytest.approx((1792 * 7 / 8 + 2816 * 3 / 4) / (1792 + 2816))
    assert f"together {found.share_in_use:.1%} of the shared weights" in " ".join(text.split())
    assert "as the paper counts" in text and "masks, 1 bit per entry (embeddings)" in text
