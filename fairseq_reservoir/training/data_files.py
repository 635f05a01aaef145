"""Checks of the binarised data that a training reads; what fairseq may accept in ways not known here is left to fairseq.

Such are several DATA folders, text or remote data, and other tasks.
"""

import itertools
import os
import struct

from fairseq import utils
from fairseq.data import data_utils
from fairseq.data.indexed_dataset import IndexedDataset, infer_dataset_impl

from ..errors import InputError

MAKE_IT = "fairseq-preprocess writes it"
# Magic of an index file, and where its number of sentences stands.
INDEX_HEADERS = {b"MMIDIDX\0": 18, b"TNTIDX\0\0": 32}


class MissingFile(InputError, FileNotFoundError):
    """A file of the DATA folder is missing; still the error that fairseq raises for it."""

    __str__ = ValueError.__str__


def name_missing_files(function, *args, **kwargs):
    """Raise ``MissingFile`` where ``function``, a task's that reads data, raises FileNotFoundError."""
    try:
        return function(*args, **kwargs)
    except MissingFile:
        raise
    except FileNotFoundError as error:
        what = f"{error.filename}: no such file" if error.filename else f"{error}"
        raise MissingFile(f"{what}; {MAKE_IT} (see DATA, --gen-subset, --valid-subset)") from error


def check_data(cfg):
    """Check the data of the tasks known here.

    Raises:
        InputError: fairseq would fail on it.
    """
    checks = {"translation": check_translation, "language_modeling": check_text, "masked_lm": check_text}
    check = checks.get(getattr(cfg.task, "_name", None))
    if check is None:
        return
    data = getattr(cfg.task, "data", None)
    if data and "://" not in data:
        check(cfg, utils.split_paths(data))


def check_translation(cfg, folders):
    """Check dictionaries and both sides of every split of a translation task."""
    task, folder = cfg.task, folders[0]
    check_folder(folder)
    pair = (task.source_lang, task.target_lang)
    if None in pair:
        pair = tuple(data_utils.infer_language_pair(folder))
    if None in pair:
        raise InputError(
            f"DATA: no file such as train.en-de.en.idx in {folder}; {MAKE_IT}; or give --source-lang and --target-lang"
        )
    check_dictionaries(folder, [f"dict.{language}.txt" for language in pair])
    for split, combine, flag in splits(cfg, folders):
        for k in itertools.count():
            found = check_sides(folder, f"{split}{k or ''}", pair, impl_of(task), flag if k == 0 else None)
            if not (combine and found):
                break


def check_text(cfg, folders):
    """Check dictionary and splits of a task that reads text of one language."""
    task, folder = cfg.task, folders[0]
    check_folder(folder)
    check_dictionaries(folder, ["dict.txt"])
    for split, _, flag in splits(cfg, folders):
        prefix = os.path.join(folder, split)
        if impl_of(task) == "raw" or (impl_of(task) is None and infer_dataset_impl(prefix) in {"raw", "fasta"}):
            continue
        if is_indexed(impl_of(task)):
            check_binarised(prefix, flag)
            check_not_empty(prefix)


def impl_of(task):
    impl = getattr(task, "dataset_impl", None)
    return impl and str(impl)


def is_indexed(impl):
    """Whether data of this ``--dataset-impl`` is a pair of files, .idx and .bin, whose header is known here."""
    return impl in {None, "mmap", "cached", "lazy"}


def splits(cfg, folders):
    """Yield (name, whether name1, name2, ... belong to it, flag) for every split that is read from the first folder."""
    data = cfg.dataset
    if len(folders) == 1:  # else one folder per epoch, and a run may resume at any
        yield data.train_subset, True, "--train-subset"
    if not data.disable_validation:
        if data.combine_valid_subsets:
            yield "valid", True, "--combine-valid-subsets"
        else:
            for name in data.valid_subset.split(","):
                yield name, False, "--valid-subset"


def check_folder(folder):
    if not os.path.isdir(folder):
        raise MissingFile(f"DATA: {folder} is no folder; {MAKE_IT} (its --destdir)")


def check_dictionaries(folder, names):
    for name in names:
        if not os.path.isfile(os.path.join(folder, name)):
            raise MissingFile(f"{os.path.join(folder, name)}: no such dictionary; {MAKE_IT}")


def check_sides(folder, split, pair, impl, flag):
    """Check source and target of one split; return whether it is there. If ``flag`` asks for it, it must be."""
    source, target = pair
    if not is_indexed(impl):
        return False
    prefixes = [os.path.join(folder, f"{split}.{first}-{second}.") for first, second in (pair, pair[::-1])]
    prefix = next((prefix for prefix in prefixes if IndexedDataset.exists(prefix + source)), None)
    if prefix is None:
        if flag is None:
            return False
        begun = (prefix for prefix in prefixes if os.path.isfile(f"{prefix}{target}.idx"))
        prefix = next(begun, prefixes[0])
    sides = [prefix + source, prefix + target]
    if impl is None and any(os.path.exists(side) for side in sides):
        return True  # text beside the binarised file, which fairseq prefers
    for side in sides:
        check_binarised(side, flag)
        check_not_empty(side)
    counts = [count_sentences(side) for side in sides]
    if None not in counts and counts[0] != counts[1]:
        raise InputError(
            f"{sides[0]}.idx has {counts[0]} sentences and {sides[1]}.idx has {counts[1]};"
            " both sides need the same number"
        )
    return True


def check_binarised(prefix, flag):
    for suffix in (".idx", ".bin"):
        if not os.path.isfile(prefix + suffix):
            wanted = f" ({flag})" if flag else ""
            raise MissingFile(f"{prefix}{suffix}: no such binarised file{wanted}; {MAKE_IT}")


def check_not_empty(prefix):
    if count_sentences(prefix) == 0:
        raise InputError(f"{prefix}.idx: an empty corpus, 0 sentences; at least 1 is needed")


def count_sentences(prefix):
    """Return the number of sentences that the header of an index file states, or None for a header not known here."""
    with open(prefix + ".idx", "rb") as stream:
        header = stream.read(40)
    if not header:
        return 0
    offset = INDEX_HEADERS.get(header[:8])
    if offset is None or len(header) < offset + 8:
        return None
    return struct.unpack_from("<Q", header, offset)[0]
