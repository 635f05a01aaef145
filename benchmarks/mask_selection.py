"""Time to select the masks of 31.5 million scores: the package's selection, four other methods, and a lower bound.

The scores are 30 matrices of 1024 x 1024, as in a model of width 512 with 6 + 6 layers. Masks keep half of each. An exact selection
reads the scores at least three times: to count, to find the smallest kept score, and to write the mask. The baseline therefore reads
them three times and writes a mask once. ``pairs`` describes the comparison. ``memory`` describes the peak memory, which does not
include the scores. ``ours`` is a radix select in Triton on an NVIDIA GPU with triton, and NumPy on a CPU, where its memory is not
counted. ``ours, separate`` gets the matrices one by one, as in a model. ``topk`` is the package's method for all other devices.

  python benchmarks/mask_selection.py --device cuda
  python benchmarks/mask_selection.py --matrices 2 --rows 64 --pairs 2
"""

import argparse
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import memory, pairs  # noqa: E402
from fairseq_reservoir.masks.selection import _together_on_device, select_largest  # noqa: E402
from fairseq_reservoir.plan.mask_choices import keep_count  # noqa: E402


def three_passes(scores, count):
    """Lower bound: read the scores twice, and a third time to write a mask. The mask is not a selection."""
    between = scores.amax(1, keepdim=True) + scores.amin(1, keepdim=True)
    return scores > between


def selected(scores, count):
    return select_largest([scores], [count])[0]


def selected_from_separate(scores, count):
    return select_largest(list(scores[:, None].unbind()), [count])


def by_topk(scores, count):
    return _together_on_device([scores], [count], True)[0]


def sorted_once(scores, count):
    """Method of the official code: sort the scores, and set ones at the last indices."""
    indices = scores.abs().sort(1).indices[:, scores.shape[1] - count :]
    return torch.zeros_like(scores, dtype=torch.bool).scatter_(1, indices, True)


def by_kthvalue(scores, count):
    """Threshold from torch's kthvalue. With equal scores it may keep too many."""
    sizes = scores.abs()
    return sizes >= sizes.kthvalue(sizes.shape[1] - count + 1, dim=1, keepdim=True).values


def bit_by_bit(scores, count):
    """Find the bits of the smallest kept magnitude one by one, by counting. Needs only the memory of a mask.

    Magnitudes have the order of their bits read as integers; the sign bit is 0. With equal scores it may keep too many.
    """
    sizes = scores.abs()
    numbers = sizes.view(torch.int32)
    last = torch.zeros(len(scores), 1, dtype=torch.int32, device=scores.device)
    for bit in reversed(range(31)):
        larger = last + 2**bit
        last = torch.where((numbers >= larger).sum(1, keepdim=True, dtype=torch.int32) >= count, larger, last)
    return numbers >= last


ARMS = {
    "three passes": three_passes,
    "ours": selected,
    "ours, separate": selected_from_separate,
    "topk": by_topk,
    "sort": sorted_once,
    "kthvalue": by_kthvalue,
    "bit by bit": bit_by_bit,
}


class Arm:
    """A method of selection and the scores."""

    flags = ""

    def __init__(self, name, scores):
        self.name, self.scores, self.facts = name, scores, {}
        self.count = keep_count(0.5, scores.shape[1])

    def step(self):
        """Select all masks. Return the seconds."""
        started = time.perf_counter()
        ARMS[self.name](self.scores, self.count)
        if self.scores.is_cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - started


def build(name, scores):
    """Create an arm and measure its peak memory; return ``pairs.Absent`` if it runs out of memory."""
    try:
        arm, peak = memory.peak_of(lambda: Arm(name, scores), 1, scores.is_cuda)
    except RuntimeError as error:
        return pairs.absent(name, "", error)
    arm.facts = {"peak_mib": peak / 2**20}
    return arm


def read_arguments(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    pairs.add_arguments(parser, "mask_selection", pairs=20)
    parser.add_argument("--matrices", type=int, default=30, help="default 30")
    parser.add_argument("--rows", type=int, default=1024, help="rows and columns of a matrix (default 1024)")
    given = parser.parse_args(arguments)
    pairs.check_positive(parser, given, ("pairs", "matrices", "rows"))
    return given


def main(arguments=None):
    given = read_arguments(arguments)
    if given.threads:
        torch.set_num_threads(given.threads)
    torch.manual_seed(given.seed)
    scores = torch.randn(given.matrices, given.rows**2).to(given.device)
    found = pairs.measure((build(name, scores) for name in ARMS), given.pairs, given.warm_up)
    facts = pairs.surroundings(given.device, given.pairs)
    for arm in found:
        if "seconds" in arm:
            arm["milliseconds"] = 1000 * arm["seconds"]
            arm["gb_per_second"] = 3 * scores.nbytes / arm["seconds"] / 1e9
    columns = [
        ("ms", "milliseconds", ",.3f"),
        ("GB per second for three passes", "gb_per_second", ",.0f"),
        ("peak MiB without the scores", "peak_mib", ",.0f"),
    ]
    how = f"{scores.numel():,} scores in float32: {given.matrices} matrices of {given.rows} x {given.rows}. The masks keep half of each."
    result = {"surroundings": facts, "scores": scores.numel(), "arms": found}
    pairs.write(given.output, result, pairs.markdown(result, columns, how))
    return result


if __name__ == "__main__":
    main()
