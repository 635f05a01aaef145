"""Read parallel text with one-line errors, keep good pairs, and split them without leaks."""

import hashlib
import re
import sys
import unicodedata


def fail(message):
    """Exit with one line for the user and status 2, which means that the cause was printed."""
    print(f"quickstart: {message}", file=sys.stderr)
    sys.exit(2)


def read_lines(path):
    """Lines of a UTF-8 file. A missing, empty or other file is refused by name.

    Only a line feed ends a line, as for wc and Moses: line i must stay the translation of line i. A carriage return before a line
    feed belongs to the end (Windows), and any other one is a space in the line.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        fail(f"{path} does not exist")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        fail(f"{path} is not UTF-8: byte 0x{error.object[error.start]:02x} in line {line}")
    if not text.strip():
        fail(f"{path} is empty")
    return [line.removesuffix("\r").replace("\r", " ") for line in text.removesuffix("\n").split("\n")]


def read_pairs(source_path, target_path):
    source, target = read_lines(source_path), read_lines(target_path)
    if len(source) != len(target):
        fail(
            f"{source_path} has {len(source)} lines, but {target_path} has {len(target)}: line i must translate line i"
        )
    return list(zip(source, target))


def write_lines(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


def fold(sentence):
    """A key that ignores case, space, punctuation and Unicode form."""
    return " ".join(re.findall(r"\w+", unicodedata.normalize("NFKC", sentence).casefold()))


def keep_good(pairs, min_words=1, max_words=100, max_ratio=3):
    """Pairs in first-seen order without duplicates, with two different sides of sensible and similar length."""
    good = {}
    for source, target in pairs:
        source, target = " ".join(source.split()), " ".join(target.split())
        shorter, longer = sorted((len(source), len(target)))
        words = len(source.split())
        if (
            fold(source)
            and fold(target)
            and source != target
            and min_words <= words <= max_words
            and len(target.split()) <= max_words
            and longer <= max_ratio * shorter + 10  # ten characters of slack for the shortest pairs
        ):
            good[source, target] = None
    return list(good)


def split(pairs, held_out=1000):
    """Training, validation and test pairs, with no folded source in two of them.

    The hash of a folded source determines its part, so the split depends only on the sentences. Test and validation get
    ``held_out`` sources each, at most a twentieth of all, and hold each source once.
    """
    groups = {}
    for pair in pairs:
        groups.setdefault(fold(pair[0]), []).append(pair)
    order = sorted(groups, key=lambda source: hashlib.sha256(source.encode()).digest())
    count = max(1, min(held_out, len(order) // 20))
    test, valid = set(order[:count]), set(order[count : 2 * count])
    parts = {"train": [], "valid": [], "test": []}
    for source, group in groups.items():
        if source in test:
            parts["test"].append(group[0])
        elif source in valid:
            parts["valid"].append(group[0])
        else:
            parts["train"] += group
    return parts
