"""Check the binarised data of a command before a model is built.

``check_data`` lists the tasks whose data is checked. The data of other tasks is not checked. Raw text, remote data and data of
``--dataset-impl huffman`` are not checked either. fairseq finds errors in unchecked data when it opens the files.
"""

import itertools
import os
import struct
from types import SimpleNamespace
from typing import NamedTuple

from fairseq import utils
from fairseq.data import Dictionary, data_utils
from fairseq.data.indexed_dataset import IndexedDataset, infer_dataset_impl
from hydra.core.hydra_config import HydraConfig
from hydra.utils import to_absolute_path

from ..errors import InputError
from ..fairseq_repairs import index_files
from ..fairseq_repairs.cpu_launch import is_first_on_host
from ..fairseq_repairs.error_report import fairseq_command
from ..fairseq_repairs.index_files import MAKE_IT
from ..options.fairseq_flags import DataFlags, choice_of
from ..options.reading import read

# Command that reads a model and data -> the option that names the splits.
READS = {"fairseq-generate": "gen_subset", "fairseq-eval-lm": "gen_subset", "fairseq-validate": "valid_subset"}
# Magic number of each index format, and the byte offset of the number of sentences.
INDEX_HEADERS = {b"MMIDIDX\0": 18, b"TNTIDX\0\0": 32}


class Split(NamedTuple):
    """A split to check.

    Attributes:
        folder: folder of its files.
        name: name of its files.
        combine: whether it also contains the files name1, name2, ...
        flag: the flag that requires it, or None.
        is_whole: whether to check every sentence of the index and the token ids. Otherwise only the header of the index and the file sizes
            are checked.
    """

    folder: str
    name: str
    combine: bool = False
    flag: str | None = None
    is_whole: bool = True


class MissingFile(InputError, FileNotFoundError):
    """Error about a file that is missing in the DATA folder. It is also a ``FileNotFoundError``, which fairseq raises in this case."""

    __str__ = ValueError.__str__


def check_flags(flags):
    """Check the data of ``fairseq-generate``, ``fairseq-eval-lm`` and ``fairseq-validate`` before a model is read.

    Raises:
        InputError: the data are damaged.
    """
    option = READS.get(fairseq_command())
    if option and hasattr(flags, "path") and is_first_on_host(flags):
        task = SimpleNamespace(_name=flags.task, **vars(read(DataFlags, flags)))
        check_data(SimpleNamespace(task=task), getattr(flags, option).split(","))


def check_data(cfg, splits=None):
    """Check the data of translation, language modelling, masked language models and sentence classification.

    Args:
        cfg: fairseq's configuration. If ``splits`` is given, only ``cfg.task`` is read.
        splits: None in a training. In any other command, the splits that the command reads. If a file of these splits is missing, nothing
            is raised here, because its name may depend on the checkpoint's language pair. fairseq reports the missing file later.

    Raises:
        InputError: fairseq would fail on the data.
    """
    checks = {
        "translation": check_translation,
        "translation_lev": check_translation,
        "language_modeling": check_text,
        "masked_lm": check_text,
        "sentence_prediction": check_sentences,
    }
    check, data = checks.get(choice_of(cfg.task)), read(DataFlags, cfg.task).data
    if check is None or not data or "://" in data:
        return
    folders = utils.split_paths(data)
    scan = index_files.IdScan()
    if splits is None:
        check(cfg, folders, scan)
    elif os.path.isdir(folders[0]):
        check(cfg, folders, scan, [Split(folders[0], name) for name in splits])


def check_translation(cfg, folders, scan, chosen=None):
    """Check the dictionaries and both sides of every split of a translation task. If ``chosen`` is given, check only the splits in it."""
    task, folder = cfg.task, folders[0]
    check_folder(folder)
    pair = (task.source_lang, task.target_lang)
    if None in pair:
        pair = tuple(data_utils.infer_language_pair(folder))
    if chosen and None in pair:
        return
    if None in pair:
        raise InputError(
            f"DATA: no file such as train.en-de.en.idx in {folder}; {MAKE_IT}; or give --source-lang and --target-lang"
        )
    names = [os.path.join(folder, f"dict.{language}.txt") for language in pair]
    entries = check_dictionaries(names)
    impl, splits = impl_of(task), chosen or splits_of_training(cfg, folders)
    for split in splits:
        if split.combine and is_given(split.folder, f"{split.name}1", pair, impl):
            refuse_no_upsampling(task, split)
    for split in splits:
        scan_of_split = scan if split.is_whole else None
        for k in itertools.count():
            required = split.flag if k == 0 else None
            name = f"{split.name}{k or ''}"
            found = check_sides(split.folder, name, pair, impl, required, [*zip(entries, names)], scan_of_split)
            if not (split.combine and found):
                break


def is_given(folder, split, pair, impl):
    """Whether the source of a split exists in a form that ``impl`` reads."""
    prefixes = [os.path.join(folder, f"{split}.{first}-{second}.{pair[0]}") for first, second in (pair, pair[::-1])]
    return any(map(IndexedDataset.exists, prefixes)) or impl == "raw" and any(map(os.path.isfile, prefixes))


def refuse_no_upsampling(task, split):
    """Refuse ``--upsample-primary -1``, fairseq's default, for a split of several files. fairseq would repeat the first one -1 times."""
    times = read(DataFlags, task).upsample_primary
    if times is not None and times < 1:
        raise InputError(
            f"--upsample-primary {times}: {split.folder} has {split.name} and {split.name}1, and the training uses both; give the number "
            f"of times that {split.name} is repeated, as in --upsample-primary 1"
        )


