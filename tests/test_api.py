"""The names of fairseq_reservoir.api: their examples, ``freeze`` by paths and components, masks, tables, and docs/api.md."""

import doctest
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from fairseq_reservoir import api
from fairseq_reservoir.errors import InputError
from fairseq_reservoir.masks.masked_linear import MaskedLinear
from tests.support.building import build, build_supermask

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", api.__all__)
def test_the_example_of_a_name(name, with_text, monkeypatch):
    monkeypatch.chdir(with_text.parent)  # the examples name model.safetensors
    function = getattr(api, name)
    (example,) = doctest.DocTestFinder().find(function, name, globs={"load": api.load})
    assert len(example.examples) > 2
    assert doctest.DocTestRunner(verbose=False).run(example).failed == 0
    assert "return" in function.__annotations__


def test_the_page_is_up_to_date(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import api_page

    assert api_page.PAGE.read_text() == api_page.page(), "run python scripts/api_page.py"


def small():
    """A torch model with a tied matrix and with a module that has the name of a component."""
    model = nn.ModuleDict({"ffn": nn.Linear(3, 3), "body": nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))})
    model["body"][1].weight = model["ffn"].weight
    return model


@pytest.mark.parametrize(
    "spec, frozen",
    [
        ("ffn", ["ffn.weight", "ffn.bias"]),
        ("body.1.weight", ["ffn.weight"]),
        ("body.*.bias , ffn.bias", ["ffn.bias", "body.0.bias", "body.1.bias"]),
        ("bias", ["ffn.bias", "body.0.bias", "body.1.bias"]),
        ("body", ["ffn.weight", "body.0.weight", "body.0.bias", "body.1.bias"]),
        (["body.0", "ffn.bias"], ["ffn.bias", "body.0.weight", "body.0.bias"]),
    ],
)
def test_paths_and_components_of_a_torch_model(spec, frozen):
    model = small()
    assert api.freeze(model, spec) == frozen
    assert [name for name, p in model.named_parameters() if not p.requires_grad] == frozen
    assert api.freeze(model, spec) == frozen  # a second call changes nothing


