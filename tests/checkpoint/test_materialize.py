"""Materialized checkpoints give the same translations in fairseq without the plugin, and in CTranslate2."""

import pytest
import torch

from fairseq_reservoir import cli
from fairseq_reservoir.checkpoint.export import export
from fairseq_reservoir.checkpoint.meta_checkpoint import open_checkpoint
from tests.support.commands import train
from tests.support.warm_start import run_command

ONE = ["--required-batch-size-multiple", "1"]


@pytest.fixture(scope="module")
def plain(of_l_and_t, tmp_path_factory):
    out = tmp_path_factory.mktemp("plain") / "plain.pt"
    cli.main(["materialize", str(of_l_and_t.path), str(out)])
    return out


def test_plain_fairseq_translates_the_same(plain, of_l_and_t, translate, toy_data, tmp_path):
    words = [
        toy_data,
        "--path",
        plain,
        "--results-path",
        tmp_path / "plain",
        "--cpu",
        "--beam",
        "3",
        "--max-len-b",
        "10",
    ]
    done = run_command("fairseq-generate", *words, *ONE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "reservoir" not in done.stderr
    lines = (tmp_path / "plain" / "generate-test.txt").read_text().splitlines()
    assert sorted(line for line in lines if line[:2] in ("H-", "P-")) == translate(of_l_and_t.path, *ONE) != []


def test_ctranslate2_translates_the_same(plain, of_l_and_t, translate, toy_data, tmp_path):
    ctranslate2 = pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: pip install ctranslate2")
    words = ["--model_path", plain, "--data_dir", toy_data, "--output_dir", tmp_path / "ct2"]
    done = run_command("ct2-fairseq-converter", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    hypotheses = {}
    for line in translate(of_l_and_t.path, "--beam", "1", "--max-len-b", "10"):
        kind, _, *words = line.split("\t")
        if kind.startswith("H-"):
            hypotheses[int(kind[2:])] = words[0].split()
    sources = (tmp_path / "results" / "generate-test.txt").read_text().splitlines()
    sources = {int(line.split("\t")[0][2:]): line.split("\t")[1].split() for line in sources if line.startswith("S-")}
    translator = ctranslate2.Translator(str(tmp_path / "ct2"), device="cpu", inter_threads=1, intra_threads=1)
    results = translator.translate_batch([sources[i] for i in sorted(sources)], beam_size=1, max_decoding_length=10)
    assert [r.hypotheses[0] for r in results] == [hypotheses[i] for i in sorted(sources)]


def test_it_has_only_tensors_and_plain_values(plain, of_l_and_t):
    state = torch.load(plain, weights_only=True)
    tied = [state["model"][f"decoder.{name}.weight"].data_ptr() for name in ("embed_tokens", "output_projection")]
    assert tied[0] == tied[1]
    assert state["model"].keys() == of_l_and_t.tensors.keys() - {"reservoir_version"}
    assert all(tensor.equal(of_l_and_t.tensors[name]) for name, tensor in state["model"].items())
    flags = vars(state["args"])
    assert (flags["arch"], flags["task"], flags["source_lang"], flags["target_lang"]) == (
        "transformer",
        "translation",
        "en",
        "de",
    )
    assert not [name for name in flags if name.startswith(("reservoir", "freeze"))]


def test_from_an_export(of_l_and_t, plain, tmp_path):
    export(of_l_and_t.path, tmp_path / "model.safetensors")
    cli.main(["materialize", str(tmp_path / "model.safetensors"), str(tmp_path / "plain.pt")])
    ours, theirs = torch.load(tmp_path / "plain.pt", weights_only=True), torch.load(plain, weights_only=True)
    assert all(tensor.equal(theirs["model"][name]) for name, tensor in ours["model"].items())


def test_other_plans_are_refused(every_kind, tmp_path):
    with pytest.raises(SystemExit) as leaving:
        cli.main(["materialize", str(every_kind.path), str(tmp_path / "a.pt")])
    text = str(leaving.value)
    assert text.endswith(
        "encoder layer 2 is F (feed-forward), which fairseq's transformer does not have; only plans of L and T can be materialized"
    )
    assert "\n" not in text and not (tmp_path / "a.pt").exists()


@pytest.mark.parametrize(
    "flags, reason",
    [
        ("--encoder-normalize-before", "--encoder-normalize-before True, --decoder-normalize-before False: CTranslate2 needs"),
        ("--decoder-attention-heads 4", "--encoder-attention-heads 2, --decoder-attention-heads 4: CTranslate2 needs"),
    ],
)  # fmt: skip
def test_models_that_clients_cannot_represent(toy_data, tmp_path, flags, reason):
    flags = f"--encoder-layers 1 --decoder-layers 1 {flags} --max-update 1 --disable-validation".split()
    train(toy_data, *flags, "--save-dir", tmp_path)
    with pytest.raises(SystemExit, match=reason):
        cli.main(["materialize", str(tmp_path / "checkpoint_last.pt"), str(tmp_path / "a.pt")])


def test_models_of_fairseq_are_refused(plain, tmp_path):
    with pytest.raises(SystemExit, match="transformer is not a translation model of this plugin"):
        cli.main(["materialize", str(plain), str(tmp_path / "a.pt")])


def test_files(of_l_and_t, tmp_path):
    (tmp_path / "old.pt").write_text("old")
    for out, reason in (("old.pt", "exists; --force replaces it"), ("a.safetensors", "the name must end in .pt")):
        with pytest.raises(SystemExit, match=reason):
            cli.main(["materialize", str(of_l_and_t.path), str(tmp_path / out)])
    assert (tmp_path / "old.pt").read_text() == "old"
    cli.main(["materialize", str(of_l_and_t.path), str(tmp_path / "old.pt"), "--force"])
    assert torch.load(tmp_path / "old.pt", weights_only=True)["model"]


def test_one_masked_table_for_both_languages_and_the_output(toy_data, tmp_path):
    """fairseq's three names share one tensor, with the values of our model."""
    flags = "--arch supermask_one_layer_transformer --encoder-layers 1 --decoder-layers 1 --share-all-embeddings --max-update 2".split()
    train(toy_data, *flags, "--mask-embeddings", "masked", "--save-dir", tmp_path)
    cli.main(["materialize", str(tmp_path / "checkpoint_last.pt"), str(tmp_path / "plain.pt")])
    tensors = torch.load(tmp_path / "plain.pt", weights_only=True)["model"]
    model = open_checkpoint(str(tmp_path / "checkpoint_last.pt")).built()
    places = ("encoder.embed_tokens", "decoder.embed_tokens", "decoder.output_projection")
    assert all(tensors[f"{place}.weight"].equal(model.get_submodule(place).weight) for place in places)
    assert len({tensors[f"{place}.weight"].data_ptr() for place in places}) == 1
