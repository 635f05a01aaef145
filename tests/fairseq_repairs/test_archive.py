"""Archives of checkpoints: no corrupted archive is loaded silently, and archives written by torch are accepted."""

import io
import os
import random
import struct
import subprocess
import zipfile

import pytest
import torch

from fairseq_reservoir.checkpoint.damage import is_whole
from fairseq_reservoir.fairseq_repairs import archive
from tests.support.commands import train

# The archive has 7 records, one of them empty. The first two tensors have 352 and 6 bytes.
STATE = {"a": torch.arange(88.0), "flags": torch.tensor([True, False] * 3), "none": torch.zeros(0)}


def saved_bytes(save, state=STATE) -> bytes:
    stream = io.BytesIO()
    save(state, stream)
    return stream.getvalue()


SEALED, PLAIN = saved_bytes(archive.save), saved_bytes(torch.save)
KINDS = pytest.mark.parametrize("original", [SEALED, PLAIN], ids=["sealed", "written by torch"])


def damage(data):
    return archive.damage(io.BytesIO(data))


def is_archive(data):
    return archive.is_archive(io.BytesIO(data))


def load(data):
    return torch.load(io.BytesIO(data), weights_only=True)


def same(state, expected=STATE):
    return state.keys() == expected.keys() and all(tensor.equal(expected[name]) for name, tensor in state.items())


def flipped(original, bit):
    changed = bytearray(original)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def loads_wrong(data, expected, tensors_of) -> bool:
    """Whether these bytes load without an error, but with other tensors."""
    if is_archive(data) and damage(data):
        return False
    try:
        return not same(tensors_of(load(data)), expected)
    except Exception:  # torch's legacy reader, for files that are not an archive, raises errors of any kind
        return False


def attributes_bit(original, index):
    """Return the position of the first bit of the external attributes in an entry of the directory."""
    position = -1
    for _ in range(index + 1):
        position = original.index(b"PK\1\2", position + 1)
    return 8 * (position + 38)


@KINDS
def test_an_unchanged_archive_passes_and_torch_loads_it(original):
    assert is_archive(original) and damage(original) is None and same(load(original))


def test_the_seal_is_the_sha256_of_the_bytes_before_it(tmp_path):
    (tmp_path / "a.pt").write_bytes(SEALED[:-90])
    digest = subprocess.run(["sha256sum", tmp_path / "a.pt"], capture_output=True, text=True).stdout.split()[0]
    assert SEALED[-90:] == f"fairseq_reservoir SHA-256 {digest}".encode()
    # The bytes before the seal equal those of torch, except for the length of the comment.
    assert SEALED[:-92] == PLAIN[:-2] and SEALED[-92:-90] == bytes([90, 0])


@KINDS
def test_a_record_marked_as_a_folder_is_refused(original):
    """Bit 4 of the external attributes marks a record as a folder. For a folder torch returns uninitialised memory."""
    changed = flipped(original, attributes_bit(original, 4) + 4)
    load(changed)
    assert damage(changed) == "its list of records has changed since it was written"


@KINDS
def test_a_changed_tensor_is_named(original):
    position = original.index(STATE["a"].numpy().tobytes())
    assert damage(flipped(original, 8 * position + 9)) == "its record data/0 has changed since it was written"


@pytest.fixture(scope="module")
def tiny(toy_data, tmp_path_factory):
    """Return the bytes of a checkpoint that fairseq-train saved after one update, and its loaded state."""
    folder, size = tmp_path_factory.mktemp("tiny"), "--encoder-embed-dim 4 --encoder-ffn-embed-dim 4"
    run_flags = "--reservoir-encoder T --reservoir-decoder L --max-update 1 --no-epoch-checkpoints --disable-validation"
    train(toy_data, *size.split(), *run_flags.split(), "--save-dir", folder)
    data = (folder / "checkpoint_last.pt").read_bytes()
    return data, load(data)


def undetected_flips(tiny, sealed, choose_bits):
    data, state = tiny
    data = data if sealed else saved_bytes(torch.save, state)
    assert data.endswith(b"PK\5\6", -22, -18) is not sealed and not damage(data)
    return [bit for bit in choose_bits(data) if loads_wrong(flipped(data, bit), tensors_of(state), tensors_of)]


