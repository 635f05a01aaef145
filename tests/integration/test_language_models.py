"""Language models with fairseq's commands: training, resuming, scoring, sampling, and checkpoints."""

import hashlib
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils, hub_utils

from fairseq_reservoir import cli
from fairseq_reservoir.checkpoint.meta_checkpoint import open_checkpoint
from fairseq_reservoir.masks.masked_weight import masked_modules
from tests.support import commands
from tests.support.commands import USER_DIR

TASK = "--task language_modeling --tokens-per-sample 16 --sample-break-mode eos".split()
SIZES = "--decoder-embed-dim 16 --decoder-ffn-embed-dim 24 --decoder-attention-heads 2 --share-decoder-input-output-embed".split()
FORMS = {
    "reservoir": ["--arch", "reservoir_transformer_lm", "--reservoir-decoder", "LTFGCS", "--freeze", "decoder.layers.0.ffn"],
    "supermask": ["--arch", "supermask_one_layer_transformer_lm", "--decoder-layers", "3"],
    "supermask, embeddings of its own": ["--arch", "supermask_one_layer_transformer_lm", "--decoder-layers", "2", "--mask-share", "none",
                                         "--mask-embeddings", "frozen", "--mask-scope", "row", "--mask-coats", "0.2"],
}  # fmt: skip

train, error_of = partial(commands.train, begin=commands.RUN), partial(commands.error_of, begin=commands.RUN)


@pytest.fixture(scope="module", params=FORMS)
def trained(request, toy_data, tmp_path_factory):
    """A run of 20 updates: ``run``, its ``flags``, and the ``path`` of its checkpoint."""
    folder = tmp_path_factory.mktemp("lm")
    flags = [*TASK, *FORMS[request.param], *SIZES]
    once = ["--max-update", 20, "--no-epoch-checkpoints", "--disable-validation"]
    run = train(toy_data, *flags, *once, "--save-dir", folder)
    return SimpleNamespace(run=run, flags=flags, path=folder / "checkpoint_last.pt", form=request.param)


@pytest.fixture
def eval_lm(monkeypatch, toy_data):
    """Return a function that scores the test set with a checkpoint by fairseq-eval-lm. It returns the loss in bits."""

    def run(path, *further):
        results = []
        command = import_module("fairseq_cli.eval_lm")
        original = command.eval_lm
        monkeypatch.setattr(
            command, "eval_lm", lambda *args, **kwargs: results.append(original(*args, **kwargs)) or results[-1]
        )
        arguments = [
            str(toy_data),
            "--path",
            str(path),
            "--gen-subset",
            "test",
            "--batch-size",
            "4",
            "--cpu",
            "--num-workers",
            "0",
        ]
        arguments += ["--sample-break-mode", "eos", "--tokens-per-sample", "16", "--user-dir", USER_DIR]
        monkeypatch.setattr(sys, "argv", ["fairseq-eval-lm", *arguments, *further])
        command.cli_main()
        return results[-1]["loss"]

    return run


def sha256(tensor):
    return hashlib.sha256(tensor.numpy().tobytes()).hexdigest()


def test_random_and_frozen_tensors_do_not_change_and_the_rest_does(trained):
    table, random = trained.run.model.slot_table, trained.run.model.recipes
    moved = {entry.name for entry in table.entries if entry.trained}
    stays = {entry.name for entry in table.entries if not entry.trained}
    assert random.keys() <= stays and len(random) >= 6
    for name in stays | moved:
        same = sha256(trained.run.weights[name]) == sha256(trained.run.initial[name])
        # The gradient of softmax does not change a bias of the keys, except by rounding.
        assert same == (name in stays) or name.endswith("k_proj.bias"), name
    for name, recipe in random.items():
        assert sha256(recipe.draw(table.seed)) == sha256(trained.run.weights[name]), name
    scores = [module.scores for module in masked_modules(trained.run.model).values()]
    assert bool(scores) == (trained.form != "reservoir") and all(score.dtype == torch.float32 for score in scores)


