"""Initial values of reservoirs: orthogonal per projection, and dependent only on seed and name."""

import pytest
import torch
from torch import nn

from fairseq_reservoir.random_tensors.fill import fill, reservoir_recipe
from tests.support.building import build
from tests.support.letters import FROZEN, named

# Number of projections stacked in a matrix: the gates of a GRU, the two halves of a GLU.
STACKED = {"weight_ih_l0": 3, "weight_hh_l0": 3, "linear1.weight": 2}


def frozen(model):
    """Frozen tensors of the reservoirs, by name."""
    return {e.name: model.get_parameter(e.name) for e in model.slot_table.entries if e.random_name}


def in_layer(model, place):
    return {name: p for name, p in frozen(model).items() if name.startswith(place + ".")}


@pytest.fixture(scope="module")
def every_kind():
    return frozen(build("TFGC", "TFC"))


@torch.no_grad()
def test_orthogonal_per_projection(every_kind):
    checked = set()
    for name, p in every_kind.items():
        if p.dim() == 2:
            parts = next((n for ending, n in STACKED.items() if name.endswith(ending)), 1)
            for w in p.double().chunk(parts):
                product = w @ w.T if w.size(0) <= w.size(1) else w.T @ w
                assert (product - torch.eye(len(product))).abs().max() < 1e-5, name
            assert len({part.numpy().tobytes() for part in p.chunk(parts)}) == parts
            checked.add(".".join(name.split(".")[-2:]))
    assert checked == {
        *(f"{part}.weight" for part in ("q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2", "linear1", "linear2")),
        *(f"{way}.weight_{side}_l0" for way in ("rightward", "leftward") for side in ("ih", "hh")),
        "weight_linear.weight",
    }


@torch.no_grad()
def test_vectors(every_kind):
    # 1 / sqrt(fan_in): from width 8, from the feed-forward width 12, the hidden size 4 of one direction of the GRU.
    bounds = {"fc2.bias": 12**-0.5, "bias_ih_l0": 4**-0.5, "bias_hh_l0": 4**-0.5}
    shares = []
    for name, p in every_kind.items():
        if name.endswith("layer_norm.weight"):
            assert p.equal(torch.ones(8))
        elif name.endswith(("layer_norm.bias", "out_proj.bias")):
            assert p.equal(torch.zeros(8))
        elif p.dim() == 1:
            bound = next((b for ending, b in bounds.items() if name.endswith(ending)), 8**-0.5)
            shares.append(p.abs().max() / bound)
    assert min(shares) > 0.1 and 0.99 < max(shares) <= 1


def test_a_bias_of_an_lstm_goes_by_its_hidden_size():
    """4 gates of 9 units, 2 layers, both directions: every bias is drawn from U(-1/3, 1/3), as in torch."""
    shapes = {f"lstm.{name}": p.shape for name, p in nn.LSTM(5, 9, num_layers=2, bidirectional=True).named_parameters()}
    biases = [name for name in shapes if "bias" in name]
    assert len(biases) == 8
    assert {reservoir_recipe(name, name, shapes).fan_in for name in biases} == {9}


@pytest.mark.parametrize("letter", named(FROZEN["encoder"]))
def test_a_layer_does_not_depend_on_its_surroundings(letter):
    expected = in_layer(build(f"L{letter}"), "encoder.layers.1")
    others = [
        build(f"L{letter}", torch_seed=2),
        build(f"T{letter}GFC", "TFC"),
        build(f"L{letter}", words=(30, 40), freeze="emb", reservoir_train_layernorm=False),
        build(f"F{letter}", encoder_normalize_before=True, decoder_embed_dim=16, share_decoder_input_output_embed=True),
    ]
    build("TFGC").half()
    torch.rand(7)
    others.append(build(f"L{letter}"))
    for other in others:
        found = in_layer(other, "encoder.layers.1")
        assert found.keys() == expected.keys()
        assert all(found[name].equal(expected[name]) for name in expected)


def test_seed_and_name_make_the_tensor():
    weights = [
        build("TT").encoder.layers[0].fc1.weight,
        build("TT").encoder.layers[1].fc1.weight,
        build("TT", reservoir_seed=2).encoder.layers[0].fc1.weight,
        build("L", "T").decoder.layers[0].fc1.weight,
    ]
    assert len({w.detach().numpy().tobytes() for w in weights}) == 4


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_a_cast(every_kind, dtype):
    for name, p in frozen(build("TFGC", "TFC").to(dtype)).items():
        assert p.equal(every_kind[name].to(dtype))


def test_layers_to_keep_keep_their_tensors():
    whole = build("CTFG", "TLF", reservoir_kernel_sizes="3,5,7,9")
    pruned = build(
        "CTFG", "TLF", encoder_layers_to_keep="0,2,3", decoder_layers_to_keep="0,2", reservoir_kernel_sizes="3,5,7,9"
    )
    assert [row.kind[0] for row in pruned.slot_table.rows if ".layers." in row.place] == list("CFGTF")
    for stack, origins in (("encoder", (0, 2, 3)), ("decoder", (0, 2))):
        layers = getattr(pruned, stack).layers
        assert len(layers) == len(origins)
        for place, origin in enumerate(origins):
            expected = in_layer(whole, f"{stack}.layers.{origin}").values()
            found = in_layer(pruned, f"{stack}.layers.{place}").values()
            assert len(found) == len(expected)
            assert all(ours.equal(theirs) for ours, theirs in zip(found, expected))


def test_trained_layers_keep_their_own_initial_values():
    assert frozen(build("Lfgc", "Lfc")) == {}
    weight = build("f").encoder.layers[0].ffn.fc1.weight
    assert (weight.T @ weight - torch.eye(8)).abs().max() > 0.1
    assert not weight.equal(build("f", torch_seed=2).encoder.layers[0].ffn.fc1.weight)


def test_tensors_without_storage_are_left_alone():
    parameters = {
        "a.weight": nn.Parameter(torch.empty(3, 5, device="meta")),
        "b.weight": nn.Parameter(torch.empty(3, 5)),
        "b.bias": nn.Parameter(torch.empty(3)),
    }
    shapes = {name: tuple(parameter.shape) for name, parameter in parameters.items()}
    random_names = {"a.weight": "x", "b.weight": "y", "b.bias": "z"}
    fill(
        parameters, {name: reservoir_recipe(name, drawn_as, shapes) for name, drawn_as in random_names.items()}, seed=1
    )
    weight = parameters["b.weight"].detach()
    assert (weight @ weight.T - torch.eye(3)).abs().max() < 1e-5
    assert parameters["b.bias"].abs().max() <= 5**-0.5
