"""Starting from a model with another dictionary of the same size is refused, unless a flag allows it (fairseq#4469)."""

import logging
import math
import os

import pytest
from fairseq import options
from fairseq.data import Dictionary

from fairseq_reservoir import cli
from fairseq_reservoir.checkpoint import other_dictionary
from fairseq_reservoir.checkpoint.dictionaries import describe
from fairseq_reservoir.errors import InputError
from tests.checkpoint.test_dictionaries import with_words
from tests.conftest import write_split
from tests.support.commands import RUN, error_of, train

LM = (
    "--task language_modeling --arch frozen_transformer_lm --tokens-per-sample 16 --sample-break-mode eos --decoder-embed-dim 16"
    " --decoder-input-dim 16 --decoder-output-dim 16 --decoder-ffn-embed-dim 24 --decoder-attention-heads 2 --decoder-layers 1"
    " --share-decoder-input-output-embed"
).split()
ONE = ["--max-update", 1, "--disable-validation", "--no-epoch-checkpoints"]
SENTENCE, ORDERS = list("abcdefgh"), {"same": "abcdefgh", "other": "efghabcd"}


@pytest.fixture(autouse=True)
def not_allowed(monkeypatch):
    monkeypatch.setenv(other_dictionary.ALLOW, "")


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """The same text, 40 times the sentence "a b c d e f g h", with two dictionaries of the same words."""
    folders = {}
    for name, words in ORDERS.items():
        folders[name] = folder = tmp_path_factory.mktemp(name)
        write_split(folder / "train", [SENTENCE] * 40, words)
        for dictionary in ("dict.txt", "dict.en.txt", "dict.de.txt"):
            (folder / dictionary).write_text("".join(f"{word} 1\n" for word in words))
        for side in ("en", "de"):
            write_split(folder / f"train.en-de.{side}", [SENTENCE] * 40, words)
    return folders


@pytest.fixture(scope="module")
def model(texts, tmp_path_factory):
    """A language model that has learned the sentence, with the loss of its last update in nats per token."""
    folder = tmp_path_factory.mktemp("model")
    run = train(texts["same"], *LM, "--lr", 0.03, "--max-update", 60, *ONE[2:], "--save-dir", folder, begin=RUN)
    return folder / "checkpoint_last.pt", run.losses[-1]


def starts(model, folder):
    """Flags of each way to start from a model."""
    reset = "--reset-optimizer --reset-dataloader --reset-meters --reset-lr-scheduler".split()
    return {
        "finetune": ["--finetune-from-model", model, "--save-dir", folder],
        "restore": ["--restore-file", model, *reset, "--save-dir", folder],
        "decoder": ["--start-decoder-from", model, "--save-dir", folder],
    }


@pytest.mark.parametrize("way", ["finetune", "restore", "decoder"])
def test_a_start_from_the_other_dictionary(model, texts, tmp_path, way):
    """A uniform guess among 12 symbols costs ln 12 = 2.48 nats. A model with vectors of other words is worse."""
    path, trained = model
    flags = [*LM, *starts(path, tmp_path / "ck")[way], *ONE]
    line, status = error_of(texts["other"], *flags, begin=RUN)
    given = {"finetune": "--finetune-from-model", "restore": "--restore-file", "decoder": "--start-decoder-from"}[way]
    side, makes = (
        ("target", "--tgtdict, or --srcdict if you use --joined-dictionary")
        if way == "decoder"
        else ("source", "--srcdict")
    )
    assert status == 2 and line.strip().splitlines()[-1] == (
        f"fairseq-train: error: {given} {path}: the model's {side} dictionary and {texts['other']}/dict.txt both have 12 entries, but "
        "different words or a different order. Each word would start with the vector of another word; prepare DATA with the model's "
        f"dictionary (fairseq-preprocess {makes}), "
        "or give --allow-other-dictionary (or set FAIRSEQ_RESERVOIR_ALLOW_OTHER_DICTIONARY=1) to train anyway"
    )
    assert not (tmp_path / "ck" / "checkpoint_last.pt").exists()
    right = train(texts["same"], *flags, begin=RUN).losses[0]
    allowed = [*LM, *starts(path, tmp_path / "allowed")[way], *ONE, "--allow-other-dictionary"]
    wrong = train(texts["other"], *allowed, begin=RUN).losses[0]
    tokens = 4 * 9  # of a batch
    assert right / tokens == pytest.approx(trained / tokens, abs=0.1)
    assert right / tokens < 0.5 < math.log(12) < wrong / tokens


