"""Exports contain no names of their machine, and a SentencePiece model without names splits text as before."""

import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from fairseq_reservoir.checkpoint import anonymize, export_file, packed_file
from fairseq_reservoir.checkpoint.export import as_json, export
from fairseq_reservoir.checkpoint.meta_checkpoint import read_state
from fairseq_reservoir.commands.size import _identifying_names
from fairseq_reservoir.errors import InputError

CONFIG = {
    "common": {"user_dir": "/home/ann/plugin", "tensorboard_logdir": "tb", "seed": 7, "plasma_path": "/tmp/plasma",
               "wandb_project": "secret"},
    "distributed_training": {"distributed_init_method": "tcp://host7:4000", "ddp_backend": "pytorch_ddp"},
    "checkpoint": {"save_dir": "runs", "restore_file": "checkpoint_last.pt", "finetune_from_model": "C:\\models\\a.pt"},
    "task": {"_name": "translation", "data": "bin", "source_lang": "en"},
    "bpe": {"_name": "sentencepiece", "sentencepiece_model": "m.model"},
    "model": {"__namespace__": {"data": "bin", "encoder_embed_path": "vectors", "reservoir_encoder": "LF", "dropout": 0.1, "x": "../y"}},
    "scoring": None,
}  # fmt: skip


def test_by_hand():
    """fairseq's defaults replace identifying options. An option of the model stays set."""
    assert anonymize.anonymized(CONFIG) == {
        "common": {"user_dir": None, "tensorboard_logdir": None, "seed": 7, "plasma_path": "/tmp/plasma", "wandb_project": None},
        "distributed_training": {"distributed_init_method": None, "ddp_backend": "pytorch_ddp"},
        "checkpoint": {"save_dir": "checkpoints", "restore_file": "checkpoint_last.pt", "finetune_from_model": None},
        "task": {"_name": "translation", "data": "", "source_lang": "en"},
        "bpe": {"_name": "sentencepiece", "sentencepiece_model": ""},
        "model": {"__namespace__": {
            "data": "left-out", "encoder_embed_path": "left-out", "reservoir_encoder": "LF", "dropout": 0.1, "x": "left-out"}},
        "scoring": None,
    }  # fmt: skip
    assert ("task.data", "bin") in anonymize.identifying_options(CONFIG) and len(
        anonymize.identifying_options(CONFIG)
    ) == 11
    assert anonymize.identifying_options(anonymize.anonymized(CONFIG)) == []
    assert anonymize.anonymized(anonymize.anonymized(CONFIG)) == anonymize.anonymized(CONFIG)


def test_the_public_defaults_of_a_choice_stay():
    """fairseq downloads the vocabulary of GPT-2 from its default addresses. A path of a local file becomes empty."""
    public = "https://dl.fbaipublicfiles.com/fairseq/gpt2_bpe/encoder.json"
    gpt2 = {"_name": "gpt2", "gpt2_encoder_json": public, "gpt2_vocab_bpe": "/home/ann/vocab.bpe"}
    config = {
        "bpe": gpt2,
        "task": {"__namespace__": {"bpe": "gpt2", "gpt2_encoder_json": public, "pretrained_checkpoint": "x.pt"}},
        "model": {"__namespace__": {"bpe": "gpt2", "gpt2_encoder_json": public, "path": "x"}},
    }
    cleaned = anonymize.anonymized(config)
    assert cleaned["bpe"] == gpt2 | {"gpt2_vocab_bpe": ""}
    assert cleaned["task"]["__namespace__"] == {"bpe": "gpt2", "gpt2_encoder_json": public, "pretrained_checkpoint": ""}
    assert cleaned["model"]["__namespace__"] == {"bpe": "gpt2", "gpt2_encoder_json": public, "path": "left-out"}
    told = [("bpe.gpt2_vocab_bpe", "/home/ann/vocab.bpe"), ("task.pretrained_checkpoint", "x.pt"), ("model.path", "x")]
    assert anonymize.identifying_options(config) == told


def test_names_of_files_without_a_folder():
    merges = {
        "_name": "hf_byte_bpe",
        "bpe_merges": "merges.txt",
        "bpe_vocab": "vocab.json",
        "bpe_add_prefix_space": False,
    }
    config = {"bpe": merges, "distributed_training": {"pipeline_checkpoint": "always"}}
    assert anonymize.anonymized(config) == {
        "bpe": merges | {"bpe_merges": "", "bpe_vocab": ""},
        "distributed_training": {"pipeline_checkpoint": "always"},
    }
    # An old or malicious file may have other values in place of a name.
    assert anonymize.identifying_options(
        {"bpe": {"_name": ["gpt2"], "bpe_vocab": "a"}, "task": {"_name": "none", "data": "b", "__namespace__": 3}}
    ) == [
        ("bpe.bpe_vocab", "a"),
        ("task.data", "b"),
    ]


