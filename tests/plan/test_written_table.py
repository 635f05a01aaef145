"""Slot tables as JSON."""

import json

import pytest

from fairseq_reservoir.plan.written_table import as_json, from_json
from tests.support.building import build
from tests.support.letters import WITH_EVERY_KIND


@pytest.mark.parametrize(
    "options",
    [
        WITH_EVERY_KIND,
        {"encoder": "LTFL", "decoder": "L", "encoder_layers_to_keep": "1,2", "freeze": "emb"},
        {"share_all_embeddings": True, "decoder": "TL", "reservoir_train_layernorm": True, "reservoir_seed": 5},
    ],
)
def test_written_down_and_read(options):
    table = build(**options).slot_table
    text = json.dumps(as_json(table))
    assert from_json(json.loads(text)) == table
    assert str(from_json(json.loads(text))) == str(table)