def test_an_export_and_the_stack_of_a_translation_model(texts, tmp_path):
    sizes = "--encoder-layers 1 --decoder-layers 1 --source-lang en --target-lang de".split()
    train(texts["same"], *sizes, *ONE, "--save-dir", tmp_path / "first")
    path, out = tmp_path / "first" / "checkpoint_last.pt", tmp_path / "model.safetensors"
    cli.main(["export", str(path), str(out)])
    for flag, file in (("--finetune-from-model", out), ("--start-encoder-from", path), ("--start-encoder-from", out)):
        line, status = error_of(texts["other"], *sizes, *ONE, flag, file, "--save-dir", tmp_path / "second")
        said = f"{flag} {file}: the model's source dictionary and {texts['other']}/dict.en.txt both have 12 entries, but different words"
        assert status == 2 and said in line.strip().splitlines()[-1]


def test_compared_dictionaries(caplog):
    trained = describe(with_words("abc", "de"))
    refuse = other_dictionary.refuse_other_dictionary
    refuse("--restore-file a.pt", trained, with_words("abc", "de"))
    refuse("--restore-file a.pt", trained, with_words("abcx", "dex"))  # of another size: the tensors do not fit
    with pytest.raises(InputError, match=r"^--restore-file a.pt: the model's target dictionary and the target dic"):
        refuse("--restore-file a.pt", trained, with_words("abc", "ed"))
    refuse("--start-encoder-from a.pt", trained, with_words("abc", "ed"), sides=("source",))
    refuse("--restore-file a.pt", trained, with_words("cba", "ed", dicts={}))
    assert caplog.messages == []
    caplog.set_level(logging.INFO)
    refuse("--restore-file a.pt", {}, with_words("cba", "ed"))
    assert caplog.messages == [
        "--restore-file a.pt: does not store a hash of the model's dictionary; make sure that this dictionary equals the one in DATA"
    ]


def test_token_vectors_of_a_roberta(monkeypatch):
    trained, dictionary = describe(with_words("abc", "abc"))["source"], Dictionary()
    for word in "acb":
        dictionary.add_symbol(word)
    refused = ("--mask-embeddings-from a.pt", trained, dictionary, "source", "that of DATA")
    with pytest.raises(InputError, match="^--mask-embeddings-from a.pt: the model's source dictionary and that of"):
        other_dictionary.refuse_other_words(*refused)
    monkeypatch.setenv(other_dictionary.ALLOW, "1")
    other_dictionary.refuse_other_words(*refused)


def test_the_flag_is_that_of_one_training(monkeypatch):
    """In a notebook, several trainings run in one process. A variable that the user has set is kept."""

    def allowed(*words, parser=options.get_training_parser):
        options.parse_args_and_arch(parser(), ["no-data", "--task", "translation", *words])
        return os.environ.get(other_dictionary.ALLOW, "")

    training = ("--arch", "transformer")
    assert [allowed(*training), allowed(*training, other_dictionary.FLAG)] == ["", "1"]
    assert allowed(parser=options.get_generation_parser) == "1"  # another command within the training
    assert [allowed(*training), allowed(*training)] == ["", ""]
    monkeypatch.setenv(other_dictionary.ALLOW, "1")
    assert [allowed(*training, other_dictionary.FLAG), allowed(*training)] == ["1", "1"]
