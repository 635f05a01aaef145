"""--frozen-adapter: matrices with an adapter, their rows in the slot table, and errors."""

import pytest
import torch

from fairseq_reservoir import cli
from fairseq_reservoir.checkpoint.dry_build import build_arch
from fairseq_reservoir.checkpoint.ledger import ledger
from fairseq_reservoir.errors import InputError
from fairseq_reservoir.freezing.description import BUFFER
from fairseq_reservoir.layers.adapters.adapted_linear import AdaptedLinear
from fairseq_reservoir.plan.freeze_spec import GROUPS, atom, plain
from tests.support.building import build, build_lm, build_roberta, logits, loss, pad, sentences, shift

KINDS = ("lora", "vera")
PLAN = {"encoder": "LTFS", "decoder": "LTC", "frozen_adapter_rank": 2}
SOURCE, TARGET = pad(sentences(5, 3)), pad(sentences(4, 6, seed=2))


def adapted(model):
    """Names of the adapted layers."""
    return {plain(name) for name, module in model.named_modules() if isinstance(module, AdaptedLinear)}


def matrices(model):
    """Names of all matrices of attention and feed-forward blocks."""
    return {
        name for name, p in model.named_parameters() if p.dim() == 2 and atom(name) in GROUPS["att"] | GROUPS["ffn"]
    }


ATTENTION = ("q_proj", "k_proj", "v_proj", "out_proj")


@pytest.mark.parametrize("kind", KINDS)
def test_every_frozen_matrix_of_attention_and_feed_forward_gets_one(kind):
    """In C and S, the frozen tensors are not such matrices, or they are a convolution."""
    model = build(**PLAN, frozen_adapter=kind, freeze="encoder.layers.0.fc1,decoder.layers.0.cross_att.q,emb")
    expected = {"encoder.layers.0.fc1", "decoder.layers.0.encoder_attn.q_proj"}
    expected |= {f"encoder.layers.1.{part}" for part in (*(f"self_attn.{p}" for p in ATTENTION), "fc1", "fc2")}
    expected |= {f"encoder.layers.2.ffn.{part}" for part in ("fc1", "fc2")}
    expected |= {f"decoder.layers.1.{kind}_attn.{p}" for kind in ("self", "encoder") for p in ATTENTION}
    expected |= {f"decoder.layers.1.{part}" for part in ("fc1", "fc2")}
    expected |= {f"decoder.layers.2.{part}" for part in ("ffn.fc1", "ffn.fc2")}
    assert adapted(model) == expected
    assert {e.name for e in model.slot_table.entries if e.atom == "adapter" and e.trained} == {
        f"{place}.frozen_adapter.{tensor}" for place in expected for tensor in ({"lora": "AB", "vera": "db"}[kind])
    }
    assert {e.name for e in model.slot_table.entries if e.trained} == {
        n for n, p in model.named_parameters() if p.requires_grad
    }


@pytest.mark.parametrize("kind", KINDS)
def test_begins_as_the_frozen_model_bit_for_bit(kind):
    plain_model, model = build(**PLAN | {"frozen_adapter_rank": 8}), build(**PLAN, frozen_adapter=kind)
    for training in (False, True):  # fairseq's fused attention and its other implementation
        pair = [m.train(training) for m in (plain_model, model)]
        expected, found = (logits(m, SOURCE, shift(TARGET)) for m in pair)
        assert torch.equal(found, expected)
    state = model.state_dict()
    for name, value in plain_model.state_dict().items():
        assert name == BUFFER or torch.equal(state[name], value)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_the_trained_models_seen_through_the_adapters(kind):
    """G is the gradient of a trained model with the matrices W + D; see tests/layers/adapters/test_adapted_linear.py."""
    model = build("T", "T", frozen_adapter=kind, frozen_adapter_rank=2)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "frozen_adapter" in name:
                p.copy_(0.1 * torch.randn(p.shape))
    trained = build("L", "L")
    folded = {name: model.get_submodule(name.rpartition(".")[0]).weight for name in matrices(trained)}
    own = model.state_dict().items()
    trained.load_state_dict(
        {name: folded.get(name, tensor) for name, tensor in own if "adapter" not in name and name != BUFFER}
    )
    for each in (model, trained):
        loss(each, SOURCE, TARGET).backward()
    for place in adapted(model):
        G, adapter = trained.get_submodule(place).weight.grad, model.get_submodule(place).frozen_adapter
        if kind == "lora":
            expected = [8 * adapter.B.T @ G, 8 * G @ adapter.A.T]
        else:
            A, B = adapter._shared[0].pair(adapter._key)
            expected = [
                (B.T @ torch.diag(adapter.b) @ G @ A.T).diagonal(),
                (G * (B @ torch.diag(adapter.d) @ A)).sum(dim=1),
            ]
        for parameter, gradient in zip(adapter.parameters(), expected, strict=True):
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-3, atol=1e-3)


