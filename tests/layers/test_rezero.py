"""ReZero: x + g f(x) by hand, the gain of frozen layers, decoding token by token, --fast, and errors."""

import copy
from types import SimpleNamespace

import pytest
import torch
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from torch import nn

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.layers import build_slot
from fairseq_reservoir.layers.base import Sublayer
from fairseq_reservoir.layers.rezero import use_rezero
from fairseq_reservoir.speed import fast
from tests.support.building import (
    build,
    build_lm,
    build_roberta,
    dictionary,
    logits,
    pad,
    sentences,
    shift,
    slot_config,
)

TEXT = pad(sentences(7, 7, 7))
SOURCE, TARGET = pad(sentences(5, 3, 4), "left"), shift(pad(sentences(6, 6, 6, seed=2)))


@torch.no_grad()
def with_gains(model):
    """Set the gain of each layer to 0.5, 0.6, 0.7, ..., so that layers are not the identity."""
    gains = [parameter for name, parameter in model.named_parameters() if name.endswith("rezero_gain")]
    assert gains and not any(gains)
    for number, gain in enumerate(gains):
        gain.fill_(0.5 + number / 10)
    return model


def test_a_slot_by_hand():
    layer = build_slot("F", "encoder", slot_config(embed_dim=2, ffn_dim=2))
    use_rezero(layer)
    for linear in (layer.ffn.fc1, layer.ffn.fc2):
        nn.init.eye_(linear.weight)
        nn.init.constant_(linear.bias, 3.0)
    x = torch.tensor([[[2.0, -4.0]]])
    assert layer(x).equal(x)  # the gain is 0
    nn.init.constant_(layer.rezero_gain, 0.5)
    # f(2, -4) = relu(5, -1) + 3 = (8, 3)
    assert layer(x).tolist() == [[[6.0, -2.5]]]


@torch.no_grad()
@pytest.mark.parametrize("norm_first", [True, False])
def test_fairseqs_layers_and_slots_in_a_model(norm_first):
    """All sublayers of a layer share its gain. No LayerNorm is left, not even after the last layer."""
    norms = {"encoder_normalize_before": norm_first, "decoder_normalize_before": norm_first}
    model = build("LF", "TC", rezero=True, reservoir_kernel_sizes="3", **norms).double().eval()
    assert not any(isinstance(module, nn.LayerNorm) for module in model.modules())
    x, memory = torch.randn(4, 2, 8, dtype=torch.float64), torch.randn(3, 2, 8, dtype=torch.float64)
    later = torch.full((4, 4), -torch.inf, dtype=torch.float64).triu(1)
    (first, second), (third, fourth) = model.encoder.layers, model.decoder.layers
    assert first(x, None).equal(x) and third(x, memory, self_attn_mask=later)[0].equal(x)
    with_gains(model)

    def ffn(layer, z):
        return layer.fc2(layer.fc1(z).relu())

    y = x + 0.5 * first.self_attn(x, x, x)[0]
    assert (first(x, None) - (y + 0.5 * ffn(first, y))).abs().max() < 1e-6
    assert (second(x) - (x + 0.6 * ffn(second.ffn, x))).abs().max() < 1e-6
    y = x + 0.7 * third.self_attn(x, x, x, attn_mask=later)[0]
    y = y + 0.7 * third.encoder_attn(y, memory, memory)[0]
    assert (third(x, memory, self_attn_mask=later)[0] - (y + 0.7 * ffn(third, y))).abs().max() < 1e-6
    conv = fourth.conv
    y = x + 0.8 * conv.linear2(conv.conv(nn.functional.glu(conv.linear1(x), dim=2)))
    y = y + 0.8 * fourth.cross.encoder_attn(y, memory, memory)[0]
    assert (fourth(x, memory)[0] - (y + 0.8 * ffn(fourth.ffn, y))).abs().max() < 1e-6


@pytest.mark.parametrize("freeze", [None, "emb,out,layers.0", "decoder"])
def test_the_gain_is_the_only_trained_parameter_of_a_frozen_layer(freeze):
    """The backward pass reaches the bottom layer's gain, also with frozen embeddings below it. No freeze spec freezes a gain."""
    model = with_gains(build_lm(plan="TFL", rezero=True, freeze=freeze))
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    frozen = 3 if freeze == "decoder" else 2
    for layer in range(frozen):
        assert [n for n in trained if f"layers.{layer}." in n] == [f"decoder.layers.{layer}.rezero_gain"]
    model(TEXT)[0].logsumexp(-1).sum().backward()
    assert all(bool(p.grad.any()) for n, p in model.named_parameters() if n.endswith("rezero_gain"))
    rows = {row.place: row for row in model.slot_table.rows}
    assert rows["decoder.layers.0"].trained_parameters == 1 and rows["decoder.layers.0"].shown_state == "frozen"
    assert model.slot_table.trained_parameters == sum(p.numel() for p in model.parameters() if p.requires_grad)


