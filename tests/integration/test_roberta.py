"""RoBERTa models with fairseq's commands: masked language modelling, then sentence prediction, and use after training."""

from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_reservoir import cli
from fairseq_reservoir.checkpoint.export import export
from fairseq_reservoir.checkpoint.pretrained_embeddings import write_tables
from fairseq_reservoir.masks.masked_weight import masked_modules
from fairseq_reservoir.models.reservoir.roberta import ReservoirRoberta
from fairseq_reservoir.models.supermask.roberta import SupermaskOneLayerRoberta
from tests.support.commands import error_of, load, train

BEGIN = (
    "--cpu --encoder-embed-dim 16 --encoder-ffn-embed-dim 24 --encoder-attention-heads 2 --max-positions 16 --dropout 0.1"
    " --optimizer adam --lr 0.01 --batch-size 8 --num-workers 0 --log-format none --no-progress-bar --seed 3 --no-epoch-checkpoints"
).split()
MASKED_LM = "--task masked_lm --criterion masked_lm --tokens-per-sample 16 --sample-break-mode eos".split()
SENTENCES = "--task sentence_prediction --criterion sentence_prediction --num-classes 2 --init-token 0 --separator-token 2".split()
FINETUNE = "--reset-optimizer --reset-dataloader --reset-meters --reset-lr-scheduler".split()
FORMS = {
    "masks": (SupermaskOneLayerRoberta, "--arch supermask_one_layer_roberta --encoder-layers 2".split()),
    "plan": (ReservoirRoberta, "--arch reservoir_roberta --reservoir-encoder LTF".split()),
}
STACK = "encoder.sentence_encoder"


@pytest.fixture(scope="module", params=FORMS)
def trained(request, toy_data, moods, tmp_path_factory):
    """A masked language model, and the sentence classifier that started from it."""
    model_class, form = FORMS[request.param]
    folders = {stage: tmp_path_factory.mktemp(stage) for stage in ("language", "moods")}
    language = train(toy_data, *MASKED_LM, *form, "--max-update", 12, "--save-dir", folders["language"], begin=BEGIN)
    restore = ["--restore-file", folders["language"] / "checkpoint_last.pt", *FINETUNE]
    mood = train(moods, *SENTENCES, *form, *restore, "--max-update", 60, "--save-dir", folders["moods"], begin=BEGIN)
    return SimpleNamespace(
        model_class=model_class, form=form, folders=folders, language=language, moods=mood,
        paths={stage: folder / "checkpoint_last.pt" for stage, folder in folders.items()},
    )  # fmt: skip


def test_random_tensors_do_not_change_and_trained_ones_do(trained):
    for run in (trained.language, trained.moods):
        table = {entry.name: entry for entry in run.model.slot_table.entries}
        unused = ("encoder.lm_head",) if run is trained.moods else ()
        for name, tensor in run.weights.items():
            if name in table and name in run.initial and not name.startswith(unused):
                moved = not torch.equal(tensor, run.initial[name])
                assert moved == table[name].trained, name
    for name, recipe in trained.moods.model.recipes.items():
        assert torch.equal(trained.moods.weights[name], recipe.draw(3)), name
    if "supermask_one_layer_roberta" in trained.form:
        # 2 layers of 4 + 2 matrices, and the token embedding
        assert len(masked_modules(trained.moods.model)) == 13


def test_the_classifier_begins_with_the_language_model_and_learns(trained):
    assert "sentence_classification_head" in str(trained.moods.model.slot_table)
    before, after = (load(trained.folders[stage])["model"] for stage in ("language", "moods"))
    assert not any(name.startswith("classification_heads") for name in before)
    # classification does not use the language model's head, so it is unchanged
    head = "encoder.lm_head.dense.weight"
    assert torch.equal(after[head], before[head]) and not torch.equal(after[head], trained.moods.initial[head])
    # an epoch has 20 updates of 8 sentences; guessing costs 1 bit
    assert sum(trained.moods.losses[-20:]) < 0.8 * sum(trained.moods.losses[:20])


@pytest.mark.parametrize("trained", ["masks", pytest.param("plan", marks=pytest.mark.slow)], indirect=True)
def test_commands_and_the_hub_use_them(trained, toy_data, moods, run_fairseq):
    run_fairseq("validate", toy_data, *MASKED_LM, "--path", trained.paths["language"], "--cpu", "--batch-size", 8)
    run_fairseq("validate", moods, *SENTENCES, "--path", trained.paths["moods"], "--cpu", "--batch-size", 8)
    hub = trained.model_class.from_pretrained(
        str(trained.folders["language"]), "checkpoint_last.pt", str(toy_data), bpe=None
    )
    hub.bpe = SimpleNamespace(encode=str.strip, decode=" {}".format)
    (sentence, share, letter), *_ = hub.fill_mask("a b <mask> d", topk=1)
    # a is entry 4, after fairseq's special symbols, and <mask> entry 12
    logits = trained.language.model.eval()(torch.tensor([[0, 4, 5, 12, 7, 2]]))[0][0, 3]
    assert sentence == f"a b{letter} d" and share == pytest.approx(float(logits.softmax(0).max()))
    hub = trained.model_class.from_pretrained(str(trained.folders["moods"]), "checkpoint_last.pt", str(moods), bpe=None)
    tokens = torch.tensor([0, 5, 6, 2])
    expected = trained.moods.model.eval()(tokens[None], classification_head_name="sentence_classification_head")[0]
    got = hub.eval().predict("sentence_classification_head", tokens[None], return_logits=True)
    assert torch.equal(got, expected)


