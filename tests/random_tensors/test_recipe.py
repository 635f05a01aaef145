"""Recipes: the values that they draw, and their round trip through JSON."""

import json

import pytest
import torch

from fairseq_reservoir.random_tensors import initialisers
from fairseq_reservoir.random_tensors.recipe import INITIALISERS, Recipe

EXACT = {"ones", "zero", "bias_uniform", "xavier_uniform", "kaiming_uniform", "signed_constant", "diagonal"}


def test_draws_the_values_of_the_initialiser():
    assert (
        Recipe("kaiming_uniform", "w", (4, 6)).draw_array(7).tolist()
        == initialisers.kaiming_uniform(7, "w", (4, 6)).tolist()
    )
    assert (
        Recipe("bias_uniform", "b", (4,), fan_in=9).draw_array(7).tolist()
        == initialisers.bias_uniform(7, "b", (4,), 9).tolist()
    )
    assert Recipe("ones", "n", (3,)).draw(7).tolist() == [1, 1, 1]


def test_blocks_are_drawn_by_themselves():
    whole = Recipe("orthogonal", "w", (6, 4), blocks=3).draw(1)
    for i, block in enumerate(whole.chunk(3)):
        assert block.tolist() == initialisers.orthogonal(1, f"w/{i}", (2, 4)).tolist()


def test_kernels_are_the_rows_of_a_matrix():
    matrix = initialisers.orthogonal(7, "w", (3, 8))
    assert Recipe("orthogonal", "w", (3, 2, 4)).draw(7).tolist() == matrix.reshape(3, 2, 4).tolist()


def test_scale_and_zero_row():
    drawn = Recipe("signed_constant", "w", (3, 8), scale=1.5, zero_row=1).draw(1)
    # sqrt(2 / fan_in) = sqrt(2 / 8) = 0.5, times 1.5
    assert drawn.abs().tolist() == [[0.75] * 8, [0.0] * 8, [0.75] * 8]


@pytest.mark.parametrize("name", INITIALISERS)
def test_which_are_exact(name):
    assert Recipe(name, "w", (2, 2)).exact == (name in EXACT)


def test_written_down_and_read():
    for recipe in (
        Recipe("orthogonal", "encoder.layers.1.fc1.weight", (6, 4)),
        Recipe("kaiming_uniform", "w", (6, 4), blocks=2, scale=2**0.5, zero_row=0),
        Recipe("bias_uniform", "b", (6,), fan_in=4),
    ):
        text = json.dumps(recipe.as_json())
        assert Recipe.from_json(json.loads(text)) == recipe
        assert torch.equal(Recipe.from_json(json.loads(text)).draw(3), recipe.draw(3))
    assert recipe.as_json() == {"initialiser": "bias_uniform", "name": "b", "shape": (6,), "fan_in": 4}