@pytest.mark.parametrize(
    "trained",
    ["reservoir", "supermask, embeddings of its own", pytest.param("supermask", marks=pytest.mark.slow)],
    indirect=True,
)
def test_training_continues_bit_for_bit_and_another_model_is_refused(trained, toy_data, tmp_path):
    flags = [*trained.flags, "--no-save", "--disable-validation", "--restore-file", trained.path]
    whole = train(toy_data, *trained.flags, "--no-save", "--disable-validation", "--max-update", 25)
    resumed = train(toy_data, *flags, "--max-update", 25)
    assert len(resumed.losses) == 5 and resumed.losses == whole.losses[20:]
    other, said = {
        "reservoir": (
            ["--reservoir-decoder", "LTFGCs"],
            "--reservoir-decoder LTFGCs: the checkpoint was trained with LTFGCS",
        ),
        "supermask": (["--seed", 9], "--mask-seed 9: the checkpoint was trained with 3"),
    }.get(trained.form, (["--mask-scope", "tensor"], "--mask-scope tensor: the checkpoint was trained with row"))
    line, status = error_of(toy_data, *flags, *other, "--max-update", 25)
    assert status == 2 and said in line and len(line.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "trained",
    ["reservoir", "supermask, embeddings of its own", pytest.param("supermask", marks=pytest.mark.slow)],
    indirect=True,
)
def test_an_export_scores_as_the_checkpoint_does(trained, eval_lm, tmp_path, capsys):
    out = tmp_path / "model.safetensors"
    cli.main(["export", str(trained.path), str(out)])
    assert " bytes" in capsys.readouterr().out
    loss = eval_lm(trained.path)
    assert 0 < loss < 5 and eval_lm(out) == loss
    assert eval_lm(out, "--model-overrides", "{'regenerate_weights': True}") == loss
    cli.main(["size", str(out)])
    assert f"{out.stat().st_size:,}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "trained",
    [
        "supermask",
        pytest.param("reservoir", marks=pytest.mark.slow),
        pytest.param("supermask, embeddings of its own", marks=pytest.mark.slow),
    ],
    indirect=True,
)
def test_it_samples_from_the_hub_interface(trained, toy_data, tmp_path):
    out = tmp_path / "model.safetensors"
    cli.main(["export", str(trained.path), str(out)])
    said = []
    for path in (trained.path, out):
        found = hub_utils.from_pretrained(str(path.parent), path.name, str(toy_data))
        hub = hub_utils.GeneratorHubInterface(found["args"], found["task"], found["models"])
        said.append(hub.sample(["a b c"], beam=2, max_len_b=6)[0])
    assert said[0].startswith("a b c") and said[0] == said[1]
    model = type(trained.run.model).from_pretrained(str(trained.path.parent), trained.path.name, str(toy_data))
    assert model.sample(["a b c"], beam=2, max_len_b=6)[0] == said[0]


@pytest.mark.parametrize(
    "trained",
    ["reservoir", "supermask, embeddings of its own", pytest.param("supermask", marks=pytest.mark.slow)],
    indirect=True,
)
def test_word_vectors_are_written_and_read(trained, toy_data, tmp_path, capsys):
    cli.main(["dump-embeddings", str(trained.path), str(tmp_path / "vectors")])
    assert capsys.readouterr().out.strip() == f"{tmp_path}/vectors.txt: 12 vectors of 16 numbers"
    start = ["--decoder-embed-path", tmp_path / "vectors.txt", "--mask-embeddings", "trained"]
    start = start[:2] if trained.form == "reservoir" else start
    again = train(toy_data, *trained.flags, *start, "--max-update", 1, "--no-save", "--disable-validation")
    vectors = open_checkpoint(trained.path).built().decoder.embed_tokens.weight
    assert again.initial["decoder.embed_tokens.weight"][4:].equal(vectors[4:])


def test_materialize_gives_a_reason(trained, tmp_path):
    with pytest.raises(SystemExit) as refusal:
        cli.main(["materialize", str(trained.path), str(tmp_path / "plain.pt")])
    assert "is not a translation model of this plugin" in str(refusal.value) and not list(tmp_path.iterdir())


def test_pruned_depth_renumbers_plan_and_masks(trained, toy_data):
    kept = {"reservoir": "0,3"}.get(trained.form, "1")
    (model,), _ = checkpoint_utils.load_model_ensemble(
        [str(trained.path)], arg_overrides={"decoder_layers_to_keep": kept}
    )
    origins = [int(place) for place in kept.split(",")]
    whole = trained.run.weights
    assert len(model.decoder.layers) == len(origins)
    for place, origin in enumerate(origins):
        for name, tensor in model.decoder.layers[place].state_dict().items():
            assert tensor.equal(whole[f"decoder.layers.{origin}.{name}"]), name


CORPUS = Path(__file__).parents[2].parent / "shared" / "data" / "lm"


@pytest.mark.skipif(not CORPUS.is_dir(), reason=f"no corpus at {CORPUS}")
@pytest.mark.parametrize("form", ["reservoir", "supermask"])
def test_it_learns_the_letters_of_a_novel(form, tmp_path, monkeypatch):
    """A few thousand characters of text, prepared by fairseq-preprocess. The model must beat the frequencies of the letters."""
    import gzip

    for split, lines in (("train", 400), ("valid", 40)):
        with gzip.open(CORPUS / f"war_and_peace.{split}.txt.gz", "rt", encoding="utf-8") as text:
            kept = [line for line in (next(text).strip().lower() for _ in range(lines)) if line]
        spelled = "\n".join(" ".join(line.replace(" ", "_")) for line in kept)
        (tmp_path / split).write_text(spelled, encoding="utf-8")
    arguments = [
        "--only-source",
        "--trainpref",
        tmp_path / "train",
        "--validpref",
        tmp_path / "valid",
        "--destdir",
        tmp_path / "data",
    ]
    monkeypatch.setattr(sys, "argv", ["fairseq-preprocess", *map(str, arguments)])
    import_module("fairseq_cli.preprocess").cli_main()
    flags = "--task language_modeling --tokens-per-sample 64 --sample-break-mode none --batch-size 16 --max-update 60".split()
    run = train(tmp_path / "data", *flags, *FORMS[form], *SIZES, "--no-save", "--dropout", 0)
    assert sum(run.losses[-5:]) < 0.8 * sum(run.losses[:5])
