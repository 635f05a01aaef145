"""The IWSLT model of Shen et al., 2021: eight encoder layers with two reservoirs, two decoder layers."""

from tests.support.building import build


def test_iwslt_with_eight_layers_and_two_reservoirs():
    model = build(
        "LLLTLTLL", "LL", "reservoir_transformer_iwslt_de_en_2dec", (8848, 6632), share_decoder_input_output_embed=True
    )
    attention = 4 * (512 * 512 + 512)
    feed_forward = (1024 * 512 + 1024) + (512 * 1024 + 512)
    norm = 2 * 512
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    everything = 8 * encoder_layer + 2 * decoder_layer + (8848 + 6632) * 512
    trained = everything - 2 * encoder_layer
    assert (everything, trained) == (31_056_896, 26_851_328)

    assert (model.slot_table.parameters, model.slot_table.trained_parameters) == (everything, trained)
    assert sum(p.numel() for p in model.parameters()) == everything
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == trained