@torch.no_grad()
def test_decoding_token_by_token_equals_teacher_forcing():
    model = with_gains(build("LT", "TGCFSL", rezero=True, reservoir_kernel_sizes="3,7")).double().eval()
    expected, encoded, state = logits(model, SOURCE, TARGET), model.encoder(SOURCE), {}
    for time in range(TARGET.size(1)):
        step = model.decoder(TARGET[:, : time + 1], encoder_out=encoded, incremental_state=state)[0][:, 0]
        assert (step - expected[:, time]).abs().max() < 1e-6


def test_fast_has_the_same_loss_and_gradients():
    model = with_gains(build_lm(plan="LTFGCSL", rezero=True, reservoir_kernel_sizes="3"))
    sample = {"net_input": {"src_tokens": TEXT}, "target": TEXT.roll(-1, 1), "ntokens": TEXT.numel()}
    plain, quick = (copy.deepcopy(model) for _ in range(2))
    criterion = CrossEntropyCriterion(
        SimpleNamespace(source_dictionary=dictionary(20), target_dictionary=dictionary(20)), False
    )
    expected, found = criterion(plain, sample)[0], fast.use(quick, criterion)(quick, sample)[0]
    assert (expected - found).abs() < 1e-5 * expected
    expected.backward()
    found.backward()
    others = dict(quick.named_parameters())
    for name, parameter in plain.named_parameters():
        assert (others[name].grad is None) == (parameter.grad is None) == (not parameter.requires_grad), name
        if parameter.requires_grad:
            assert (others[name].grad - parameter.grad).abs().max() < 1e-4 * (1 + parameter.grad.abs().max()), name


@pytest.mark.parametrize("adapter", ["lora", "vera"])
def test_adapters_on_the_model_of_a_checkpoint(adapter):
    """They start without effect, are trained together with the gains, and can be merged into the frozen matrices."""
    options = {"encoder": "LTF", "decoder": "TG", "rezero": True, "freeze": "encoder.layers.0.fc1"}
    trained, model = with_gains(build(**options)).eval(), build(**options, frozen_adapter=adapter)
    model.load_state_dict(trained.state_dict())
    assert (logits(model.eval(), SOURCE, TARGET) - logits(trained, SOURCE, TARGET)).abs().max() < 1e-5
    added = [parameter for name, parameter in model.named_parameters() if "frozen_adapter" in name]
    for parameter in added:
        nn.init.normal_(parameter, std=0.1)
    expected = logits(model.train(), SOURCE, TARGET)
    expected.logsumexp(-1).sum().backward()
    gains = [parameter for name, parameter in model.named_parameters() if name.endswith("rezero_gain")]
    assert added and all(bool(parameter.grad.any()) for parameter in [*added, *gains])
    model.eval().make_generation_fast_()
    assert (logits(model, SOURCE, TARGET) - expected).abs().max() < 1e-5


def test_layers_to_keep():
    model = with_gains(build("LTFG", "LGT", rezero=True))
    pruned = build("LTFG", "LGT", rezero=True, encoder_layers_to_keep="0,2", decoder_layers_to_keep="1,2")
    pruned.load_state_dict(model.state_dict())
    gains = [parameter.item() for name, parameter in pruned.named_parameters() if name.endswith("rezero_gain")]
    assert gains == pytest.approx([0.5, 0.7, 1.0, 1.1])


def test_roberta():
    model = with_gains(build_roberta("reservoir_roberta", reservoir_encoder="LTF", rezero=True))
    layers = [name for name, module in model.named_modules() if isinstance(module, nn.LayerNorm)]
    assert not any(".layers." in name for name in layers) and model(TEXT)[0].isfinite().all()


@pytest.mark.parametrize(
    "options, said",
    [
        ({"backskip": "identity"}, "--backskip identity: cannot be combined with --rezero, because it trains the gain"),
        ({"frozen_dtype": "bf16"}, "--frozen-dtype bf16: cannot be combined with --rezero, because it trains the gain"),
        ({"reservoir_norm": "model"}, "--reservoir-norm model: cannot be combined with --rezero, because its layers have no"),
        ({"reservoir_train_layernorm": True}, "--reservoir-train-layernorm: cannot be combined with --rezero, because its"),
        ({"scale_attn": True}, "--scale-attn: cannot be combined with --rezero, which replaces LayerNorms"),
        ({"freeze": "ln"}, "--freeze 'ln': 'ln' matches nothing"),
    ],
)  # fmt: skip
def test_errors(options, said):
    with pytest.raises(InputError, match=said):
        build_lm(plan="LTF", rezero=True, **options)


def test_a_sublayer_with_its_own_forward_is_refused():
    class Own(Sublayer):
        def forward(self, x, context):
            return x

    layer = build_slot("F", "encoder", slot_config())
    layer.add_module("own", Own(slot_config()))
    with pytest.raises(InputError, match=r"--rezero: the sublayer own has its own forward \(Own\)"):
        use_rezero(layer)
