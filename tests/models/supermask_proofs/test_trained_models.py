"""Four of ten proofs that a supermask model is right, by real commands. ``test_built_models`` has the others."""

import hashlib
from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_reservoir import cli
from fairseq_reservoir.checkpoint import packed_file
from fairseq_reservoir.checkpoint.export import export
from fairseq_reservoir.masks.masked_weight import masked_modules
from tests.support.building import logits, pad, sentences, shift
from tests.support.commands import train

ARCH = "--arch supermask_one_layer_transformer --encoder-layers 3 --decoder-layers 2 --share-decoder-input-output-embed".split()
SELF, CROSS = (
    [f"{attention}.{part}_proj" for part in ("q", "k", "v", "out")] for attention in ("self_attn", "encoder_attn")
)
PARTS = {"encoder": [*SELF, "fc1", "fc2"], "decoder": [*SELF, *CROSS, "fc1", "fc2"]}
PADDING = 1


def sha256(tensor):
    return hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()


@pytest.fixture(scope="module")
def trained(toy_data, tmp_path_factory):
    """60 updates with weight decay and clipping: ``run``, and the ``path`` of the checkpoints of the last update and of update 52."""
    folder = tmp_path_factory.mktemp("trained")
    # An epoch has 40 batches of 4, so update 52 is in the second.
    flags = [*ARCH, "--weight-decay", 0.1, "--clip-norm", 0.5, "--max-update", 60, "--disable-validation"]
    run = train(toy_data, *flags, "--save-interval-updates", 52, "--no-epoch-checkpoints", "--save-dir", folder)
    return SimpleNamespace(
        run=run, flags=flags, path=folder / "checkpoint_last.pt", earlier=folder / "checkpoint_2_52.pt"
    )


def test_1_random_weights_keep_their_sha256_and_storage(trained):
    run = trained.run
    assert run.trainer.get_num_updates() == 60
    weights = {name: t for name, t in run.weights.items() if "random_layer" in name or name.endswith("frozen_weight")}
    assert len(weights) == 6 + 10 + 2
    for name, tensor in weights.items():
        assert sha256(tensor) == sha256(run.initial[name]) == sha256(run.model.recipes[name].draw(3)), name
    pointers = {}
    for stack, parts in PARTS.items():
        layers = getattr(run.model, stack).layers
        for part in parts:
            owned = weights[f"{stack}.random_layer.{part.replace('.', '_')}"].data_ptr()
            assert [layer.get_submodule(part).frozen_weight.data_ptr() for layer in layers] == [owned] * len(layers)
            pointers[stack, part] = owned
    assert len(set(pointers.values())) == 16
    scores = {name: module.scores for name, module in masked_modules(run.model).items()}
    assert len({s.data_ptr() for s in scores.values()}) == len(scores) == 3 * 6 + 2 * 10 + 2
    assert not any(torch.equal(s, run.initial[f"{name}.scores"]) for name, s in scores.items())


def test_5_tied_embeddings_have_one_score_tensor_and_padding_stays_zero(trained):
    decoder = trained.run.model.decoder
    assert decoder.output_projection.embedding is decoder.embed_tokens
    assert [name for name in trained.run.weights if "output_projection" in name] == []
    hidden = torch.randn(2, 16)
    assert decoder.output_projection(hidden).equal(hidden @ decoder.embed_tokens.weight.T)
    for embedding in (decoder.embed_tokens, trained.run.model.encoder.embed_tokens):
        assert not embedding.frozen_weight[PADDING].any() and not embedding(torch.tensor([PADDING])).any()


def test_7_a_resumed_run_is_the_same_to_the_bit(trained, toy_data, tmp_path):
    resumed = train(toy_data, *trained.flags, "--restore-file", trained.earlier, "--save-dir", tmp_path)
    assert resumed.losses == trained.run.losses[52:] and len(resumed.losses) == 8
    assert resumed.weights.keys() == trained.run.weights.keys()
    for name, tensor in trained.run.weights.items():
        assert sha256(resumed.weights[name]) == sha256(tensor), name


def test_7_an_export_has_the_same_logits_and_a_bit_per_score(trained, toy_data, tmp_path):
    out = tmp_path / "model.safetensors"
    size = export(trained.path, out).bytes
    source, target = pad(sentences(6, 4, 5)) % 12, pad(sentences(5, 7, 3, seed=2)) % 12
    of_toy = {"arg_overrides": {"data": str(toy_data)}}
    models = [checkpoint_utils.load_model_ensemble([str(path)], **of_toy)[0][0].eval() for path in (trained.path, out)]
    with torch.no_grad():
        expected, found = (logits(model, source, shift(target)) for model in models)
    assert found.equal(expected)
    _, tensors = packed_file.read(out)
    masks = {name: tensor.numel() for name, tensor in tensors.items() if name.endswith(".scores")}
    # Matrices of 16 x 16 and 16 x 24, embeddings of 12 tokens of width 16.
    assert sum(masks.values()) == (3 * (4 * 256 + 2 * 384) + 2 * (8 * 256 + 2 * 384) + 2 * 192) // 8
    rest = sum(tensor.numel() * tensor.element_size() for name, tensor in tensors.items() if name not in masks)
    # Weight and bias of 2 or 3 LayerNorms per layer; fairseq's two version numbers and ours.
    version = trained.run.weights["reservoir_version"]
    assert rest == 4 * 2 * 16 * (3 * 2 + 2 * 3) + 2 * 4 + version.numel() * version.element_size()
    assert 0 < size - sum(masks.values()) - rest < 64 * 1024


def test_8_the_papers_parameter_counts(capsys):
    """IWSLT small: 39.4 M parameters in full, 13.17 M random weights, of which one mask keeps 6.58 M."""
    words = "--source-words 8848 --target-words 6632 --mask-layernorm plain".split()
    cli.main(["size", "supermask_one_layer_transformer_iwslt_de_en", *words])
    lines = capsys.readouterr().out.splitlines()

    def entries(start, column=-2):
        return sum(int(line.split()[column].replace(",", "")) for line in lines if line.startswith(start))

    # Per layer: 4 x 512^2 + 2 x 512 x 1024 weights in the encoder, 8 x 512^2 + 2 x 512 x 1024 in the decoder.
    encoder, decoder, embeddings = 2_097_152, 3_145_728, (8848 + 6632) * 512
    assert entries("masks, 1 bit per entry") == 6 * encoder + 6 * decoder + embeddings == 39_383_040
    assert entries("random weights") == encoder + decoder + embeddings == 13_168_640
    # 4 bytes for half of them and for the LayerNorms, which are 1 and 0: 6 x 2 and 6 x 3 of 2 x 512 entries.
    norms = (6 * 2 + 6 * 3) * 2 * 512
    assert entries("as the paper counts", column=-1) == 4 * (6_584_320 + norms) and 2 * 6_584_320 == 13_168_640
