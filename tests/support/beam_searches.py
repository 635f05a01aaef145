"""Models and batches for tests of the beam search, and the search of fairseq to compare with."""

import torch
from fairseq.sequence_generator import SequenceGenerator

from fairseq_reservoir.layers.replace import adopt
from fairseq_reservoir.options.command_options import GENERATION_GRAPHS, ON_CPU
from fairseq_reservoir.speed.generation.generator import GraphedGenerator
from tests.support import building

WORDS = 40


def model(seed=1, sharpness=4.0, ends=1.0, **options):
    """A random model in evaluation mode. ``sharpness`` multiplies its output matrix, so that probabilities differ.

    ``ends`` multiplies the row of the end of sentence, so that hypotheses of some sentences end early.
    """
    options = {"decoder": "LL", "words": (WORDS, WORDS), "max_target_positions": 64, **options}
    found = building.build(torch_seed=seed, **options).eval()
    with torch.no_grad():
        found.decoder.output_projection.weight.mul_(sharpness)[building.EOS].mul_(ends)
    return found


def batch(lengths, seed=1, words=WORDS, left=True):
    """Batch of random sentences in the format of fairseq's collater."""
    generator = torch.Generator().manual_seed(seed)
    rows = [
        torch.cat([torch.randint(4, words, (n - 1,), generator=generator), torch.tensor([building.EOS])])
        for n in lengths
    ]
    source = building.pad(rows, "left" if left else "right")
    return {"id": torch.arange(len(rows)), "net_input": {"src_tokens": source, "src_lengths": torch.tensor(lengths)}}


def generators(model, beam, *others, **options):
    """fairseq's generator and ours for the same search with a model, or with it and ``others`` together."""
    dictionary = building.dictionary(len(model.decoder.dictionary))
    theirs, ours = (SequenceGenerator([model, *others], dictionary, beam_size=beam, **options) for _ in range(2))
    return theirs, adopt(GraphedGenerator, ours)


def use_on_cpu(monkeypatch):
    """Let ``GraphedGenerator`` run its steps on a CPU."""
    monkeypatch.setenv(GENERATION_GRAPHS, ON_CPU)


def assert_same(found, expected, tolerance=1e-5):
    """All hypotheses have the same tokens in the same order, and nearly the same scores.

    Positional scores are differences of sums, so that the rounding of the sum counts too.
    """
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert [one["tokens"].tolist() for one in mine] == [one["tokens"].tolist() for one in theirs]
        for one, other in zip(mine, theirs, strict=True):
            assert set(one) == set(other)
            torch.testing.assert_close(one["score"], other["score"], rtol=1e-6, atol=tolerance)
            rounding = 1e-6 * float(other["positional_scores"].sum().abs())
            torch.testing.assert_close(
                one["positional_scores"], other["positional_scores"], rtol=0, atol=tolerance + rounding
            )
            assert one["tokens"].dtype == other["tokens"].dtype