def test_an_export_is_anonymous(every_kind, toy_data, tmp_path):
    export(every_kind.path, str(out := tmp_path / "model.safetensors"))
    body, tensors = packed_file.read(out)
    said = json.dumps(body["config"])
    for path in (toy_data, every_kind.path.parent, Path(anonymize.__file__).parents[1]):
        assert str(path) not in said
    assert not re.search(r"/(home|root|work|usr|var|tmp/pytest)", said)
    source, again = read_state(str(every_kind.path)), read_state(str(out))
    assert dict(anonymize.identifying_options(as_json(source["cfg"])))["task.data"] == str(toy_data)
    assert all(
        tensor.equal(source["model"][name]) for name, tensor in again["model"].items() if name in source["model"]
    )
    # A second export is equal, and an export can be exported again without a folder of dictionaries.
    export(str(every_kind.path), str(tmp_path / "second.safetensors"))
    assert (tmp_path / "second.safetensors").read_bytes() == out.read_bytes()
    export(str(out), str(tmp_path / "third.safetensors"))
    assert packed_file.read(tmp_path / "third.safetensors")[0]["dictionaries"] == body["dictionaries"]


def test_size_prints_identifying_options(every_kind, toy_data, tmp_path):
    from fairseq_reservoir.checkpoint.meta_checkpoint import open_checkpoint

    said = _identifying_names(str(every_kind.path), open_checkpoint(str(every_kind.path)))
    assert f"\n  task.data {toy_data}" in said and "save_dir" in said
    export(every_kind.path, str(out := tmp_path / "model.safetensors"))
    assert (
        _identifying_names(str(out), open_checkpoint(str(out)))
        == "The file contains no path, host name or project name that identifies its author."
    )


def test_a_sentencepiece_model_without_names(tmp_path):
    sentencepiece = pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")
    draw = random.Random(1)
    lines = [" ".join(draw.choices(["the", "lower", "newest", "été", "widest", "low"], k=6)) for _ in range(200)]
    (tmp_path / "secret text").write_text("\n".join(lines))
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "secret text"),
        model_prefix=str(tmp_path / "joint"),
        vocab_size=40,
        minloglevel=2,
        hard_vocab_limit=False,
    )
    model = (tmp_path / "joint.model").read_bytes()
    assert anonymize.names_in_sentencepiece(model) == [str(tmp_path / "secret text"), str(tmp_path / "joint")]
    without = anonymize.sentencepiece_without_names(model)
    assert str(tmp_path).encode() in model and str(tmp_path).encode() not in without
    assert anonymize.names_in_sentencepiece(without) == [] and anonymize.sentencepiece_without_names(without) == without
    theirs, ours = (sentencepiece.SentencePieceProcessor() for _ in range(2))
    theirs.LoadFromSerializedProto(model)
    ours.LoadFromSerializedProto(without)
    assert [ours.IdToPiece(i) for i in range(len(ours))] == [theirs.IdToPiece(i) for i in range(len(theirs))]
    assert all(
        ours.EncodeAsPieces(line) == theirs.EncodeAsPieces(line) for line in [*lines, "unseen words ÄÖ 12", "  "]
    )


@pytest.mark.parametrize("content", [b"", b"\xff" * 20, b"\x12", b"\x12\x7fabc", b"not a model", b"\x12\x02\x0a\x09"])
def test_other_bytes_are_returned_unchanged(content):
    assert anonymize.sentencepiece_without_names(content) == content and anonymize.names_in_sentencepiece(content) == []


def test_an_export_with_text_is_anonymous(with_text, of_numbers):
    text = export_file.read_text(with_text)
    model = of_numbers.pieces.read_bytes()
    assert anonymize.names_in_sentencepiece(text.model) == []
    assert text == replace(text, model=anonymize.sentencepiece_without_names(model))


def test_an_export_names_no_data_folder(every_kind, tmp_path):
    from fairseq_reservoir.checkpoint import dictionaries

    export(every_kind.path, str(out := tmp_path / "model.safetensors"))
    with pytest.raises(
        InputError, match="^--data: not given; give the folder of the dictionaries, which an export does not name"
    ):
        dictionaries.task_of_config(read_state(str(out))["cfg"], None)
