"""Letters of layer plans for tests, all read from ``plan/kinds``, so that new kinds are tested automatically."""

import pytest

from fairseq_reservoir.plan.kinds import STACKS, WHOLE, frozen_letters, kind_of, letters_where

# By stack: all letters, those that freeze something, those that freeze a whole layer.
LETTERS = {stack: letters_where(stack) for stack in STACKS}
FROZEN = {stack: frozen_letters(stack) for stack in STACKS}
RESERVOIRS = {stack: frozen_letters(stack, freezes=WHOLE) for stack in STACKS}
# For kinds other than fairseq's that freeze a whole layer: the letters of the trained form.
TRAINED = {
    stack: tuple(kind_of(letter).trained_letter for letter in RESERVOIRS[stack] if not kind_of(letter).fairseqs)
    for stack in STACKS
}
# A plan with an ordinary layer and every reservoir, and a plan with every kind.
WITH_RESERVOIRS = {stack: "".join(("L", *RESERVOIRS[stack])) for stack in STACKS}
WITH_EVERY_KIND = {
    stack: "".join(letter for letter in LETTERS[stack] if letter.isupper() or kind_of(letter).freezes != WHOLE)
    for stack in STACKS
}


def named(these):
    """Letters as parameters of a test; ``-k`` finds them by the name of their kind."""
    return [pytest.param(letter, id=f"{letter} {kind_of(letter).name}") for letter in these]


def everywhere(letters_of_stacks):
    """Pairs (stack, letter) as parameters of a test."""
    return [
        pytest.param(stack, letter, id=f"{stack} {letter} {kind_of(letter).name}")
        for stack, letters in letters_of_stacks.items()
        for letter in letters
    ]
