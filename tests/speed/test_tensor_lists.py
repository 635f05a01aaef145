"""Lists of gradients that are checked again only for other tensors, and copies of lists with several dtypes."""

import gc
import weakref
from unittest.mock import patch

import pytest
import torch

from fairseq_reservoir.speed.tensor_lists import GradientLists, ListCopy, same


def parameters(count):
    found = [torch.nn.Parameter(torch.zeros(2)) for _ in range(count)]
    for number, p in enumerate(found):
        p.grad = torch.full((2,), float(number))
    return found


def counted():
    calls = []
    return GradientLists(
        lambda ps, gs: calls.append(len(gs)) or (list(map(id, ps)), [g.sum().item() for g in gs])
    ), calls


def test_the_same_objects():
    a, b = torch.ones(2), torch.ones(2)
    assert same([a, b], [a, b]) and not same([a, b], [b, a]) and not same([a], [a, b]) and same([], [])


def test_properties_are_computed_once_for_the_same_gradients():
    lists, calls = counted()
    ps = parameters(3)
    first = lists.get(ps)
    for p in ps:
        p.grad.add_(1)  # in place
    gradients, properties = lists.get(list(ps))
    assert properties is first[1] and calls == [3]
    assert same(gradients, [p.grad for p in ps])


@pytest.mark.parametrize("change", ["new gradient", "removed", "removed and put back elsewhere", "fewer parameters"])
def test_other_gradients(change):
    lists, calls = counted()
    ps = parameters(3)
    lists.get(ps)
    if change == "new gradient":
        ps[1].grad = torch.full((2,), 7.0)
    elif change == "removed":
        ps[1].grad = None
    elif change == "removed and put back elsewhere":
        ps[1].grad, ps[2].grad = ps[2].grad, ps[1].grad
    else:
        ps = ps[:2]
    gradients, properties = lists.get(ps)
    assert len(calls) == 2 and same(gradients, [p.grad for p in ps if p.grad is not None])
    assert properties == ([id(p) for p in ps if p.grad is not None], [g.sum().item() for g in gradients])


def test_no_gradient_at_all():
    lists, calls = counted()
    ps = [torch.nn.Parameter(torch.zeros(2))]
    assert lists.get(ps)[0] == lists.get(ps)[0] == [] and calls == [0]


def test_gradients_are_not_kept_in_memory():
    lists = GradientLists(lambda ps, gs: len(gs))
    ps = parameters(2)
    lists.get(ps)
    gradient = weakref.ref(ps[0].grad)
    for p in ps:
        p.grad = None
    gc.collect()
    assert gradient() is None
    assert lists.get(ps) == ([], 0)


def test_copies_of_several_dtypes():
    """Two pairs of dtypes need two operations. A missing source gives zeros, also if the source is there again later."""
    targets = [torch.ones(2), torch.ones(3), torch.ones(1, dtype=torch.float64), torch.ones(2)]
    copy = ListCopy()
    for missing in ((), (1,), (), (0, 1, 2, 3)):
        dtypes = torch.bfloat16, torch.bfloat16, torch.float64, torch.bfloat16
        sources = [torch.full(t.shape, 2.0 + i, dtype=d) for i, (t, d) in enumerate(zip(targets, dtypes))]
        given = [None if i in missing else source for i, source in enumerate(sources)]
        with patch.object(torch, "_foreach_copy_", wraps=torch._foreach_copy_) as copies:
            copy(targets, given)
        assert copies.call_count == (0 if len(missing) == 4 else 2)
        for i, target in enumerate(targets):
            assert target.tolist() == [0.0 if i in missing else 2.0 + i] * len(target)
    targets[0] = torch.zeros(2)  # another target
    copy(targets, sources)
    assert [t[0].item() for t in targets] == [2, 3, 4, 5]


def test_copies_change_parameters_that_require_gradients():
    p = torch.nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))
    ListCopy()([p], [torch.tensor([1.0, 2.0])])
    assert p.tolist() == [1, 2] and p.requires_grad and p.is_leaf
