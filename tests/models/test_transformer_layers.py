"""L and T are fairseq's Transformer layer. The only difference of T is its frozen random weights."""

import pytest
import torch
from fairseq.models.transformer import TransformerConfig
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase, TransformerEncoderLayerBase

from fairseq_reservoir.plan.kinds import letters_where
from tests.support.building import build


def fairseq_config(norm_first):
    config = TransformerConfig()
    config.dropout = 0.0
    for stack in (config.encoder, config.decoder):
        stack.embed_dim, stack.ffn_embed_dim, stack.attention_heads = 8, 12, 2
        stack.normalize_before = norm_first
    return config


@pytest.mark.parametrize("letter", letters_where(fairseqs=True))
@pytest.mark.parametrize("norm_first", [False, True])
def test_equal_fairseqs_layers_with_the_same_weights(letter, norm_first):
    norms = {"encoder_normalize_before": norm_first, "decoder_normalize_before": norm_first}
    model, config = build(f"L{letter}", f"L{letter}", **norms), fairseq_config(norm_first)
    x, memory = torch.randn(5, 2, 8), torch.randn(4, 2, 8)
    mask = torch.tensor([[0, 0, 0, 0, 0], [1, 1, 0, 0, 0]]).bool()

    ours, theirs = model.encoder.layers[1], TransformerEncoderLayerBase(config)
    theirs.load_state_dict(ours.state_dict())
    assert ours(x, mask).equal(theirs(x, mask))

    ours, theirs = model.decoder.layers[1], TransformerDecoderLayerBase(config)
    theirs.load_state_dict(ours.state_dict())
    future = torch.full((5, 5), float("-inf")).triu(1)
    arguments = {"encoder_out": memory, "encoder_padding_mask": mask[:, :4], "self_attn_mask": future}
    assert ours(x, **arguments)[0].equal(theirs(x, **arguments)[0])


def test_models_of_l_and_t_can_be_scripted():
    torch.jit.script(build("LT", "TL"))
