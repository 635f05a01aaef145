"""Missing dictionaries give one line. Other errors of a user-defined task are not changed."""

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
def test_errors_of_dictionaries(monkeypatch, error, is_said):
    monkeypatch.setitem(TASK_REGISTRY, "own", OwnTask)
    monkeypatch.setattr(OwnTask, "error", error)
    config = OmegaConf.create({"task": {"task": "own", "data": "there"}})
    with pytest.raises(InputError if is_said else type(error)) as raised:
        task_of_config(config, "there")
    message = str(raised.value)
    assert message == (
        f"--data there: does not contain the dictionaries of the model ({error})" if is_said else str(error)
    )


def test_a_folder_without_languages(tmp_path):
    config = OmegaConf.create({"task": {"_name": "translation", "source_lang": None, "target_lang": None}})
    with pytest.raises(InputError) as raised:
        task_of_config(config, str(tmp_path), flag="DATA")
    assert str(raised.value) == (
        f"DATA {tmp_path}: does not contain the dictionaries of the model"
        " (no file such as train.en-de.en.idx, whose name shows the languages)"
    )


def test_a_folder_that_was_not_given_is_not_called_data(monkeypatch):
    """The checkpoint names the folder of its training, which another machine does not have."""
    monkeypatch.setitem(TASK_REGISTRY, "own", OwnTask)
    monkeypatch.setattr(OwnTask, "error", FileNotFoundError("dict.en.txt"))
    config = OmegaConf.create({"task": {"task": "own", "data": "runs/data"}})
    with pytest.raises(InputError) as raised:
        task_of_config(config, None)
    assert str(raised.value) == (
        "DATA runs/data (named in the checkpoint): does not contain the dictionaries of the model (dict.en.txt)"
        "; give the folder of the dictionaries with --data"
    )


def with_words(source, target, **more):
    sides = []
    for words in (source, target):
        sides.append(Dictionary())
        for word in words:
            sides[-1].add_symbol(word)
    return SimpleNamespace(source_dictionary=sides[0], target_dictionary=sides[1], **more)


def test_only_dictionaries_of_the_same_size_are_compared():
    """For translation BART's models drop the mask, the last symbol of the dictionary."""
    trained = describe(with_words("abc", "de"))
    check("a.pt", trained, with_words("ab", "de"), same_size=True)
    with pytest.raises(InputError, match=r"a.pt: the target dictionary of DATA \(6 entries"):
        check("a.pt", trained, with_words("ab", "ed"), same_size=True)
    with pytest.raises(InputError, match="a.pt: the source dictionary"):
        check("a.pt", trained, with_words("ab", "de"))


def test_a_task_with_a_dictionary_for_each_language():
    """fairseq's multilingual tasks use other dictionaries for training than for translation."""
    trained = describe(with_words("abc", "abc", dicts={}))
    check("a.pt", trained, with_words("cba", "abc", dicts={}))