def test_the_table_and_the_ledger_count_lora_as_trained():
    """Width 8, feed-forward 12, rank 2: adapters have 4 * 2 * (8 + 8) + 2 * 2 * (8 + 12) = 208; frozen are 4 * 72 + 108 + 104 + 32."""
    model = build("LT", "L", frozen_adapter="lora", frozen_adapter_rank=2)
    (row,) = (row for row in model.slot_table.rows if row.place == "encoder.layers.1")
    assert (row.kind, row.state, row.trained_parameters, row.parameters) == (
        "T Transformer, adapters",
        "partly frozen",
        208,
        740,
    )
    # 2 * (4 * 64 + 2 * 96) for frozen matrices to which adapters of rank 2 are added; 2 * 104 more for separate ones of rank 1.
    assert row.flops == 896
    beside = build("LT", "L", frozen_adapter="lora", frozen_adapter_rank=1).slot_table.rows
    assert [r.flops for r in beside if r.place == "encoder.layers.1"] == [896 + 208]
    trained = sum(item.size for item in ledger(model).with_roles("trained"))
    assert (
        trained == model.slot_table.trained_parameters == sum(p.numel() for p in model.parameters() if p.requires_grad)
    )


def test_the_table_and_the_ledger_count_veras_matrices_once():
    """Each T has four matrices 8 x 8, one 12 x 8 and one 8 x 12: d has 2 entries, b 8 or 12; A and B have 2 * (8 + 8) and 2 * (8 + 12)."""
    model = build("TT", "L", frozen_adapter="vera", frozen_adapter_rank=2)
    rows = {row.place: row for row in model.slot_table.rows}
    assert (
        rows["encoder.layers.0"].trained_parameters == rows["encoder.layers.1"].trained_parameters == 6 * 2 + 5 * 8 + 12
    )
    shared = rows["frozen_adapter"]
    assert (shared.state, shared.parameters, shared.trained_parameters) == ("shared", 32 + 40 + 40, 0)
    assert shared.kind == "random, shared by up to 8 adapters"
    # Products count for the layers: four of 8 x 1 and 1 x 8, one of 8 x 1 and 1 x 12, one of 12 x 1 and 1 x 8.
    beside = {
        row.place: row.flops for row in build("TT", "L", frozen_adapter="vera", frozen_adapter_rank=1).slot_table.rows
    }
    assert shared.flops == beside["frozen_adapter"] == 0 and beside["encoder.layers.0"] == 896 + 208
    random = [item for item in ledger(model).with_roles("random") if item.name.startswith("frozen_adapter.")]
    assert len(random) == 6 and all(item.export_bytes() == 0 for item in random)


@pytest.mark.parametrize("kind", KINDS)
def test_the_ledger_counts_the_memory_of_inference(kind):
    model = build("TL", "T", frozen_adapter=kind, frozen_adapter_rank=2)
    predicted = ledger(model).inference_bytes
    model.make_generation_fast_()
    assert predicted == sum(tensor.nbytes for tensor in model.state_dict().values())


def test_random_tensors_depend_on_the_seed():
    def tensors(**options):
        model = build("T", "T", freeze="emb", frozen_adapter_rank=2, **options)
        return {
            name: t
            for name, t in model.state_dict().items()
            if "frozen_adapter.A" in name or "frozen_adapter.B_" in name
        }

    for kind in KINDS:
        seeds = ({"torch_seed": 1}, {"torch_seed": 2}, {"reservoir_seed": 2})
        first, same, other = (tensors(frozen_adapter=kind, **seed) for seed in seeds)
        assert len(first) == {"lora": 6 + 10, "vera": 6}[kind]
        assert all(
            torch.equal(same[name], value) and not torch.equal(other[name], value) for name, value in first.items()
        )
        bound = 8**-0.5 if kind == "lora" else (6 / 8) ** 0.5
        value = first["encoder.layers.0.fc1.frozen_adapter.A" if kind == "lora" else "frozen_adapter.A_12x8"]
        assert 0.8 * bound < value.abs().max() <= bound


