"""The archive of a checkpoint: nothing of it can change without a word, and every archive of torch's is taken as it is."""

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

# 7 records, one of them empty; a byte of the data itself is one of the 352 and 6 bytes of its first two tensors.
STATE = {"a": torch.arange(88.0), "flags": torch.tensor([True, False] * 3), "none": torch.zeros(0)}


def written(save, state=STATE) -> bytes:
    stream = io.BytesIO()
    save(state, stream)
    return stream.getvalue()


SEALED, PLAIN = written(archive.save), written(torch.save)
KINDS = pytest.mark.parametrize("whole", [SEALED, PLAIN], ids=["sealed", "as torch writes it"])


def damage(data):
    return archive.damage(io.BytesIO(data))


def is_archive(data):
    return archive.is_archive(io.BytesIO(data))


def load(data):
    return torch.load(io.BytesIO(data), weights_only=True)


def same(state, expected=STATE):
    return state.keys() == expected.keys() and all(tensor.equal(expected[name]) for name, tensor in state.items())


def flipped(whole, bit):
    changed = bytearray(whole)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def loads_wrong(data, expected, tensors_of) -> bool:
    """Whether a checkpoint of these bytes is taken without a word, and is another one."""
    if is_archive(data) and damage(data):
        return False
    try:
        return not same(tensors_of(load(data)), expected)
    except Exception:  # what is no archive any more ends in torch's old reader, in errors of any kind
        return False


def attributes_of(whole, index):
    """The first bit of the external attributes in an entry of the directory."""
    place = -1
    for _ in range(index + 1):
        place = whole.index(b"PK\1\2", place + 1)
    return 8 * (place + 38)


@KINDS
def test_what_is_written_is_whole_and_torch_reads_it(whole):
    assert is_archive(whole) and damage(whole) is None and same(load(whole))


def test_the_seal_is_the_sha256_of_what_stands_before_it(tmp_path):
    (tmp_path / "a.pt").write_bytes(SEALED[:-90])
    digest = subprocess.run(["sha256sum", tmp_path / "a.pt"], capture_output=True, text=True).stdout.split()[0]
    assert SEALED[-90:] == f"fairseq_reservoir SHA-256 {digest}".encode()
    # All before is what torch writes, but for the length of a comment.
    assert SEALED[:-92] == PLAIN[:-2] and SEALED[-92:-90] == bytes([90, 0])


@KINDS
def test_a_tensor_that_torch_would_leave_unread(whole):
    """Bit 4 of the external attributes says that a record is a folder; torch answers with memory as it was."""
    changed = flipped(whole, attributes_of(whole, 4) + 4)
    load(changed)
    assert damage(changed) == "its list of contents is not as it was written"


@KINDS
def test_a_changed_tensor_is_named(whole):
    place = whole.index(STATE["a"].numpy().tobytes())
    assert damage(flipped(whole, 8 * place + 9)) == "data/0 in it is not as it was written"


@pytest.fixture(scope="module")
def tiny(toy_data, tmp_path_factory):
    """A checkpoint that fairseq-train has written, of one update, and what is in it."""
    folder, size = tmp_path_factory.mktemp("tiny"), "--encoder-embed-dim 4 --encoder-ffn-embed-dim 4"
    once = "--reservoir-encoder T --reservoir-decoder L --max-update 1 --no-epoch-checkpoints --disable-validation"
    train(toy_data, *size.split(), *once.split(), "--save-dir", folder)
    data = (folder / "checkpoint_last.pt").read_bytes()
    return data, load(data)


def flips_that_load_wrong(tiny, sealed, bits_of):
    data, state = tiny
    data = data if sealed else written(torch.save, state)
    assert data.endswith(b"PK\5\6", -22, -18) is not sealed and not damage(data)
    return [bit for bit in bits_of(data) if loads_wrong(flipped(data, bit), tensors_of(state), tensors_of)]


