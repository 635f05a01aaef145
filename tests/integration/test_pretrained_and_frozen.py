"""Training from a checkpoint with frozen attention and feed-forward blocks: these keep the checkpoint's bits."""

import random
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from fairseq_reservoir.checkpoint.materialize import materialize
from fairseq_reservoir.freezing.description import BUFFER
from tests.conftest import write_split
from tests.support import commands
from tests.support.commands import load

BEGIN = (
    "--cpu --dropout 0.1 --optimizer adam --lr 0.01 --batch-size 8 --num-workers 0 --log-format none --no-progress-bar --seed 3"
    " --no-epoch-checkpoints --disable-validation"
).split()
train, error_of = partial(commands.train, begin=BEGIN), partial(commands.error_of, begin=BEGIN)
SPEC = ["--freeze-except", "ln,pos,emb,out"]
UNUSED = ("dense.weight", "dense.bias", "layer_norm.weight", "layer_norm.bias", "bias")
TRAINED = (
    "layer_norm",
    "layernorm_embedding",
    "embed_positions",
    "embed_tokens",
    "output_projection",
    "classification_heads",
    "lm_head",
)
# By hand: d = 16, 2 layers, 12 symbols (4 special ones, 8 letters), positions 0 to 15 and 2 for padding.
D, L, WORDS, POSITIONS = 16, 2, 12, 16 + 2
ENCODER = "--encoder-embed-dim 16 --encoder-ffn-embed-dim 24 --encoder-attention-heads 2"
DECODER = "--decoder-embed-dim 16 --decoder-ffn-embed-dim 24 --decoder-attention-heads 2 --decoder-learned-pos"
KINDS = {
    "translation": SimpleNamespace(
        model=f"--arch reservoir_transformer {ENCODER} --reservoir-encoder LL {DECODER} --reservoir-decoder LL --encoder-learned-pos"
        " --max-source-positions 16 --max-target-positions 16",
        pretraining="", finetuning="", plan="--reservoir-encoder LF", given="LL",
        # two LayerNorms in an encoder layer, three in a decoder layer, each with weight and bias; nothing is tied
        trained=4 * D * L + 6 * D * L + 2 * POSITIONS * D + 3 * WORDS * D,
    ),
    "language model": SimpleNamespace(
        model=f"--arch reservoir_transformer_lm {DECODER} --reservoir-decoder LL",
        pretraining="--task language_modeling --tokens-per-sample 16 --sample-break-mode none",
        finetuning="--task language_modeling --tokens-per-sample 16 --sample-break-mode eos", plan="--reservoir-decoder FL", given="LL",
        # two in a layer and one on top
        trained=4 * D * L + 2 * D + POSITIONS * D + 2 * WORDS * D,
    ),
    "masked language model": SimpleNamespace(
        model=f"--arch reservoir_roberta {ENCODER} --reservoir-encoder LL --max-positions 16",
        pretraining="--task masked_lm --criterion masked_lm --tokens-per-sample 16 --sample-break-mode eos",
        finetuning="--task sentence_prediction --criterion sentence_prediction --num-classes 2 --init-token 0 --separator-token 2",
        plan="--reservoir-encoder LM", given="LL",
        # One above the embedding; <mask> is one more symbol. The output of the language model has its own LayerNorm and is tied to the
        # embedding, except for a square matrix and biases. The classifier has a square matrix and one for two classes.
        trained=4 * D * L + 2 * D + POSITIONS * D + (WORDS + 1) * D
        + (D * D + D + 2 * D + WORDS + 1) + (D * D + D + 2 * D + 2),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def sentences(tmp_path_factory):
    """Folder for sentence_prediction with the dictionary of ``toy_data``. The label is whether the sentence begins with a to d."""
    folder, words, draw = tmp_path_factory.mktemp("sentences"), list("abcdefgh"), random.Random(2)
    for column, entries in (("input0", words), ("label", "01")):
        (folder / column).mkdir()
        (folder / column / "dict.txt").write_text("".join(f"{word} 1\n" for word in entries))
    for split in ("train", "valid"):
        drawn = [draw.choices(words, k=draw.randint(2, 6)) for _ in range(80)]
        write_split(folder / "input0" / split, drawn, words)
        write_split(folder / "label" / split, [[str(int(sentence[0] < "e"))] for sentence in drawn], "01")
    return folder


@pytest.fixture(scope="module", params=KINDS)
def tuned(request, toy_data, sentences, tmp_path_factory):
    """A pretrained model, and one that started from it with ``SPEC``, with the command of the latter."""
    kind = KINDS[request.param]
    folders = {stage: tmp_path_factory.mktemp(stage) for stage in ("before", "after")}
    train(toy_data, *kind.model.split(), *kind.pretraining.split(), "--max-update", 5, "--save-dir", folders["before"])
    data = sentences if "sentence_prediction" in kind.finetuning else toy_data
    start = ["--finetune-from-model", folders["before"] / "checkpoint_last.pt"]
    command = [data, *kind.model.split(), *kind.finetuning.split(), *SPEC, *start]
    run = train(*command, "--max-update", 5, "--save-dir", folders["after"])
    return SimpleNamespace(kind=kind, run=run, command=command, folders=folders)


def test_frozen_tensors_are_the_checkpoints_and_all_others_moved(tuned):
    before, after = (load(folder)["model"] for folder in tuned.folders.values())
    assert before.keys() == {name for name in after if not name.startswith("classification_heads")}
    moved = {name for name in after if not torch.equal(after[name], before.get(name, tuned.run.initial[name]))}
    expected = {name for name in after if any(part in name for part in TRAINED)}
    # Classification does not use the parameters of the language model's output.
    expected -= {f"encoder.lm_head.{name}" for name in UNUSED}
    assert moved - {BUFFER} == expected
    assert any("fc1" in name for name in before) and any("q_proj" in name for name in before)


def test_the_number_of_trained_parameters_equals_the_formula(tuned):
    trained = [p for p in tuned.run.model.parameters() if p.requires_grad]
    assert sum(p.numel() for p in trained) == tuned.kind.trained == tuned.run.model.slot_table.trained_parameters
    assert len(list(tuned.run.trainer.optimizer.params)) == len(trained)


def test_the_same_command_resumes_and_another_plan_is_refused(tuned, tmp_path):
    going_on = train(*tuned.command, "--max-update", 7, "--save-dir", tuned.folders["after"])
    assert going_on.trainer.get_num_updates() == 7 and len(going_on.losses) == 2
    flag, plan = tuned.kind.plan.split()
    line, status = error_of(*tuned.command, flag, plan, "--save-dir", tmp_path)
    assert (
        status != 0
        and f"{flag} {plan}: the checkpoint was trained with {tuned.kind.given}" in line
        and line.count("\n") == 1
    )


@pytest.fixture(scope="module")
def plain(toy_data, tmp_path_factory):
    """A checkpoint of fairseq's own Transformer with two layers, and the flags of its sizes."""
    folder = tmp_path_factory.mktemp("plain")
    sizes = [*ENCODER.split(), *DECODER.replace("--decoder-learned-pos", "").split()]
    depths = ["--encoder-layers", 2, "--decoder-layers", 2]
    train(toy_data, "--arch", "transformer", *sizes, *depths, "--max-update", 2, "--save-dir", folder)
    return SimpleNamespace(path=folder / "checkpoint_last.pt", sizes=sizes)


@pytest.mark.parametrize("start", [["--finetune-from-model"], ["--reset-optimizer", "--restore-file"]])
@pytest.mark.parametrize(
    "plans, said",
    [
        (
            "--reservoir-encoder LT --reservoir-decoder LL",
            "--reservoir-encoder LT: T is a random layer, but the checkpoint",
        ),
        (
            "--reservoir-encoder LL --reservoir-decoder TL",
            "--reservoir-decoder TL: T is a random layer, but the checkpoint",
        ),
    ],
)
def test_a_random_layer_does_not_take_the_values_of_a_plain_checkpoint(plain, toy_data, tmp_path, plans, said, start):
    command = [
        toy_data,
        "--arch",
        "reservoir_transformer",
        *plain.sizes,
        *plans.split(),
        *start,
        plain.path,
        "--save-dir",
        tmp_path,
    ]
    line, status = error_of(*command)
    stack, layer = ("encoder", 1) if "LT" in plans else ("decoder", 0)
    assert status != 0 and said in line and line.count("\n") == 1
    assert line.endswith(f"write the letter of a trained layer instead of T, and add --freeze {stack}.layers.{layer}\n")
    assert not list(tmp_path.iterdir())


def test_no_supermask_of_a_plain_checkpoint(plain, toy_data, tmp_path):
    model = ["--arch", "supermask_one_layer_transformer", *plain.sizes, "--encoder-layers", 2, "--decoder-layers", 2]
    line, status = error_of(toy_data, *model, "--finetune-from-model", plain.path, "--save-dir", tmp_path)
    assert "error: the checkpoint has no " in line and line.count("\n") == 1 and status != 0
    assert line.endswith(", so it is of another architecture; give a checkpoint of SupermaskOneLayerTransformer\n")


def test_the_remedy_of_the_message_freezes_the_checkpoints_values(plain, toy_data, tmp_path):
    plans = "--reservoir-encoder LL --reservoir-decoder LL --freeze encoder.layers.1".split()
    start = ["--finetune-from-model", plain.path, "--max-update", 2, "--save-dir", tmp_path]
    run = train(toy_data, "--arch", "reservoir_transformer", *plain.sizes, *plans, *start)
    before, after = load(plain.path.parent)["model"], load(tmp_path)["model"]
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved and not any(name.startswith("encoder.layers.1.") for name in moved)
    assert not run.model.recipes and "drawn from seed" not in str(run.model.slot_table)


def test_drawn_components_do_not_take_the_values_of_a_plain_checkpoint(plain, toy_data, tmp_path):
    spec = ["--freeze", "encoder.ffn", "--frozen-init", "orthogonal", "--reset-optimizer", "--restore-file", plain.path]
    depths = ["--encoder-layers", 2, "--decoder-layers", 2]
    line, status = error_of(
        toy_data, "--arch", "frozen_transformer", *plain.sizes, *depths, *spec, "--save-dir", tmp_path
    )
    assert status != 0 and "--frozen-init orthogonal: the checkpoint" in line and line.count("\n") == 1
    assert line.endswith("remove --frozen-init to freeze the values of the checkpoint\n")


def test_drawn_components_do_not_take_the_values_of_a_checkpoint_of_ours(plain, toy_data, tmp_path):
    """From a checkpoint that trained them, or that drew them from another seed. With the seed's own values, training starts."""
    sizes = [*plain.sizes, "--encoder-layers", 2, "--decoder-layers", 2]
    model = [toy_data, "--arch", "frozen_transformer", *sizes]
    drawn = ["--freeze", "encoder.ffn", "--frozen-init", "glorot"]
    for name, flags in (("trained", ["--freeze", "decoder.ffn"]), ("drawn", drawn)):
        train(*model, *flags, "--max-update", 2, "--save-dir", tmp_path / name)
    start = ["--max-update", 1, "--reset-optimizer", "--save-dir", tmp_path / "new", "--restore-file"]
    line, status = error_of(*model, *drawn, *start, tmp_path / "trained" / "checkpoint_last.pt")
    assert (
        status != 0
        and line.count("\n") == 1
        and line.endswith("remove --frozen-init to freeze the values of the checkpoint\n")
    )
    assert "--frozen-init glorot: the checkpoint's encoder.layers.0.fc1.weight differs" in line
    line, status = error_of(*model, *drawn, "--reservoir-seed", 4, *start, tmp_path / "drawn" / "checkpoint_last.pt")
    assert status != 0 and line.count("\n") == 1 and line.endswith("give --reservoir-seed 3\n")
    assert "--reservoir-seed 4 (default: --seed): the checkpoint's encoder" in line
    assert not (tmp_path / "new").exists() or not list((tmp_path / "new").iterdir())
    more = ["--freeze-except", "encoder.att,decoder", "--frozen-init", "glorot"]
    line, status = error_of(*model, *more, *start, tmp_path / "drawn" / "checkpoint_last.pt")
    assert status != 0 and "--frozen-init glorot: the checkpoint's encoder" in line
    on = train(
        *model,
        "--freeze",
        "encoder.layers.0.ffn",
        *drawn[2:],
        *start,
        tmp_path / "drawn" / "checkpoint_last.pt",
    )
    assert on.trainer.get_num_updates() == 1


def test_a_plain_checkpoint_with_the_values_of_the_seed_is_no_other(plain, toy_data, tmp_path):
    """As written by ``materialize``, which folds T into an ordinary layer."""
    model = ["--arch", "reservoir_transformer", *plain.sizes, "--reservoir-encoder", "LT", "--reservoir-decoder", "LL"]
    train(toy_data, *model, "--max-update", 2, "--save-dir", tmp_path / "ours")
    materialize(str(tmp_path / "ours" / "checkpoint_last.pt"), str(tmp_path / "folded.pt"))
    assert BUFFER not in load(tmp_path, "folded.pt")["model"]
    start = ["--finetune-from-model", tmp_path / "folded.pt", "--max-update", 1, "--save-dir", tmp_path / "on"]
    assert train(toy_data, *model, *start).trainer.get_num_updates() == 1
    line, status = error_of(toy_data, *model, *start, "--reservoir-seed", 4, "--save-dir", tmp_path / "other")
    assert status != 0 and "--reservoir-encoder LT: T is a random layer" in line


def test_initial_values_of_tensors_in_the_checkpoint_are_refused(tuned, tmp_path):
    line, status = error_of("no-data", *tuned.command[1:], "--frozen-init", "glorot", "--save-dir", tmp_path)
    assert status == 2 and line.endswith("error: --frozen-init glorot: has no effect with --finetune-from-model, which sets all values;"
                                         " remove one of them\n")  # fmt: skip
