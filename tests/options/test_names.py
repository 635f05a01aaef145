"""The options own the names of choices without importing torch. The tables that implement the choices have the same names."""

from dataclasses import fields

from fairseq_reservoir.layers import frozen_dtype
from fairseq_reservoir.layers.backskip import backward_skip
from fairseq_reservoir.masks import levels, masked_weight
from fairseq_reservoir.options import layer_options, supermask_options
from fairseq_reservoir.options.for_fairseq.transformer import ReservoirTransformerConfig


def test_choices_are_the_keys_of_the_tables_that_implement_them():
    assert layer_options.FROZEN_DTYPES == tuple(frozen_dtype.DTYPES)
    assert layer_options.ESTIMATORS == tuple(backward_skip.ESTIMATORS)
    assert supermask_options.WEIGHT_INITIALISERS == masked_weight.WEIGHT_INITIALISERS
    assert supermask_options.LEVELS == levels.KINDS
    assert supermask_options.MOST_LEVELS == levels.MOST_LEVELS


def test_order_of_the_options_of_a_model():
    """Checkpoints store the configuration in this order, so that it must not change."""
    names = [option.name for option in fields(ReservoirTransformerConfig)]
    assert names[:4] == ["_name", "reservoir_encoder", "reservoir_count", "reservoir_decoder"]
    assert (
        names.index("fast") < names.index("freeze_cache") < names.index("reservoir_type") < names.index("activation_fn")
    )


def test_warm_up_in_a_message_is_the_default():
    assert layer_options.WARMUP_UPDATES == backward_skip.WARMUP_UPDATES