def test_an_export_has_the_same_logits(trained, toy_data, moods, tmp_path):
    tokens = torch.tensor([[0, 5, 6, 7, 2], [0, 9, 2, 1, 1]])
    for stage, data in (("language", toy_data), ("moods", moods)):
        out = tmp_path / f"{stage}.safetensors"
        written = export(trained.paths[stage], out)
        assert 0 < written.bytes - written.predicted_bytes <= 64 * 1024
        assert (written.stored == 0) == (trained.model_class is SupermaskOneLayerRoberta)
        (ours,), (theirs,) = (
            checkpoint_utils.load_model_ensemble([str(path)], arg_overrides={"data": str(data)})[0]
            for path in (out, trained.paths[stage])
        )
        for options in [{}] + [{"classification_head_name": "sentence_classification_head"}] * (stage == "moods"):
            with torch.no_grad():
                assert torch.equal(ours.eval()(tokens, **options)[0], theirs.eval()(tokens, **options)[0])


@pytest.mark.parametrize(
    "model",
    [
        "--arch frozen_roberta --encoder-layers 2",
        pytest.param("--arch reservoir_roberta --reservoir-encoder LL", marks=pytest.mark.slow),
        "--arch supermask_one_layer_roberta --encoder-layers 2",
    ],
)
def test_a_classification_head_alone_is_trained(model, toy_data, moods, tmp_path):
    """--freeze encoder freezes all parameters of a RoBERTa except the task's head. Without a head, nothing would be trained."""
    flags = [*model.split(), "--freeze", "encoder", "--max-update", 2, "--save-dir", tmp_path]
    run = train(moods, *SENTENCES, *flags, begin=BEGIN)
    moved = {
        name for name, tensor in run.weights.items() if name in run.initial and not tensor.equal(run.initial[name])
    }
    trained = {entry.name for entry in run.model.slot_table.entries if entry.trained}
    assert moved == trained and all(name.startswith("classification_heads.") for name in trained) and len(trained) == 4
    line, status = error_of(toy_data, *MASKED_LM, *flags, begin=BEGIN)
    assert (
        status != 0
        and line
        == "fairseq-train: error: --freeze encoder freezes every parameter; leave at least one parameter to train\n"
    )


def test_resuming_as_another_model_is_refused(trained, toy_data, tmp_path):
    others = {
        SupermaskOneLayerRoberta: (
            "--mask-keep-ratio 0.3",
            "--mask-keep-ratio 0.3: the checkpoint was trained with 0.5",
        ),
        ReservoirRoberta: ("--reservoir-encoder LFT", "--reservoir-encoder LFT: the checkpoint was trained with LTF"),
    }
    flags, message = others[trained.model_class]
    begin = ["--restore-file", trained.paths["language"], "--save-dir", tmp_path]
    line, status = error_of(toy_data, *MASKED_LM, *trained.form, *flags.split(), *begin, begin=BEGIN)
    assert status != 0 and message in line and line.count("\n") == 1


@pytest.mark.parametrize(
    "trained, how",
    [
        ("masks", "masked"),
        ("plan", "frozen"),
        ("plan", "trained"),
        pytest.param("masks", "frozen", marks=pytest.mark.slow),
        pytest.param("masks", "trained", marks=pytest.mark.slow),
        pytest.param("plan", "masked", marks=pytest.mark.slow),
    ],
    indirect=["trained"],
)
def test_embeddings_from_a_checkpoint_that_is_gone_afterwards(trained, toy_data, tmp_path, how, run_fairseq):
    source = tmp_path / "source.pt"
    source.write_bytes(trained.paths["language"].read_bytes())
    flags = [
        "--arch",
        "supermask_one_layer_roberta",
        "--encoder-layers",
        1,
        "--mask-embeddings",
        how,
        "--mask-embeddings-from",
        source,
    ]
    run = train(toy_data, *MASKED_LM, *flags, "--max-update", 3, "--save-dir", tmp_path / "run", begin=BEGIN)
    stack = trained.language.model.eval().encoder.sentence_encoder
    kept = "frozen_weight" if how == "masked" else "weight"
    # with a keep ratio of 0.5, scaled by the square root of 2; fairseq trains the row of padding, ours is 0
    expected = stack.embed_tokens.weight.detach() * (2**0.5 if how == "masked" else 1.0)
    expected[1] = 0
    assert torch.allclose(run.initial[f"{STACK}.embed_tokens.{kept}"], expected)
    assert torch.equal(run.initial[f"{STACK}.embed_positions.weight"], stack.embed_positions.weight)
    moved = not torch.equal(run.weights[f"{STACK}.embed_positions.weight"], stack.embed_positions.weight)
    assert moved == (how == "trained")

    source.unlink()
    path = tmp_path / "run" / "checkpoint_last.pt"
    run_fairseq("validate", toy_data, *MASKED_LM, "--path", path, "--cpu", "--batch-size", 8)
    export(path, tmp_path / "out.safetensors")
    (exported,), _ = checkpoint_utils.load_model_ensemble(
        [str(tmp_path / "out.safetensors")], arg_overrides={"data": str(toy_data)}
    )
    tokens = torch.tensor([[0, 5, 6, 2]])
    assert torch.equal(exported.eval()(tokens)[0], run.model.eval()(tokens)[0])


