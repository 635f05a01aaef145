"""Replacement of modules in a model: shared modules stay shared, state is kept, no random number is drawn, copies work."""

import copy
import gc
import io
import pickle

import pytest
import torch
from torch import nn

from fairseq_reservoir.layers.replace import adopt, replace_modules, with_mix_in


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class Tripled:
    """A mix-in."""

    def forward(self, x):
        return 3 * super().forward(x)


def test_adopt_shares_the_state_and_draws_nothing():
    linear = nn.Linear(2, 3).eval()
    before = torch.get_rng_state()
    doubled = adopt(Doubled, linear)
    assert torch.get_rng_state().equal(before)
    assert type(doubled) is Doubled and doubled.weight is linear.weight and not doubled.training
    x = torch.randn(4, 2)
    assert doubled(x).equal(2 * linear(x))


def test_a_mix_in_keeps_the_name_of_the_class_and_is_added_once():
    tripled = with_mix_in(Tripled, nn.Linear(2, 3))
    assert isinstance(tripled, Tripled) and isinstance(tripled, nn.Linear) and type(tripled).__name__ == "Linear"
    assert with_mix_in(Tripled, tripled) is tripled


def test_a_module_with_two_parents_is_replaced_once():
    shared = nn.Linear(2, 2)
    model = nn.ModuleDict({"a": nn.Sequential(shared, nn.ReLU()), "b": nn.Sequential(nn.ReLU(), shared)})
    names = list(model.state_dict())
    replace_modules(model, lambda module: adopt(Doubled, module) if type(module) is nn.Linear else None)
    assert type(model["a"][0]) is Doubled and model["a"][0] is model["b"][1]
    assert list(model.state_dict()) == names and type(model["a"][1]) is nn.ReLU


def test_attributes_outlive_the_first_object():
    """Python 3.13.0 emptied them if the first object was part of a cycle of garbage."""

    class First:
        def __init__(self):
            self.numbers = [1, 2]

    class Second(First):
        pass

    first = First()
    cycle = [first]
    cycle.append(cycle)
    second = adopt(Second, first)
    third = adopt(First, second)
    assert first.__dict__ is second.__dict__ is third.__dict__
    del first, third, cycle
    gc.collect()
    assert second.numbers == [1, 2]


class Negated:
    """A mix-in."""

    def forward(self, x):
        return -super().forward(x)


def pickled(module):
    return pickle.loads(pickle.dumps(module))


def saved(module):
    torch.save(module, file := io.BytesIO())
    return torch.load(io.BytesIO(file.getvalue()), weights_only=False)


@pytest.mark.parametrize("copied", [pickled, saved, copy.copy, copy.deepcopy])
def test_modules_with_mix_ins_are_copied_and_pickled(copied):
    module = with_mix_in(Negated, with_mix_in(Tripled, nn.Linear(2, 3)))
    module.register_forward_hook(add_one)
    copy_of, x = copied(module), torch.randn(4, 2)
    assert type(copy_of) is type(module) and copy_of is not module
    assert copy_of(x).equal(module(x)) and copy_of(x).equal(1 - 3 * nn.functional.linear(x, module.weight, module.bias))


def add_one(module, arguments, y):
    return y + 1
