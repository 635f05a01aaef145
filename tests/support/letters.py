"""The letters of layer plans that tests run over, all from ``plan/kinds``: a new kind is tested without a word here."""

import pytest

from fairseq_reservoir.plan.kinds import STACKS, WHOLE, frozen_letters, kind_of, letters_where

# By stack: all letters, those that freeze something, those that freeze a whole layer.
LETTERS = {stack: letters_where(stack) for stack in STACKS}
FROZEN = {stack: frozen_letters(stack) for stack in STACKS}
RESERVOIRS = {stack: frozen_letters(stack, freezes=WHOLE) for stack in STACKS}
# Of kinds that freeze a whole layer and are not fairseq's: the letters of the same layers trained.
TRAINED = {
    stack: tuple(kind_of(letter).trained_letter for letter in RESERVOIRS[stack] if not kind_of(letter).fairseqs)
    for stack in STACKS
}
# A plan with an ordinary layer and every reservoir, and one with everything of which the other letter does not show more.
WITH_RESERVOIRS = {stack: "".join(("L", *RESERVOIRS[stack])) for stack in STACKS}
WITH_EVERY_KIND = {
    stack: "".join(letter for letter in LETTERS[stack] if letter.isupper() or kind_of(letter).freezes != WHOLE)
    for stack in STACKS
}


def named(these):
    """Letters as parameters of a test that ``-k`` finds by the name of their kind."""
    return [pytest.param(letter, id=f"{letter} {kind_of(letter).name}") for letter in these]


def everywhere(letters_of_stacks):
    """Pairs (stack, letter) as parameters of a test."""
    return [
        pytest.param(stack, letter, id=f"{stack} {letter} {kind_of(letter).name}")
        for stack, letters in letters_of_stacks.items()
        for letter in letters
    ]
