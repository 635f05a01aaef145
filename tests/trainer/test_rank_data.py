"""Comparison of the dictionaries and datasets of all ranks."""

from argparse import Namespace
from types import SimpleNamespace

import numpy as np
import pytest
from fairseq.data import Dictionary
from fairseq.tasks import FairseqTask

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.trainer.rank_data import contents_of, first_difference, hashes_of, refuse_other_data


class Sentences(list):
    """Dataset of sentences with the given lengths."""

    @property
    def sizes(self):
        return np.array(self, dtype=np.int32)


def task(source="abc", target="xyz", **datasets):
    """Return a task with two dictionaries. Their entries 0 to 3 are fairseq's own symbols."""
    source, target = (make_dictionary(letters) for letters in (source, target))
    return SimpleNamespace(source_dictionary=source, target_dictionary=target, datasets=datasets)


def make_dictionary(letters):
    dictionary = Dictionary()
    for letter in letters:
        dictionary.add_symbol(letter)
    return dictionary


def refusal(*tasks):
    """Return the message that all ranks print, or None."""
    hashes = [hashes_of(each) for each in tasks]
    name = first_difference(hashes)
    if name is None:
        return None
    with pytest.raises(InputError) as refused:
        refuse_other_data(name, [contents_of(each, name) for each in tasks], [each.get(name) for each in hashes])
    return str(refused.value)


DICTIONARIES, DATA = "; all ranks need the same dictionaries in DATA", "; all ranks need the same DATA"


@pytest.mark.parametrize(
    "first, second, message",
    [
        (task("abc"), task("acb"), "entry 5 of the source dictionary is c, but b on rank 0" + DICTIONARIES),
        (task("abc"), task("abcd"), "the source dictionary has 8 entries, but 7 on rank 0" + DICTIONARIES),
        (task(target="xyz"), task(target="xy"), "the target dictionary has 6 entries, but 7 on rank 0" + DICTIONARIES),
        (
            task(valid=Sentences([3, 4]), train=Sentences([5, 6, 7])),
            task(valid=Sentences([3, 4]), train=Sentences([5, 6])),
            "train has 2 sentences of 11 tokens, but 3 sentences of 18 tokens on rank 0" + DATA,
        ),
        (
            task(valid=Sentences([3, 4])),
            task(valid=Sentences([4, 3])),
            "the sentence lengths of valid differ from those on rank 0" + DATA,
        ),
        (task(train=[1, 2]), task(train=[1]), "train has 1 sentences, but 2 sentences on rank 0" + DATA),
        (task(), task(valid=Sentences([1])), "valid has 1 sentences of 1 tokens, but no sentences on rank 0" + DATA),
    ],
)
def test_a_difference_is_named(first, second, message):
    assert refusal(first, first) is None
    assert refusal(first, first, second) == f"rank 2: {message}"


def test_a_task_without_dictionaries():
    assert hashes_of(FairseqTask(Namespace())) == {}
