"""Text parts: round trips, and limits on the size of decompressed data."""

import hashlib
import json
import lzma
import random
import resource
import tracemalloc

import pytest
from hypothesis import given, settings, strategies as st

from fairseq_reservoir.checkpoint import export_file, packed_file, read_state_dict
from fairseq_reservoir.errors import InputError
from fairseq_reservoir.text import parts
from fairseq_reservoir.text.parts import TextParts, pack, unpack

WORDS = ("the", "\u2581Tür", "ß", "\U0001f600", "e\u0301", "madeupword0000")
TEXT = TextParts(("en", "de"), WORDS, WORDS[::-1], "sentencepiece", bytes(range(256)) * 9, "moses", False, True)

words = st.text(st.characters(exclude_categories=["Cs"])).filter(lambda word: word.split() == [word])
dictionaries = st.lists(words, unique=True, max_size=20).map(tuple)


@given(dictionaries, dictionaries, st.binary(min_size=1, max_size=300))
@settings(deadline=None, max_examples=50)
def test_round_trip(source, target, model):
    for text in (TextParts(("en", "de"), source, target), TextParts(("a", "a"), source, source, "byte_pairs", model)):
        described, packed = pack(text)
        assert unpack("x", json.loads(json.dumps(described)), packed) == text


def test_one_dictionary_is_stored_once():
    described, _ = pack(TextParts(("en", "de"), WORDS, WORDS))
    assert described["parts"] == {"source": len("".join(f"{word}\n" for word in WORDS).encode())}


def test_too_large_for_an_export(monkeypatch):
    monkeypatch.setattr(parts, "MOST_BYTES", 10)
    with pytest.raises(
        InputError,
        match="^--with-text: .* an export can store at most 10 bytes, and 1,048,576 symbols in each dictionary$",
    ):
        pack(TEXT)


def test_a_language_is_no_path():
    with pytest.raises(InputError, match="--with-text: language '../en' must have 1 to 40 letters"):
        pack(TextParts(("../en", "de"), WORDS, WORDS))


def folded(row):
    """Compress other bytes in the same way."""
    return lzma.compress(row, format=lzma.FORMAT_RAW, filters=parts._filters(lzma))


def of_row(row, **sizes):
    """A description that fits the bytes."""
    return {**pack(TEXT)[0], "parts": sizes, "sha256": hashlib.sha256(row).hexdigest()}, folded(row)


def altered(**fields):
    described, packed = pack(TEXT)
    return {**described, **fields}, packed


HOSTILE = {
    "no description": ((None, b""), "their description is invalid"),
    "a list": (([], b""), "their description is invalid"),
    "another kind": (altered(pieces="pickle"), "their description is invalid"),
    "another tokenizer": (altered(tokenizer="os.system"), "their description is invalid"),
    "a path for a language": (altered(languages=["../../en", "de"]), "their description is invalid"),
    "no languages": (altered(languages="en"), "their description is invalid"),
    "a size of -1": (altered(parts={"source": -1, "pieces": 5}), "their description is invalid"),
    "a size of 1.5": (altered(parts={"source": 1.5, "pieces": 5}), "their description is invalid"),
    "True bytes": (altered(parts={"source": True, "pieces": 5}), "their description is invalid"),
    "a part more": (altered(parts={"source": 5, "pieces": 5, "program": 5}), "their description is invalid"),
    "pieces of no kind": (altered(pieces="words"), "their description is invalid"),
    "a terabyte": (altered(parts={"source": 10**12, "pieces": 5}), "1,000,000,000,005 bytes, more than the limit of 16,777,216"),
    "a byte too few": (of_row(b"a\nb\nm", source=3, pieces=1), "not have 4 bytes"),
    "a byte too many": (of_row(b"a\nb\nm", source=5, pieces=1), "not have 6 bytes"),
    "another hash": (altered(sha256="0" * 64), "their SHA-256 differs"),
    "no compressed bytes": ((pack(TEXT)[0], b"x" * 50), "corrupted|the decompressed parts do not have"),
    "nothing": ((pack(TEXT)[0], b""), "the decompressed parts do not have"),
    "bytes behind it": ((pack(TEXT)[0], pack(TEXT)[1] + b"x"), "the decompressed parts do not have"),
    "a word twice": (of_row(b"a\na\nm", source=4, pieces=1), "a symbol twice"),
    "an empty word": (of_row(b"a\n\nm", source=3, pieces=1), "an empty symbol"),
    "a word with a blank": (of_row(b"a b\nm", source=4, pieces=1), "a symbol with white space"),
    "a word that breaks lines": (of_row("a\u2028b\nm".encode(), source=6, pieces=1), "a symbol with white space"),
    "no line's end": (of_row(b"a\nbm", source=3, pieces=1), "the source dictionary has"),
    "no UTF-8": (of_row(b"\xff\nm", source=2, pieces=1), "the source dictionary is not UTF-8"),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_refusals(what):
    (described, packed), expected = HOSTILE[what]
    with pytest.raises(
        InputError, match=f"^a.safetensors: the text parts of the export are not usable .*({expected})"
    ) as refusal:
        unpack("a.safetensors", described, packed)
    assert "\n" not in str(refusal.value)


def test_a_bomb_takes_no_memory():
    """Of 64 MiB of one letter, only the declared size is decompressed."""
    bomb = b"".join(_folded_letters())
    described = {**pack(TEXT)[0], "parts": {"source": 1000, "pieces": 1}}
    tracemalloc.start()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match="the decompressed parts do not have 1,001 bytes"):
        unpack("x", described, bomb)
    assert tracemalloc.get_traced_memory()[1] < 2**24  # including 8 MiB of the decompressor's window
    tracemalloc.stop()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**16  # KiB


def _folded_letters():
    compressor = lzma.LZMACompressor(format=lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA2, "preset": 0}])
    for _ in range(64):
        yield compressor.compress(b"a" * 2**20)
    yield compressor.flush()


def test_more_words_than_a_dictionary_has(monkeypatch):
    described, packed = of_row(b"a\nb\nc\nm", source=6, pieces=1)
    monkeypatch.setattr(parts, "MOST_SYMBOLS", 2)
    with pytest.raises(InputError, match="the source dictionary has more than 2 symbols"):
        unpack("x", described, packed)


def test_any_changed_byte_of_an_export_is_noticed(with_text, tmp_path):
    """Text parts are covered too, because they are hashed with everything else."""
    content, draw, path = with_text.read_bytes(), random.Random(1), tmp_path / "a.safetensors"
    for position in draw.sample(range(len(content)), 150):
        changed = bytearray(content)
        changed[position] ^= 1 << draw.randrange(8)
        path.write_bytes(changed)
        for read in (packed_file.read, read_state_dict):
            with pytest.raises(InputError):
                read(path)
    for size in (0, 100, len(content) // 2, -1):
        path.write_bytes(content[:size])
        with pytest.raises(InputError, match="truncated, altered or not a safetensors file"):
            export_file.read_text(path)


def test_its_version_is_another_and_size_tells_it_apart(with_text):
    body, tensors = packed_file.read(with_text)
    assert body["version"] == 3 and "text" not in tensors
    stored, text = export_file.stored_bytes(with_text), export_file.text_bytes(with_text)
    assert stored == sum(tensor.nbytes for tensor in tensors.values())
    assert 0 < text and stored + text < with_text.stat().st_size < stored + text + 64 * 1024
