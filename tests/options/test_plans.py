"""Layer plans are checked before data is read and again when the model is built, for every source of the options."""

from argparse import Namespace
from collections import Counter

import pytest

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.models.reservoir.transformer import DEPTHS, ReservoirTransformer
from fairseq_reservoir.options import plans
from fairseq_reservoir.options.for_fairseq.namespaces import as_namespace
from fairseq_reservoir.options.for_fairseq.transformer import ReservoirTransformerConfig
from fairseq_reservoir.plan import layer_plan
from fairseq_reservoir.plan.layer_plan import slots
from tests.support.building import SIZES, build, dictionary


@pytest.fixture
def calls(monkeypatch):
    """Count how often the plan of each stack is expanded, and how often options are checked."""
    counts = Counter()
    monkeypatch.setattr(plans, "_resolved", {})
    expand, check = layer_plan.expand, plans.check_layer_options
    monkeypatch.setattr(
        layer_plan, "expand", lambda plan, flag, stack: counts.update([stack]) or expand(plan, flag, stack)
    )
    monkeypatch.setattr(plans, "check_layer_options", lambda options: counts.update(["checked"]) or check(options))
    return counts


def times_each(number):
    return dict.fromkeys(("encoder", "decoder", "checked"), number)


def test_a_command_line(calls):
    """The architecture function resolves the plans, and the model is built from them. Both check the options."""
    model = build("2LF", "LC")
    assert calls == times_each(1) | {"checked": 2} and [
        row.kind[0] for row in model.slot_table.rows if ".layers." in row.place
    ] == list("LLFLC")


def given(**changes):
    """Return complete options that no architecture function has processed, like those of hydra."""
    config = ReservoirTransformerConfig(
        **{**SIZES, "reservoir_encoder": "2LF", "reservoir_decoder": "LC", "reservoir_seed": 1, **changes}
    )
    return as_namespace(Namespace(**vars(config)))


def test_options_without_an_architecture_function(calls):
    vocabulary = dictionary(20)
    ReservoirTransformer.build_model(given(), Namespace(source_dictionary=vocabulary, target_dictionary=vocabulary))
    assert calls == times_each(1)


def test_plans_of_options():
    options = given()
    plain = plans.plans_of(options, DEPTHS)
    assert plain.built == plain.unpruned == {"encoder": slots("LLF"), "decoder": slots("LC")}
    assert plans.plans_of(options, DEPTHS) == plain, "the first call has completed the options"
    assert plans.plans_of(given(encoder_layers_to_keep="0,2"), DEPTHS).built["encoder"] == slots("LLF", "0,2")


@pytest.mark.parametrize(
    "change, message",
    [
        ({"reservoir_norm": "mine"}, "--reservoir-norm 'mine': choose from paper, model"),
        ({"encoder_attention_heads": 3}, "--encoder-attention-heads 3: must divide --encoder-embed-dim 8"),
        ({"backskip": "none"}, "--backskip 'none': choose from"),
        ({"activation_dropout": 5.0}, "--activation-dropout 5: must be from 0 to below 1"),
        ({"max_source_positions": 0}, "--max-source-positions 0: must be from 1 to 1000000000"),
        ({"max_positions": 0, "max_source_positions": 0}, "--max-positions 0: must be from 1 to 1000000000"),
        ({"decoder_output_dim": 0}, "--decoder-output-dim 0: must be from 1 to 1000000"),
        ({"decoder_input_dim": -1}, "--decoder-input-dim -1: must be from 1 to 1000000"),
        ({"base_layers": 1}, "--base-layers 1: not supported in the models of this package; remove the flag"),
        ({"quant_noise_pq": 2.0}, "--quant-noise-pq 2: must be from 0 to 1"),
        ({"quant_noise_pq_block_size": 0}, "--quant-noise-pq-block-size 0: must be from 1 to 1000000"),
        ({"adaptive_softmax_cutoff": "60,50"}, "--adaptive-softmax-cutoff 60,50: must be ascending whole numbers"),
        ({"adaptive_softmax_cutoff": "50,50"}, "--adaptive-softmax-cutoff 50,50: must be ascending whole numbers"),
        ({"adaptive_softmax_cutoff": [60, 50]}, "--adaptive-softmax-cutoff 60,50: must be ascending whole numbers"),
        ({"adaptive_softmax_factor": 0}, "--adaptive-softmax-factor 0: must be at least 1"),
        (
            {"share_decoder_input_output_embed": True, "decoder_embed_dim": 8, "decoder_output_dim": 4},
            "--decoder-output-dim 4: must equal --decoder-embed-dim (8), because the output projection is tied to the embeddings",
        ),
        ({"freeze": "attention"}, "--freeze 'attention': unknown component"),
    ],
)
def test_changed_options_are_checked_again(change, message):
    """``--model-overrides`` of fairseq changes the options of a checkpoint in the same way."""
    options = given()
    plans.plans_of(options, DEPTHS)
    with pytest.raises(InputError) as refusal:
        plans.plans_of(Namespace(**vars(options) | change), DEPTHS)
    assert str(refusal.value).startswith(message)


def test_layers_to_keep_may_be_a_list():
    """``--model-overrides`` may contain a list."""
    assert plans.plans_of(given(encoder_layers_to_keep=[0, 2]), DEPTHS).built["encoder"] == slots("LLF", "0,2")


def test_changed_flags_are_resolved_again():
    options = given()
    first = plans.resolve(options, DEPTHS)
    assert plans.resolve(options, DEPTHS) is first
    options.encoder_layers_to_keep = "0,2"
    assert plans.resolve(options, DEPTHS).built["encoder"] == slots("LLF", "0,2")