def tensors_of(state):
    moments = state["last_optimizer_state"]["state"].items()
    return {
        **state["model"],
        **{f"{i}.{name}": value for i, entry in moments for name, value in entry.items() if name != "step"},
    }


def of_headers_and_data(data):
    """10,000 bits of the directory and the headers, and 10,000 of the data."""
    inside = set()
    for record in zipfile.ZipFile(io.BytesIO(data)).infolist():
        names = struct.unpack_from("<2H", data, record.header_offset + 26)
        begin = record.header_offset + 30 + sum(names)
        inside.update(range(8 * begin, 8 * (begin + record.file_size)))
    draw = random.Random(3)
    return draw.sample(sorted(set(range(8 * len(data))) - inside), 10_000) + draw.sample(sorted(inside), 10_000)


@pytest.mark.parametrize("sealed", [True, False])
def test_no_changed_bit_of_a_checkpoint_is_loaded(tiny, sealed):
    assert flips_that_load_wrong(tiny, sealed, lambda data: random.Random(1).sample(range(8 * len(data)), 1000)) == []


@pytest.mark.slow
@pytest.mark.parametrize("sealed", [True, False])
def test_more_of_its_bits(tiny, sealed):
    assert flips_that_load_wrong(tiny, sealed, of_headers_and_data) == []


@pytest.mark.slow
@KINDS
def test_every_bit_of_a_smaller_one(whole):
    """Of directory, headers and data, 17 thousand in all."""
    assert [bit for bit in range(8 * len(whole)) if loads_wrong(flipped(whole, bit), STATE, dict)] == []


@KINDS
def test_no_changed_byte_is_loaded(whole):
    """Any other byte in its place, at 500 places. Without a seal a byte of the padding may change; no tensor does."""
    draw = random.Random(2)
    for place in draw.sample(range(len(whole)), 500):
        changed = bytearray(whole)
        changed[place] = draw.choice([byte for byte in range(256) if byte != whole[place]])
        assert not loads_wrong(changed, STATE, dict), place
        assert whole is PLAIN or damage(changed) or not is_archive(changed), place


@KINDS
def test_no_part_of_a_file_passes(whole):
    assert all(damage(whole[:size]) for size in range(len(whole)))
    assert all(damage(whole + bytes(more)) for more in (1, 22, 90))


def test_a_seal_cut_off_is_missed():
    assert damage(SEALED[:-90]) and damage(SEALED[:-1])
    assert damage(SEALED[:-90] + PLAIN[-90:])


def test_saved_again_without_a_seal():
    """As fairseq's own script for averages does, which knows nothing of it."""
    again = written(torch.save, load(SEALED))
    assert damage(again) is None and same(load(again))


def test_an_archive_without_checksums():
    torch.serialization.set_crc32_options(False)
    try:
        plain, sealed = written(torch.save), written(archive.save)
    finally:
        torch.serialization.set_crc32_options(True)
    assert damage(plain) is None and damage(sealed) is None
    place = sealed.index(STATE["a"].numpy().tobytes())
    assert damage(flipped(sealed, 8 * place)) == "its SHA-256 differs from that of the written file"


@pytest.mark.slow
def test_more_records_than_short_numbers_count():
    """65,536 tensors: the short record at the end says 65,535."""
    many = written(torch.save, {i: torch.zeros(1) for i in range(2**16)})
    assert damage(many) is None


@pytest.mark.slow
def test_beyond_four_gigabytes(tmp_path):
    """Sizes and places stand in extra fields then. The file has holes: what is large in it is zeros that nobody writes."""

    class WithHoles(io.FileIO):
        def write(self, data):
            return len(data) if len(data) >= 2**30 and self.seek(len(data), os.SEEK_CUR) else super().write(data)

    state = {"a": torch.ones(3), "b": torch.zeros(2**32 + 100, dtype=torch.uint8), "c": torch.ones(5)}
    with WithHoles(tmp_path / "a.pt", "w") as stream:
        torch.save(state, stream)
    assert is_whole(tmp_path / "a.pt")
