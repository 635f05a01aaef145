"""Initial values of tensors that a freeze spec froze (--frozen-init)."""

import pytest
import torch

from fairseq_reservoir.random_tensors.fill import component_recipe

SHAPES = {
    "q_proj.weight": (4, 6),
    "q_proj.bias": (4,),
    "layer_norm.weight": (4,),
    "layer_norm.bias": (4,),
    "lstm.weight_ih_l0": (12, 5),
    "lstm.weight_hh_l0": (12, 3),
    "attention.in_proj_weight": (12, 4),
    "glu.linear1.weight": (8, 4),
    "glu.linear2.weight": (4, 4),
    "plain.linear1.weight": (8, 4),
    "plain.linear2.weight": (4, 8),
    "embed_tokens.weight": (400, 16),
}


def drawn(initialiser, name, **further):
    return component_recipe(initialiser, name, name, SHAPES, **further).draw(1)


def test_vectors():
    assert (
        drawn("xavier_uniform", "q_proj.bias").tolist()
        == drawn("xavier_uniform", "layer_norm.bias").tolist()
        == [0, 0, 0, 0]
    )
    assert drawn("xavier_uniform", "layer_norm.weight").tolist() == [1, 1, 1, 1]


def test_matrices_by_hand():
    assert drawn("diagonal", "q_proj.weight").tolist() == [[float(i == j) for j in range(6)] for i in range(4)]
    assert not drawn("zero", "q_proj.weight").any()
    # Glorot's bound is sqrt(6 / (4 + 6)), Kaiming's sqrt(6 / 6); a constant has the size sqrt(2 / 6).
    assert drawn("xavier_uniform", "q_proj.weight").abs().max() <= 0.6**0.5
    assert 0.6**0.5 < drawn("kaiming_uniform", "q_proj.weight").abs().max() <= 1
    assert drawn("signed_constant", "q_proj.weight").abs().sub((1 / 3) ** 0.5).abs().max() < 1e-7


@pytest.mark.parametrize(
    "name, blocks",
    [
        ("lstm.weight_ih_l0", 4),
        ("lstm.weight_hh_l0", 4),
        ("attention.in_proj_weight", 3),
        ("glu.linear1.weight", 2),
        ("plain.linear1.weight", 1),
    ],
)
def test_each_projection_by_itself(name, blocks):
    for block in drawn("orthogonal", name).double().chunk(blocks):
        product = block @ block.T if block.size(0) <= block.size(1) else block.T @ block
        assert (product - torch.eye(len(product))).abs().max() < 1e-5
    assert component_recipe("orthogonal", name, name, SHAPES).blocks == blocks


@pytest.mark.parametrize("initialiser", ["orthogonal", "xavier_uniform", "kaiming_uniform", "signed_constant"])
def test_rows_of_tables_have_length_one(initialiser):
    """As in fairseq, N(0, 1 / 16): the mean norm over 400 rows of 16 entries, without the padding row."""
    table = drawn(initialiser, "embed_tokens.weight", table=True, padding=1)
    squares = table.double().square().sum(1)
    assert squares[1] == 0 and abs(squares[2:].mean() - 1) < 0.03
