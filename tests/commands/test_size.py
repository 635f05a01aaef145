"""``fairseq-reservoir size`` compared with figures computed by hand and with figures of published methods."""

import re

import pytest

from fairseq_reservoir import cli
from fairseq_reservoir.checkpoint.ledger import Item, Ledger
from fairseq_reservoir.commands.size import describe
from fairseq_reservoir.random_tensors.recipe import Recipe
from tests.support.commands import train

MIB = 2**20


def size_lines(capsys, *arguments):
    """Return the lines of both tables."""
    cli.main(["size", *map(str, arguments)])
    return capsys.readouterr().out.splitlines()


def number(lines, start):
    return int(next(line for line in lines if line.startswith(start)).split()[-1].replace(",", ""))


def test_an_architecture_by_hand(capsys):
    flags = [
        "--reservoir-encoder",
        "LF",
        "--reservoir-decoder",
        "L",
        "--encoder-embed-dim",
        8,
        "--encoder-ffn-embed-dim",
        12,
    ]
    heads = ["--encoder-attention-heads", 2, "--decoder-attention-heads", 2, "--source-words", 20, "--target-words", 30]
    lines = size_lines(capsys, "reservoir_transformer", *flags, *heads)
    # F: fc1 12 x 8 and fc2 8 x 12; biases 12 + 8, LayerNorm 8 + 8
    assert number(lines, "random weights, orthogonal or normal") == 4 * 2 * 96
    assert number(lines, "random weights, equal on every machine") == 4 * (12 + 8 + 8 + 8)
    assert number(lines, "trained embeddings") == 4 * 8 * (20 + 30)
    # encoder layer: 4 attention matrices of 8 x 8 + 8, fc 96 + 12 + 96 + 8, two LayerNorms of 16; the decoder's has one
    # more attention and LayerNorm; the output projection is 30 x 8
    layer = 4 * 72 + 212 + 2 * 16
    trained = layer + layer + 4 * 72 + 16 + 240
    assert number(lines, "trained weights") == 4 * trained
    everything = trained + 8 * 50
    assert number(lines, "Adam's moments alone") == 8 * everything
    weights = number(lines, "inference: weights in memory")
    assert number(lines, "training: weights, gradients, Adam's moments (float32)") == weights + 12 * everything
    assert number(lines, "export --dtype fp32 --with-weights") == weights
    assert number(lines, "export --dtype fp16 --regenerate") == weights - 4 * (192 + 36) - 2 * everything


def test_a_checkpoint_and_an_export_of_it(toy_data, tmp_path, capsys):
    train(toy_data, "--reservoir-encoder", "LT", "--max-update", 2, "--save-dir", tmp_path, "--no-epoch-checkpoints")
    lines = size_lines(capsys, tmp_path / "checkpoint_last.pt")
    assert number(lines, "this file") == (tmp_path / "checkpoint_last.pt").stat().st_size
    # The optimizer state in the file consists of Adam's moments.
    assert number(lines, "optimizer state in it") == number(lines, "Adam's moments alone")
    predicted = number(lines, "export --dtype fp16 --regenerate")
    out = tmp_path / "a.safetensors"
    cli.main(["export", str(tmp_path / "checkpoint_last.pt"), str(out), "--dtype", "fp16", "--regenerate"])
    assert 0 < out.stat().st_size - predicted <= 64 * 1024
    capsys.readouterr()
    lines_of_export = size_lines(capsys, out)
    assert number(lines_of_export, "this file") == out.stat().st_size
    assert number(lines_of_export, "export --dtype fp16 --regenerate") == predicted
    (drawn,) = (line for line in lines_of_export if line.startswith("This export stores "))
    assert re.fullmatch(
        r"This export stores 0 of (\d+) random tensors\. Loading the export draws \1 from the seed\.", drawn
    )


SMALL = (
    "--encoder-embed-dim 64 --encoder-ffn-embed-dim 64 --encoder-layers 1 --decoder-layers 1"
    " --source-words 100 --target-words 200"
).split()
# encoder 4 x 64^2 + 2 x 64 x 64, decoder 8 x 64^2 + 2 x 64 x 64, embeddings 100 + 200 + 200 rows; each mask is rounded up to bytes
ENTRIES = 64 * 64 * (6 + 10) + 64 * (100 + 200 + 200)


@pytest.mark.parametrize(
    "flags, bits, entropy",
    [
        # entropy of the shares 0.7 and 0.3
        (["--mask-keep-ratio", 0.3], "1 bit", 0.8813),
        # 2.2282 for the shares 0.2, 0.3, 0.25, 0.15 and 0.1, and one bit for the signs of 0.8
        (["--mask-kind", "signed", "--mask-keep-ratio", 0.8, "--mask-coats", "0.5,0.25,0.1"], "4 bits", 3.0282),
        (["--mask-kind", "signed"], "2 bits", 1.5),
    ],
    ids=["0.3", "coats", "signed"],
)
def test_the_entropy_of_masks(capsys, flags, bits, entropy):
    lines = size_lines(capsys, "supermask_one_layer_transformer", *SMALL, *flags)
    assert [line for line in lines if line.startswith(f"masks, {bits} per entry, entropy {entropy:.2f} ")]
    assert [line for line in lines if line.startswith(f"masks, {bits} per entry (embeddings), entropy {entropy:.2f} ")]
    saved = number(lines, "export --dtype fp16  ") - number(
        lines, "export --dtype fp16 --compact, masks at their entropy"
    )
    assert saved == pytest.approx(ENTRIES * (int(bits[0]) - entropy) / 8, abs=20)


