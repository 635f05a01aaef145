"""Packing of masks into bits: examples by hand and round trips."""

import pytest
import torch

from fairseq_reservoir.masks.bits import bytes_of, pack, unpack


def test_by_hand():
    # entries 0, 3 and 8: bits 0 and 3 of the first byte, 1 + 8 = 9, and bit 0 of the second
    mask = torch.tensor([1, 0, 0, 1, 0, 0, 0, 0, 1], dtype=torch.bool)
    assert pack(mask, 1).tolist() == [9, 1]
    # -1, 0, 1 less -1 is 0, 1, 2: low plane 010, high plane 001
    assert pack(torch.tensor([-1, 0, 1]), 2, lowest=-1).tolist() == [0b010, 0b100]


@pytest.mark.parametrize("shape", [(1,), (7,), (8,), (3, 5), (64, 33)])
@pytest.mark.parametrize("bits, lowest", [(1, 0), (2, -1), (2, 0), (3, -3)])
def test_round_trip(shape, bits, lowest):
    mask = torch.randint(lowest, lowest + 2**bits, shape, generator=torch.Generator().manual_seed(1)).to(torch.int8)
    packed = pack(mask, bits, lowest)
    assert packed.dtype == torch.uint8 and len(packed) == bytes_of(mask.numel(), bits)
    assert unpack(packed, shape, bits, lowest).equal(mask)


@pytest.mark.parametrize("entries", [[0, 2], [-1, 1]])
def test_entries_that_do_not_fit(entries):
    with pytest.raises(ValueError, match="must be from 0 to 1 to fit in 1 bits"):
        pack(torch.tensor(entries), 1)
