"""Exports are converted to the CTranslate2 models that `materialize` and CTranslate2's own converter write."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from fairseq_reservoir import cli
from fairseq_reservoir.checkpoint import export_file, packed_file
from fairseq_reservoir.checkpoint.dry_build import build_arch
from fairseq_reservoir.checkpoint.export import export
from fairseq_reservoir.checkpoint.without_torch import conversion
from fairseq_reservoir.checkpoint.without_torch.weights import CannotConvert
from fairseq_reservoir.text.collect import TextFlags
from tests.support.ctranslate2_models import exported, variables

pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: pip install ctranslate2")
RESERVOIR, MASKS = "reservoir_transformer_tiny", "supermask_one_layer_transformer_tiny"
ONE_LAYER = "--arch supermask_one_layer_transformer --encoder-layers 2 --decoder-layers 2"
TIED = "--share-decoder-input-output-embed"
PRE_NORM = "--encoder-normalize-before --decoder-normalize-before --layernorm-embedding"
LEARNED = "--encoder-learned-pos --decoder-learned-pos --no-scale-embedding"
COATS = "--mask-kind signed --mask-coats 0.3,0.1 --mask-row-gain"
PLAIN = "--mask-layernorm plain --encoder-normalize-before --decoder-normalize-before"
MODELS = {
    "frozen layers, pre-norm": f"--reservoir-encoder LT --reservoir-decoder TL {PRE_NORM} {TIED}",
    "learned positions, layers to keep": f"--reservoir-encoder LTTL --encoder-layers-to-keep 1,3 --decoder-layers 2 {LEARNED}",
    "frozen components": "--arch frozen_transformer_tiny --freeze att,encoder.ffn --frozen-init glorot",
    "random layer, frozen embeddings": f"{ONE_LAYER} {TIED} {COATS} --mask-embeddings frozen",
    "own random layers": f"{ONE_LAYER} {PLAIN} --mask-share none --mask-embeddings masked --share-all-embeddings",
    "rounded weights": f"{ONE_LAYER} --mask-trained-weights ternary --mask-embeddings masked {TIED}",
}


def converted(path, folder):
    """Variables of the export's model, converted without torch, and its vocabulary."""
    folder.mkdir()
    conversion.convert(str(path), export_file.read_text(path)).save(str(folder))
    return variables(folder)


def _nearly_equal(ours, theirs):
    return np.abs(ours - theirs).max() < 2e-7


@pytest.mark.parametrize("what", MODELS)
def test_the_model_is_that_of_materialize(what, toy_data, tmp_path):
    """All matrices and vectors have the same bits. Positions are computed by NumPy, and differ by their rounding."""
    path = exported(toy_data, tmp_path, MODELS[what])
    cli.main(["materialize", str(path), "--ctranslate2", str(tmp_path / "theirs")])
    ours, theirs = converted(path, tmp_path / "ours"), variables(tmp_path / "theirs")
    assert ours.keys() == theirs.keys() and len(ours) > 40
    for name, value in theirs.items():
        close = _nearly_equal if name.endswith("position_encodings/encodings") else np.array_equal
        assert ours[name].shape == value.shape and close(ours[name], value), name
    assert json.loads((tmp_path / "ours" / "config.json").read_text()) == json.loads(
        (tmp_path / "theirs" / "config.json").read_text()
    )


def test_half_precision_and_the_compact_form(of_l_and_t, toy_data, tmp_path):
    """fp16 and bf16 numbers, also of the random tensors that are stored, and a coded file: as torch reads them."""
    pytest.importorskip("constriction", reason="constriction is not installed: pip install constriction")
    for dtype, compact in (("fp16", False), ("bf16", True)):
        path = tmp_path / f"{dtype}.safetensors"
        export(of_l_and_t.path, path, data=str(toy_data), text=TextFlags(with_text=True), dtype=dtype, compact=compact)
        found, (_, tensors) = converted(path, tmp_path / dtype), packed_file.read(path)
        for name in ("fc1.weight", "fc1.bias"):
            expected = tensors[f"encoder.layers.0.{name}"]
            assert str(expected.dtype) == {"fp16": "torch.float16", "bf16": "torch.bfloat16"}[dtype]
            ours = found[f"encoder/layer_0/ffn/linear_0/{name.partition('.')[2]}"]
            assert ours.dtype == np.float32 and np.array_equal(ours, expected.float().numpy())


@pytest.fixture(scope="module")
def options():
    """The options of a training without flags, for each architecture."""
    return {arch: vars(build_arch(arch, [], 20, 20).flags) for arch in (RESERVOIR, MASKS, "lstm")}


@pytest.mark.parametrize(
    "arch, option, value, reason",
    [
        (RESERVOIR, "reservoir_encoder", "LF", "encoder layer 1 is F (feed-forward), which fairseq's transformer does not have"),
        (RESERVOIR, "decoder_attention_heads", 1, "needs the same number of heads in both stacks"),
        (RESERVOIR, "no_cross_attention", True, "it was trained with --no-cross-attention, which CTranslate2 does not support"),
        (RESERVOIR, "activation_fn", "tanh", "it was trained with --activation-fn tanh, which CTranslate2 does not support"),
        (RESERVOIR, "frozen_dtype", "bf16", "it was trained with --frozen-dtype bf16"),
        (MASKS, "mask_pin", 0.5, "it was trained with --mask-pin, which CTranslate2 does not support"),
        ("lstm", "arch", "lstm", "lstm is not a translation model of this plugin"),
    ],
)  # fmt: skip
def test_options_of_other_models_are_refused(options, arch, option, value, reason):
    assert option in options[arch]
    conversion.check("a", {"config": {"model": options[MASKS]}})
    with pytest.raises(CannotConvert, match=f"^a: .*{re.escape(reason)}") as refusal:
        conversion.check("a", {"config": {"model": {**options[arch], option: value}}})
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "flags, reason",
    [
        ("--reservoir-encoder LF", r"encoder layer 1 is F \(feed-forward\)"),
        (
            "--arch frozen_transformer_tiny --freeze encoder.ffn --frozen-adapter lora",
            "is not a tensor of CTranslate2's Transformer",
        ),
    ],
)
def test_other_models_are_refused(flags, reason, toy_data, tmp_path):
    path = exported(toy_data, tmp_path, flags)
    with pytest.raises(CannotConvert, match=f"^{path}: .*{reason}") as refusal:
        conversion.convert(str(path), export_file.read_text(path))
    assert "\n" not in str(refusal.value)


def test_random_matrices_that_only_torch_draws(of_l_and_t, toy_data, tmp_path):
    path = tmp_path / "model.safetensors"
    export(of_l_and_t.path, path, data=str(toy_data), text=TextFlags(with_text=True), regenerate=True)
    with pytest.raises(
        CannotConvert, match="is not stored .the export was written with --regenerate. and can only be drawn with torch"
    ):
        conversion.convert(str(path), export_file.read_text(path))


def test_positions_are_fairseqs():
    from fairseq.modules import SinusoidalPositionalEmbedding

    for width in (8, 9):
        expected = SinusoidalPositionalEmbedding.get_embedding(30, width, 1).numpy()
        assert _nearly_equal(conversion.sinusoidal(30, width), expected)


def test_no_file_of_the_folder_names_torch():
    package = Path(conversion.__file__).parent
    for file in package.glob("*.py"):
        assert not re.search(r"^\s*(?:import|from) (?:torch|fairseq)\b", file.read_text(), flags=re.MULTILINE), file