def test_the_entropy_of_levels_is_at_most_that_of_equal_shares(capsys):
    flags = ["--mask-trained-weights", "ternary"]
    lines = size_lines(capsys, "supermask_one_layer_transformer", *SMALL, *flags)
    assert [
        line for line in lines if line.startswith("trained weights, ternary, 2 bits per weight, one scale per matrix, ")
    ]
    assert [line for line in lines if "(embeddings), entropy at most 1.58 " in line]  # log2(3) = 1.585
    saved = number(lines, "export --dtype fp16  ") - number(lines, "export --dtype fp16 --compact, at most")
    assert saved == pytest.approx(ENTRIES * (2 - 1.58496) / 8, abs=20)


def test_masks_that_keep_half_cannot_be_compacted(capsys):
    assert not [line for line in size_lines(capsys, "supermask_one_layer_transformer") if "--compact" in line]


def test_plain_fairseq_has_no_exports(capsys):
    lines = size_lines(capsys, "transformer_tiny")
    assert not [line for line in lines if "xport" in line]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["nonsense"], "CHECKPOINT|ARCH nonsense: neither a file nor an architecture"),
        (["/tmp"], "CHECKPOINT|ARCH /tmp: is a folder; name a file in it"),
        (["{}", "--lr", "3"], "--lr 3: flags can only be given for an architecture, but {} is not an architecture"),
        (
            ["{}", "--source-words", "7"],
            "--source-words 7: can only be given for an architecture, but {} is not an architecture",
        ),
        (["{}"], "CHECKPOINT {}: not a checkpoint of fairseq"),
        (["reservoir_transformer", "--encoder-layers", "x"], "--encoder-layers: invalid int value: 'x'"),
        (["reservoir_transformer", "--reservoir-encoder", "LX"], "--reservoir-encoder 'LX': unknown letter 'X'"),
    ],
)
def test_refusals(tmp_path, arguments, message):
    (tmp_path / "text.pt").write_text("text")
    with pytest.raises(SystemExit) as refusal:
        cli.main(["size", *(a.format(tmp_path / "text.pt") for a in arguments)])
    text = str(refusal.value)
    assert text.startswith(f"fairseq-reservoir: error: {message.format(tmp_path / 'text.pt')}") and "\n" not in text


def one_layer_model(width, ffn, entries, layers):
    """Return the ledger of the paper's one-layer model: an encoder and a decoder layer, each with ``layers`` masks that keep 50 %."""
    encoder, decoder, embeddings = 4 * width**2 + 2 * width * ffn, 8 * width**2 + 2 * width * ffn, entries * width
    items = []
    for name, size, views in (
        ("encoder", encoder, layers),
        ("decoder", decoder, layers),
        ("x.embed_tokens.", embeddings, 1),
    ):
        recipe = Recipe("kaiming_uniform", name, (size,))
        items.append(Item(f"{name}w", (size,), 4, "random", recipe=recipe, keep_ratios=(0.5,) * views))
        items += [Item(f"{name}{i}", (size,), 4, "mask", bits=1) for i in range(views)]
    return Ledger(tuple(items))


@pytest.mark.parametrize(
    "sizes, paper, with_weights, masks",
    [
        # MiB: the paper's table, masks and random weights, masks only
        ((512, 1024, 8848 + 6632, 6), 25.1, 54.9, 4.7),
        ((512, 1024, 8848 + 6632, 12), 25.1, 58.7, 8.4),
        ((1024, 2048, 8848 + 6632, 6), 70.2, 157.4, 16.9),
        ((512, 2048, 2 * 40960, 6), 94.0, 198.2, 10.3),
        ((1024, 4096, 2 * 40960, 6), 216.0, 463.0, 31.0),
    ],
    ids=["iwslt", "iwslt_deep", "iwslt_wide", "wmt", "wmt_wider"],
)
def test_the_one_layer_papers_models(sizes, paper, with_weights, masks):
    found = one_layer_model(*sizes)
    assert found.papers_bytes / MIB == pytest.approx(paper, abs=0.06)
    assert found.export_bytes(with_weights=True) / MIB == pytest.approx(with_weights, abs=0.06)
    assert found.export_bytes() / MIB == pytest.approx(masks, abs=0.06)


def test_the_union_of_masks():
    # Six masks of one layer pair use 1 - 2^-6 of its weights. Each embedding has one mask.
    found = one_layer_model(512, 1024, 15480, 6)
    assert found.share_in_use == 1 - 2**-6
    text = describe(found)
    assert "together 98.4% of the shared weights" in " ".join(text.split())
    assert number(text.splitlines(), "as the paper counts") == 2 * (2097152 + 3145728 + 15480 * 512)
