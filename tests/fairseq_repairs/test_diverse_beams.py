"""``--diverse-beam-groups``: the hypotheses of a sentence do not depend on its number in the data set or on its batch."""

import pytest
import torch
from fairseq.search import DiverseBeamSearch
from fairseq.sequence_generator import SequenceGenerator

from tests.support import building
from tests.support.beam_searches import WORDS, batch, model

LENGTHS = [4, 9, 3, 7]


def translate(model, sample, ids):
    """Return the token lists of all hypotheses, for each sentence. ``ids`` are the numbers of the sentences in the data set."""
    dictionary = building.dictionary(WORDS)
    search = DiverseBeamSearch(dictionary, num_groups=2, diversity_strength=0.5)
    generator = SequenceGenerator([model], dictionary, beam_size=4, max_len_b=12, search_strategy=search)
    found = generator.generate([model], {**sample, "id": torch.tensor(ids)})
    return [[hypothesis["tokens"].tolist() for hypothesis in of_sentence] for of_sentence in found]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_numbers_in_the_data_set_do_not_matter(seed):
    translator, sample = model(seed=seed, ends=4.0), batch(LENGTHS, seed=seed)
    expected = translate(translator, sample, [0, 1, 2, 3])
    if seed == 3:  # sentences leave the batch at different steps
        assert len({max(map(len, of_sentence)) for of_sentence in expected}) > 1
    for ids in ([70, 3, 12, 5], [2, 0, 3, 1]):
        assert translate(translator, sample, ids) == expected


def test_plain_fairseq_reads_the_row_of_another_sentence(monkeypatch):
    monkeypatch.setattr(DiverseBeamSearch, "step", DiverseBeamSearch.step.__wrapped__)
    translator, sample = model(ends=4.0), batch(LENGTHS)
    with pytest.raises(IndexError):
        translate(translator, sample, [70, 3, 12, 5])
    assert translate(translator, sample, [2, 0, 3, 1]) != translate(translator, sample, [0, 1, 2, 3])
