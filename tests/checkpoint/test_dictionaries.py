"""Dictionaries that are not there are told in one line; what else goes wrong in a task of a user's own is left as it is."""

from types import SimpleNamespace

import pytest
from fairseq.data import Dictionary
from fairseq.tasks import TASK_REGISTRY, LegacyFairseqTask
from omegaconf import OmegaConf

from fairseq_reservoir.checkpoint.dictionaries import check, describe, task_of_config
from fairseq_reservoir.errors import InputError


class OwnTask(LegacyFairseqTask):
    error = None

    @classmethod
    def setup_task(cls, args, **kwargs):
        raise cls.error


@pytest.mark.parametrize(
    "error, is_said",
    [
        (FileNotFoundError("dict.en.txt"), True),
        (Exception("Could not infer language pair"), True),  # fairseq's own
        (ValueError("Incorrect dictionary format"), True),
        (RuntimeError("Duplicate word found"), True),
        (ModuleNotFoundError("No module named 'nowhere'"), False),
        (TypeError("unsupported operand"), False),
    ],
)
def test_what_is_put_down_to_dictionaries(monkeypatch, error, is_said):
    monkeypatch.setitem(TASK_REGISTRY, "own", OwnTask)
    monkeypatch.setattr(OwnTask, "error", error)
    config = OmegaConf.create({"task": {"task": "own", "data": "there"}})
    with pytest.raises(InputError if is_said else type(error)) as raised:
        task_of_config(config, None)
    message = str(raised.value)
    assert message == (
        f"--data there: does not hold the dictionaries of the checkpoint ({error})" if is_said else str(error)
    )


def with_words(source, target, **more):
    sides = []
    for words in (source, target):
        sides.append(Dictionary())
        for word in words:
            sides[-1].add_symbol(word)
    return SimpleNamespace(source_dictionary=sides[0], target_dictionary=sides[1], **more)


def test_only_dictionaries_of_the_same_size_are_compared_where_others_do_not_fit():
    """BART's models lose the mask, its dictionary's last symbol, for translation."""
    trained = describe(with_words("abc", "de"))
    check("a.pt", trained, with_words("ab", "de"), same_size=True)
    with pytest.raises(InputError, match=r"a.pt: the target dictionary of DATA \(6 entries"):
        check("a.pt", trained, with_words("ab", "ed"), same_size=True)
    with pytest.raises(InputError, match="a.pt: the source dictionary"):
        check("a.pt", trained, with_words("ab", "de"))


def test_a_task_with_a_dictionary_for_each_language():
    """fairseq's multilingual tasks train with others for their sides than they translate with."""
    trained = describe(with_words("abc", "abc", dicts={}))
    check("a.pt", trained, with_words("cba", "abc", dicts={}))