@pytest.mark.parametrize("kind", KINDS)
def test_other_models_have_it_too(kind):
    lm = build_lm(plan="LT", frozen_adapter=kind, frozen_adapter_rank=2)
    assert adapted(lm) == {
        f"decoder.layers.1.{part}" for part in (*(f"self_attn.{p}" for p in ATTENTION), "fc1", "fc2")
    }
    roberta = build_roberta("reservoir_roberta", reservoir_encoder="FL", frozen_adapter=kind, frozen_adapter_rank=2)
    before = {name: value.clone() for name, value in roberta.state_dict().items()}
    roberta.register_classification_head("topic", num_classes=2)
    assert adapted(roberta) == {"encoder.layers.0.ffn.fc1", "encoder.layers.0.ffn.fc2"}
    assert all(torch.equal(roberta.state_dict()[name], value) for name, value in before.items())
    assert any(
        row.place.startswith("classification_heads") and row.trained_parameters for row in roberta.slot_table.rows
    )
    frozen = build_arch("frozen_transformer", ["--freeze", "decoder", "--frozen-adapter", kind], 20, 20)
    assert {place.split(".")[0] for place in adapted(frozen)} == {"decoder"} and len(adapted(frozen)) == 6 * 10
    everything = build_arch("frozen_transformer_lm", ["--freeze", "decoder", "--frozen-adapter", kind], 20)
    assert {e.atom for e in everything.slot_table.entries if e.trained} == {"adapter"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_gain_for_every_adapter(kind):
    """One more parameter for each of the ten matrices of a T in a decoder, no further product, and no trace after folding."""
    without, model = (build("L", "T", frozen_adapter=kind, frozen_adapter_scale=scaled) for scaled in (False, True))
    gains = {e.name for e in model.slot_table.entries if e.trained and e.name.endswith(".gain")}
    assert gains == {f"{place}.frozen_adapter.gain" for place in adapted(model)} and len(gains) == 10
    assert model.slot_table.trained_parameters == without.slot_table.trained_parameters + 10
    for field in ("flops", "backward_flops"):
        assert sum(getattr(r, field) for r in model.slot_table.rows) == sum(
            getattr(r, field) for r in without.slot_table.rows
        )
    expected, found = (logits(m.eval(), SOURCE, shift(TARGET)) for m in (without, model))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    predicted = ledger(model).inference_bytes
    model.make_generation_fast_()
    assert predicted == sum(tensor.nbytes for tensor in model.state_dict().values())


def test_specs_do_not_name_adapters():
    """`encoder` and --freeze-except freeze everything there except adapters."""
    model = build("LL", "L", freeze="encoder", frozen_adapter="lora", frozen_adapter_rank=2)
    trained = {name for name, p in model.named_parameters() if p.requires_grad and name.startswith("encoder.")}
    assert len(trained) == 2 * 6 * 2 and {atom(name) for name in trained} == {"adapter"}
    model = build("LL", "L", freeze_except="out", frozen_adapter="lora", frozen_adapter_rank=2)
    assert {atom(n) for n, p in model.named_parameters() if p.requires_grad} == {"adapter", "out"}


@pytest.mark.parametrize(
    "options, message",
    [
        ({"frozen_adapter": "lora"}, "--frozen-adapter lora: no matrix of attention or feed-forward blocks is frozen"),
        ({"frozen_adapter": "vera", "freeze": "emb,mix", "encoder": "S"}, "--frozen-adapter vera: no matrix of"),
        ({"frozen_adapter": "adapter", "encoder": "T"}, "--frozen-adapter 'adapter': choose from lora, vera"),
        ({"frozen_adapter": "lora", "encoder": "T", "frozen_adapter_rank": 0}, "--frozen-adapter-rank 0: must be at least 1"),
        ({"frozen_adapter": "vera", "encoder": "F", "frozen_adapter_rank": 9},
         "--frozen-adapter-rank 9: must be at most 8, the smaller dimension of encoder.layers.0.ffn.fc1.weight"),
        ({"frozen_adapter_scale": True}, "--frozen-adapter-scale: has no effect without --frozen-adapter"),
        ({"frozen_adapter_rank": 4}, "--frozen-adapter-rank 4: has no effect without --frozen-adapter"),
        ({"frozen_adapter": "lora", "freeze": "adapter"}, "--freeze 'adapter': unknown component 'adapter'"),
        ({"frozen_adapter": "lora", "freeze": "att", "quant_noise_pq": 0.1, "encoder_ffn_embed_dim": 16},
         "--frozen-adapter lora: encoder.layers.0.self_attn.k_proj is frozen but not an ordinary linear layer"),
        ({"frozen_adapter": "lora", "encoder": "T", "quant_noise_scalar": 0.1},
         "--quant-noise-scalar 0.1: cannot be combined with --frozen-adapter, because"),
    ],
)  # fmt: skip
def test_refusals(options, message):
    with pytest.raises(InputError) as refused:
        build(**options)
    assert str(refused.value).startswith(message) and "\n" not in str(refused.value)


def test_masked_models_have_no_such_flag():
    with pytest.raises(SystemExit, match="unrecognized arguments: --frozen-adapter lora"):
        cli.main(["plan", "--arch", "supermask_one_layer_transformer", "--frozen-adapter", "lora"])