WRONG = {
    "no file": ([], "source.pt: no such file"),
    "another width": (
        ["--encoder-embed-dim", 32],
        "source.pt: has vectors of width 16, but --encoder-embed-dim is 32",
    ),
    "more positions": (["--max-positions", 20], "source.pt: has 16 positions, but the model has 20 (--max-positions)"),
}


@pytest.mark.parametrize("case", WRONG)
def test_embeddings_that_do_not_fit_are_refused(toy_data, tmp_path, case):
    flags, message = WRONG[case]
    if case != "no file":
        plain = ["--arch", "roberta", "--encoder-layers", 1, "--max-update", 1]
        train(toy_data, *MASKED_LM, *plain, "--save-dir", tmp_path, begin=BEGIN)
        (tmp_path / "checkpoint_last.pt").rename(tmp_path / "source.pt")
    flags = ["--arch", "supermask_one_layer_roberta", "--mask-embeddings-from", tmp_path / "source.pt", *flags]
    line, status = error_of(toy_data, *MASKED_LM, *flags, "--no-save", begin=BEGIN)
    assert status != 0 and f"--mask-embeddings-from {tmp_path}/{message}" in line and line.count("\n") == 1


def test_another_dictionary_is_refused(toy_data, make_corpus, tmp_path):
    train(
        toy_data,
        *MASKED_LM,
        "--arch",
        "roberta",
        "--encoder-layers",
        1,
        "--max-update",
        1,
        "--save-dir",
        tmp_path,
        begin=BEGIN,
    )
    other = make_corpus()
    (other / "dict.txt").write_text("".join(f"{word} 1\n" for word in "abcdefghij"))
    flags = [
        "--arch",
        "supermask_one_layer_roberta",
        "--mask-embeddings-from",
        tmp_path / "checkpoint_last.pt",
        "--no-save",
    ]
    line, _ = error_of(other, *MASKED_LM, *flags, begin=BEGIN)
    # fairseq's 4 special symbols, 8 or 10 letters, and <mask>
    assert (
        "checkpoint_last.pt: has 13 token vectors, but the dictionary of DATA has 15 entries" in line
        and line.count("\n") == 1
    )


@pytest.mark.parametrize(
    "arch",
    [pytest.param("transformer", marks=pytest.mark.slow), "reservoir_transformer", "supermask_one_layer_transformer"],
)
def test_translating_needs_no_file_of_vectors_either(toy_data, tmp_path, run_fairseq, arch):
    from tests.support.building import dictionary

    words = dictionary(4)
    for word in "abcdefgh":
        words.add_symbol(word)
    write_tables({tmp_path / "v": (words, torch.randn(12, 16))})
    flags = ["--arch", arch, "--encoder-layers", 1, "--decoder-layers", 1, "--encoder-embed-path", tmp_path / "v"]
    train(toy_data, *flags, "--max-update", 2, "--save-dir", tmp_path)
    (tmp_path / "v").unlink()
    path = tmp_path / "checkpoint_last.pt"
    run_fairseq("generate", toy_data, "--path", path, "--cpu", "--batch-size", 8, "--results-path", tmp_path)
    assert (tmp_path / "generate-test.txt").read_text().count("H-") == 8


def test_commands_on_checkpoints(trained, tmp_path, capsys):
    cli.main(["size", str(trained.paths["moods"])])
    text = capsys.readouterr().out
    assert "trained weights" in text and ("masks, 1 bit per entry" in text) == (
        trained.model_class is SupermaskOneLayerRoberta
    )
    with pytest.raises(SystemExit, match="is not a translation model of this plugin"):
        cli.main(["materialize", str(trained.paths["moods"]), str(tmp_path / "plain.pt")])
    cli.main(["dump-embeddings", str(trained.paths["language"]), str(tmp_path / "v")])
    # fairseq's 4 special symbols, 8 letters and <mask>
    assert (tmp_path / "v.txt").read_text().startswith("13 16\n")