def tensors_of(state):
    moments = state["last_optimizer_state"]["state"].items()
    return {
        **state["model"],
        **{f"{i}.{name}": value for i, entry in moments for name, value in entry.items() if name != "step"},
    }


def header_and_data_bits(data):
    """Draw 10,000 bits of the directory and the headers, and 10,000 bits of the data."""
    inside = set()
    for record in zipfile.ZipFile(io.BytesIO(data)).infolist():
        names = struct.unpack_from("<2H", data, record.header_offset + 26)
        begin = record.header_offset + 30 + sum(names)
        inside.update(range(8 * begin, 8 * (begin + record.file_size)))
    draw = random.Random(3)
    return draw.sample(sorted(set(range(8 * len(data))) - inside), 10_000) + draw.sample(sorted(inside), 10_000)


@pytest.mark.parametrize("sealed", [True, False])
def test_no_changed_bit_of_a_checkpoint_is_loaded(tiny, sealed):
    assert undetected_flips(tiny, sealed, lambda data: random.Random(1).sample(range(8 * len(data)), 250)) == []


@pytest.mark.slow
@pytest.mark.parametrize("sealed", [True, False])
def test_no_changed_bit_of_headers_or_data_is_loaded(tiny, sealed):
    assert undetected_flips(tiny, sealed, header_and_data_bits) == []


@pytest.mark.slow
@KINDS
def test_every_bit_of_a_small_archive(original):
    """Flips each of the 17 thousand bits of directory, headers and data."""
    assert [bit for bit in range(8 * len(original)) if loads_wrong(flipped(original, bit), STATE, dict)] == []


@KINDS
def test_no_changed_byte_is_loaded(original):
    """Replaces one byte at a time, at 500 positions. Without a seal a change of padding passes, but no tensor changes."""
    draw = random.Random(2)
    for position in draw.sample(range(len(original)), 500):
        changed = bytearray(original)
        changed[position] = draw.choice([byte for byte in range(256) if byte != original[position]])
        assert not loads_wrong(changed, STATE, dict), position
        assert original is PLAIN or damage(changed) or not is_archive(changed), position


@KINDS
def test_shortened_and_extended_files_are_refused(original):
    assert all(damage(original[:size]) for size in range(len(original)))
    assert all(damage(original + bytes(more)) for more in (1, 22, 90))


def test_a_missing_seal_is_detected():
    assert damage(SEALED[:-90]) and damage(SEALED[:-1])
    assert damage(SEALED[:-90] + PLAIN[-90:])


def test_saved_again_without_a_seal():
    """fairseq's own script that averages checkpoints saves without a seal."""
    again = saved_bytes(torch.save, load(SEALED))
    assert damage(again) is None and same(load(again))


def test_an_archive_without_checksums():
    torch.serialization.set_crc32_options(False)
    try:
        plain, sealed = saved_bytes(torch.save), saved_bytes(archive.save)
    finally:
        torch.serialization.set_crc32_options(True)
    assert damage(plain) is None and damage(sealed) is None
    position = sealed.index(STATE["a"].numpy().tobytes())
    assert damage(flipped(sealed, 8 * position)) == "its SHA-256 has changed since it was written"


@pytest.mark.slow
def test_more_records_than_a_16_bit_count_holds():
    """With 65,536 tensors the 16-bit count in the end record is 65,535."""
    many = saved_bytes(torch.save, {i: torch.zeros(1) for i in range(2**16)})
    assert damage(many) is None


@pytest.mark.slow
def test_beyond_four_gigabytes(tmp_path):
    """Such sizes and offsets are stored in extra fields. The file is sparse: the large tensor of zeros is not written."""

    class SparseFile(io.FileIO):
        def write(self, data):
            return len(data) if len(data) >= 2**30 and self.seek(len(data), os.SEEK_CUR) else super().write(data)

    state = {"a": torch.ones(3), "b": torch.zeros(2**32 + 100, dtype=torch.uint8), "c": torch.ones(5)}
    with SparseFile(tmp_path / "a.pt", "w") as stream:
        torch.save(state, stream)
    assert is_whole(tmp_path / "a.pt")