def check_text(cfg, folders, scan, chosen=None):
    """Check the dictionary and the splits of a language model or a masked language model."""
    task, folder = cfg.task, folders[0]
    check_folder(folder)
    name = os.path.join(folder, "dict.txt")
    (entries,) = check_dictionaries([name])
    entries += task._name == "masked_lm"  # <mask>, which the task adds
    for split in chosen or splits_of_training(cfg, folders):
        prefix, scan_of_split = os.path.join(split.folder, split.name), scan if split.is_whole else None
        check_parts(prefix, impl_of(task), split.combine, split.flag, entries, name, scan_of_split)


def check_sentences(cfg, folders, scan, chosen=None):
    """Check the dictionaries and splits of sentence classification in the folders ``input0``, ``label`` and, if it exists, ``input1``."""
    folder = cfg.task.data
    check_folder(folder)
    parts = ["input0"] if cfg.task.regression_target else ["input0", "label"]
    names = [os.path.join(folder, part, "dict.txt") for part in parts]
    entries = dict(zip(parts, check_dictionaries(names)))
    entries["input1"] = entries["input0"]
    for split in chosen or splits_of_training(cfg, [folder]):
        for part in entries:
            prefix, flag = os.path.join(folder, part, split.name), split.flag if part == "input0" else None
            name = os.path.join(folder, "label" if part == "label" else "input0", "dict.txt")
            check_parts(prefix, None, split.combine, flag, entries[part] + 1, name, scan)


def check_parts(prefix, impl, combine, flag, entries, dictionary, scan):
    """Check the files of one side of a split: PREFIX, and with ``combine`` also PREFIX1, PREFIX2, ..."""
    for k in itertools.count():
        part = f"{prefix}{k or ''}"
        if not is_indexed(impl) or (impl is None and infer_dataset_impl(part) in {"raw", "fasta"}):
            return
        if flag and k == 0:
            check_binarised(part, flag)
        elif not IndexedDataset.exists(part):
            return
        check_files(part, impl, entries, dictionary, scan)
        if not combine:
            return


def impl_of(task):
    impl = read(DataFlags, task).dataset_impl
    return impl and str(impl)


def is_indexed(impl):
    """Whether a ``--dataset-impl`` stores data as .idx and .bin files, which this module can check."""
    return impl in {None, "mmap", "cached", "lazy"}


def splits_of_training(cfg, folders) -> list[Split]:
    """Return every split of a training.

    If there are several folders, each epoch trains on the next one, and a run may resume at any epoch. A folder without training data is
    therefore not an error at the start, and every sentence is checked only in the first folder. All validation data is in the first folder.
    """
    data, required = cfg.dataset, "--train-subset" if len(folders) == 1 else None
    found = [Split(folder, data.train_subset, True, required, number == 0) for number, folder in enumerate(folders)]
    if data.disable_validation:
        return found
    if data.combine_valid_subsets:
        return [*found, Split(folders[0], "valid", True, "--combine-valid-subsets")]
    return found + [Split(folders[0], name, flag="--valid-subset") for name in data.valid_subset.split(",")]


def check_folder(folder):
    if not os.path.isdir(folder):
        # hydra may start the training in a folder of its own.
        full = to_absolute_path(folder) if HydraConfig.initialized() else folder
        if full != folder and os.path.isdir(full):
            raise MissingFile(
                f"task.data={folder}: the training starts in hydra's {os.getcwd()}; give the full path, task.data={full}"
            )
        raise MissingFile(f"DATA: {folder} is not a folder; {MAKE_IT} --destdir")


def check_dictionaries(paths):
    """Check that the dictionaries exist, and return the number of entries of each, including special symbols."""
    for path in paths:
        if not os.path.isfile(path):
            raise MissingFile(f"{path}: no such dictionary; {MAKE_IT}")
    return [len(Dictionary.load(path)) for path in paths]


def check_sides(folder, split, pair, impl, flag, dictionaries, scan):
    """Check the source and the target of a split, and return whether the split exists. If ``flag`` is given, the split must exist."""
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
        return True  # fairseq reads this text file in place of the binarised one
    if flag is None and not IndexedDataset.exists(sides[1]):
        sides = sides[:1]  # fairseq can translate a source without references
    for side, (entries, dictionary) in zip(sides, dictionaries):
        check_binarised(side, flag)
        check_files(side, impl, entries, dictionary, scan)
    counts = [count_sentences(side) for side in sides]
    if len(sides) == 2 and None not in counts and counts[0] != counts[1]:
        raise InputError(
            f"{sides[0]}.idx has {counts[0]} sentences and {sides[1]}.idx has {counts[1]};"
            " both need the same number of sentences"
        )
    return True


def check_files(prefix, impl, entries, dictionary, scan):
    """Check the header of an .idx file and the size of its .bin file. With ``scan``, also check every sentence and the token ids."""
    if count_sentences(prefix) == 0:
        raise InputError(f"{prefix}.idx: has 0 sentences; at least 1 is needed")
    index_files.check_once(prefix, impl, scan is not None)
    if scan is not None:
        scan.check(prefix, entries, dictionary)


def check_binarised(prefix, flag):
    for suffix in (".idx", ".bin"):
        if not os.path.isfile(prefix + suffix):
            wanted = f" ({flag})" if flag else ""
            raise MissingFile(f"{prefix}{suffix}: no such binarised file{wanted}; {MAKE_IT}")


def count_sentences(prefix):
    """Return the number of sentences from the header of an index file, or None if the header has an unknown format."""
    with open(prefix + ".idx", "rb") as stream:
        header = stream.read(40)
    if not header:
        return 0
    offset = INDEX_HEADERS.get(header[:8])
    if offset is None or len(header) < offset + 8:
        return None
    return struct.unpack_from("<Q", header, offset)[0]