def test_running_statistics_are_not_frozen():
    model = nn.Sequential(nn.BatchNorm1d(2))
    assert api.freeze(model, "0") == ["0.weight", "0.bias"]
    model(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert model[0].running_mean.all()


def test_att_freezes_the_whole_attention_of_a_torch_model():
    model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
    api.freeze(model, "att")
    of_attention = {n for n, _ in model.named_parameters() if "self_attn." in n or "multihead_attn." in n}
    assert {n for n, p in model.named_parameters() if not p.requires_grad} == of_attention
    assert str(api.slot_table(model)).count(" frozen: att ") == 2


def test_an_embedding_is_no_product_with_a_matrix():
    model = nn.ModuleDict({"table": nn.Embedding(50, 4), "head": nn.Linear(4, 50, bias=False)})
    assert [row.flops for row in api.slot_table(model).rows] == [0, 400]
    model["head"].weight = model["table"].weight
    assert [row.flops for row in api.slot_table(model).rows] == [0, 400]


@pytest.mark.parametrize("spec", ["", [], "ffn,", "ffn,body.2", "ffn,att"])
def test_an_item_that_selects_nothing_freezes_nothing(spec):
    model = small()
    with pytest.raises(InputError, match="an item of the spec is empty|the modules of the model: ffn body"):
        api.freeze(model, spec)
    assert all(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize("options", [{}, {"arch": "supermask_one_layer_transformer_tiny"}, {"encoder": "LFT"}])
def test_the_table_of_a_built_model(options):
    """It is the model's own table, and the one of the flag ``--freeze`` after the same components are frozen."""
    model = build(**options)
    assert api.slot_table(model) == model.slot_table
    api.freeze(model, "encoder.ffn")
    assert str(api.slot_table(model)) == str(build(**options, freeze="encoder.ffn").slot_table)


def test_the_shown_table(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=lambda records: ("frame", records)))
    model = nn.Sequential(nn.Linear(1000, 2), nn.Linear(2, 1))
    api.freeze(model, "1")
    table = api.slot_table(model)
    keys = ["slot", "kind", "state", "parameters", "trained", "MFLOP/token"]
    first, second = ["0", "", "trained", 2002, 2002, 0.004], ["1", "", "frozen", 3, 0, 4e-6]
    assert table.records() == [dict(zip(keys, first)), dict(zip(keys, second))]
    assert table.to_pandas() == ("frame", table.records())
    shown = table._repr_html_()
    assert '<td style="text-align: left">trained</td><td style="text-align: right">2,002</td>' in shown
    assert shown.count("<tr>") == 4 and "<p>trained 99.85% of the parameters" in shown
    assert len(repr(table)) < 100 and len(repr(table.rows)) < 200


def test_masks_are_copies_by_name():
    model = nn.Sequential(MaskedLinear(4, 2, keep_ratio=0.5, seed=1), nn.Linear(2, 2)).eval()
    (kept,) = api.masks(model).values()
    assert kept.dtype == torch.bool and kept.sum() == 4
    kept.zero_()
    assert api.masks(model)["0"].sum() == 4
    assert api.masks(model[1]) == {}


def test_masks_that_are_multiplied_into_weights():
    model = build(arch="supermask_one_layer_transformer_tiny")
    assert api.masks(model)["encoder.layers.0.fc1"].dtype == torch.bool
    model.make_generation_fast_()
    with pytest.raises(InputError, match="load_model_ensemble"):
        api.masks(model)


@pytest.mark.parametrize(
    "trained", [{}, {"mask_trained_weights": "ternary"}, {"mask_embeddings": "8", "mask_row_gain": True}]
)
def test_the_table_of_a_model_prepared_for_translation(trained):
    """It is the table of the trained model. The tied embeddings are a trained copy once plain weights have replaced scores."""
    model = build_supermask(**trained)
    before = api.slot_table(model)
    model.make_generation_fast_()
    assert str(api.slot_table(model)) == str(before)


def test_a_checkpoint_finds_the_folder_of_its_data(of_numbers, with_text):
    """The translations are those of an export of the checkpoint, which has its dictionaries and pieces."""
    pieces = {"bpe": "sentencepiece", "sentencepiece_model": str(of_numbers.pieces)}
    translator, lines = api.load(of_numbers.path, **pieces), ["seventeen", "one hundred and two"]
    assert translator.task.cfg.data == str(of_numbers.data)
    assert translator.translate(lines) == api.load(with_text).translate(lines)


def test_a_missing_file_or_folder(of_numbers, tmp_path):
    with pytest.raises(InputError, match="no such file"):
        api.load(tmp_path / "checkpoint.pt")
    with pytest.raises(InputError, match="no such folder; give the folder with the dictionaries"):
        api.load(of_numbers.path, tmp_path / "data")


def test_the_subword_model_of_the_training_is_missing(of_numbers, tmp_path):
    state = torch.load(of_numbers.path, weights_only=False)
    state["cfg"]["bpe"] = {"_name": "sentencepiece", "sentencepiece_model": "/no/model"}
    torch.save(state, tmp_path / "checkpoint.pt")
    with pytest.raises(InputError, match="^bpe sentencepiece: .*/no/model"):
        api.load(tmp_path / "checkpoint.pt", of_numbers.data)


def test_an_export_with_its_own_subword_model(of_numbers, with_text):
    """Another subword model needs the folder of the dictionaries."""
    pieces = {"bpe": "sentencepiece", "sentencepiece_model": str(of_numbers.pieces)}
    with pytest.raises(InputError) as error:
        api.load(with_text, **pieces)
    assert str(error.value) == (
        f"bpe sentencepiece: {with_text} contains its own tokenizer and subword model; remove bpe and sentencepiece_model, or add "
        "data=FOLDER with the folder of the dictionaries to use another one"
    )
    for one in ({"tokenizer": "moses"}, {"sentencepiece_model": "/no/model"}):
        with pytest.raises(InputError, match=f"^{next(iter(one))} .*; remove {next(iter(one))}, or add data=FOLDER"):
            api.load(with_text, **one)
    expected = api.load(with_text, bpe=None).translate("one hundred and two")
    assert api.load(with_text, of_numbers.data, **pieces).translate("one hundred and two") == expected


def test_options_of_generation(of_numbers, with_text):
    """An export and a checkpoint use the same options. An option of ``translate`` replaces the same option of ``load``."""
    pieces = {"bpe": "sentencepiece", "sentencepiece_model": str(of_numbers.pieces)}
    line, short = "one hundred and two", {"max_len_b": 1}
    plain = api.load(with_text)
    expected = plain.translate(line, **short)
    assert expected != plain.translate(line)
    translator = api.load(with_text, **short)
    assert translator.translate(line) == expected
    assert api.load(of_numbers.path, **short, **pieces).translate(line) == expected
    assert translator.translate(line, max_len_b=200) == plain.translate(line)
    with pytest.raises(InputError, match="^lenpen a: "):
        api.load(with_text, lenpen="a")
    for path in (with_text, of_numbers.path):
        with pytest.raises(InputError, match="^load: 'beam': give it to translate or hypotheses"):
            api.load(path, beam=3)


@pytest.mark.parametrize(
    "overrides, message",
    [
        (
            {"regenerate_weight": True},
            "^load: 'regenerate_weight': not an option of fairseq; did you mean 'regenerate_weights'\\?$",
        ),
        ({"bpe": "nonsense"}, "^bpe nonsense: must be one of .*, sentencepiece, subword_nmt$"),
        ({"tokenizer": "nonsense"}, "^tokenizer nonsense: must be one of moses, nltk, space$"),
        ({"bpe": "sentencepiece"}, "^bpe sentencepiece: Missing mandatory value: sentencepiece_model$"),
        ({"bpe": "subword_nmt", "bpe_codes": "/no/codes"}, "^bpe subword_nmt: file /no/codes not found$"),
    ],
)
def test_a_subword_model_that_does_not_exist(of_numbers, overrides, message):
    with pytest.raises(InputError, match=message):
        api.load(of_numbers.path, of_numbers.data, **overrides)
