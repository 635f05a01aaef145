"""Gradients in one buffer, worked out by hand."""

import torch
from torch import nn

from fairseq_reservoir.speed.graphs.gradients import Gradients


def test_views_of_one_buffer():
    a, b, unused = (nn.Parameter(torch.ones(n)) for n in (2, 3, 4))
    half = nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    a.grad, b.grad, half.grad = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0, 5.0]), half.detach() * 6
    gradients = Gradients([a, b, unused, half])
    assert [p.grad.tolist() for p in (a, b, half)] == [[1, 2], [3, 4, 5], [6, 6]] and unused.grad is None
    sizes = {buffer.dtype: len(buffer) for buffer in gradients.buffers}
    assert sizes == {torch.float32: 2 * 64, torch.bfloat16: 64}
    # Another batch of the same update adds to them.
    gradients.attach()
    (2 * a).sum().backward()
    assert a.grad.tolist() == [3, 4] and a.grad.data_ptr() == gradients.views[0].data_ptr()


def test_gradients_of_an_ordinary_step_are_kept():
    """A batch without a bucket comes first in an update, and a padded one second."""
    a, b = (nn.Parameter(torch.ones(2)) for _ in range(2))
    a.grad, b.grad = torch.ones(2), torch.ones(2)
    gradients = Gradients([a, b])
    a.grad = b.grad = None
    (2 * b).sum().backward()
    gradients.attach()
    (3 * a.sum() + 4 * b.sum()).backward()
    assert a.grad.tolist() == [3, 3] and b.grad.tolist() == [6, 6]
    assert a.grad is gradients.views[0] and b.grad is gradients.views[1]


def test_a_new_update_begins_with_0():
    a, b = (nn.Parameter(torch.ones(2)) for _ in range(2))
    a.grad, b.grad = torch.ones(2), torch.ones(2)
    gradients = Gradients([a, b])
    places = [a.grad.data_ptr(), b.grad.data_ptr()]
    a.grad = b.grad = None  # as fairseq's zero_grad
    gradients.attach()
    assert not a.grad.any() and not b.grad.any()
    (a.sum() + 2 * b.sum()).backward()
    assert a.grad.tolist() == [1, 1] and b.grad.tolist() == [2, 2]
    assert places == [a.grad.data_ptr(), b.grad.data_ptr()]
