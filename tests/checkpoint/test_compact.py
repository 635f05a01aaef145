"""The compact form of an export: lossless, near the entropy, with sizes checked before memory is allocated."""

import copy
import sys

import pytest
import torch
from hypothesis import given, settings, strategies as st

from fairseq_reservoir.checkpoint import compact, entropy_code, packed_file, read_state_dict
from fairseq_reservoir.checkpoint.stored import from_torch, to_torch
from fairseq_reservoir.errors import InputError
from fairseq_reservoir.masks import bits
from fairseq_reservoir.masks.selection import select_masks
from fairseq_reservoir.plan.mask_choices import MaskChoices
from fairseq_reservoir.random_tensors import digest

pytest.importorskip("constriction", reason="constriction is not installed: pip install constriction")

# Keep ratios, the kind, and the entropy of an entry by hand
CHOICES = {
    "half": ((0.5,), "binary", 1),
    "0.3": ((0.3,), "binary", 0.8813),
    "0.01": ((0.01,), "binary", 0.0808),
    "signed": ((0.5,), "signed", 1.5),
    "two coats": ((0.3, 0.1), "binary", 1.1568),  # 0.7, 0.2, 0.1
    "four signed coats": ((0.8, 0.5, 0.25, 0.1), "signed", 3.0282),  # 0.2, 0.3, 0.25, 0.15, 0.1, and 0.8 signs
}


def masked(shape, ratios, kind="binary", scope="tensor", ranking="magnitude", seed=0):
    """Return description and bytes of a mask of random scores in an export."""
    choices = MaskChoices(ratios[0], coats=ratios[1:], kind=kind, scope=scope, ranking=ranking)
    scores = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    entries = select_masks([scores], choices, choices.keep_ratios)[0]
    described = {"shape": list(shape), "bits": choices.bits, "lowest": choices.lowest}
    return described, bits.pack(entries, choices.bits, choices.lowest)


def unpack(body, packed):
    body, tensors = compact.unpack("x", body, from_torch(packed))
    return body, {name: to_torch(tensor) for name, tensor in tensors.items()}


def same(one, other):
    return digest.of_contents("", one) == digest.of_contents("", other)


@pytest.mark.parametrize("what", CHOICES)
def test_masks_at_their_entropy(what, tmp_path):
    ratios, kind, entropy = CHOICES[what]
    described, stored = masked((512, 512), ratios, kind)
    body, tensors = {"masks": {"a": described}}, {"a": stored}
    packed_body, packed = compact.pack(body, tensors)
    assert compact.entropy_bytes(body, tensors) == pytest.approx(512 * 512 * entropy / 8, rel=1e-3)
    # a mask that keeps half of the entries cannot become smaller
    assert ("planes" in packed_body["coded"]["a"]) == (what != "half")
    assert len(packed) <= 1.001 * compact.entropy_bytes(body, tensors) + 8
    assert unpack(packed_body, packed)[0] == body
    assert same(unpack(packed_body, packed)[1], tensors)


def test_rounded_weights_at_their_entropy():
    # A quarter each of 80,000 ternary levels is -1 and 1: 1.5 bits per entry in place of 2, 15,000 bytes.
    levels = torch.tensor([0, 1, 1, 2]).repeat(20_000)[
        torch.randperm(80_000, generator=torch.Generator().manual_seed(1))
    ]
    body = {"masks": {}, "levels": {"a": {"shape": [200, 400], "kind": "ternary"}}}
    tensors = {"a": bits.pack(levels, 2)}
    packed_body, packed = compact.pack(body, tensors)
    assert compact.entropy_bytes(body, tensors) == 15_000 and 15_000 <= len(packed) <= 15_000 + 24
    found, back = unpack(packed_body, packed)
    assert found == body and same(back, tensors)


@st.composite
def ratios(draw):
    found = draw(st.lists(st.integers(1, 100), min_size=1, max_size=5, unique=True))
    return tuple(ratio / 100 for ratio in sorted(found, reverse=True))


def numbers(shape, dtype, scale, seed):
    """Return normal numbers with a few NaN, infinities and zeros."""
    found = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale
    for at, value in enumerate((float("nan"), float("-inf"), -0.0)):
        found.view(-1)[at::97] = value
    return found.to(dtype)


@settings(max_examples=40, deadline=None)
@given(
    ratios=ratios(),
    kind=st.sampled_from(["binary", "signed"]),
    scope=st.sampled_from(["tensor", "row", "global"]),
    shape=st.tuples(st.integers(1, 150), st.integers(1, 150)),
    others=st.lists(
        st.tuples(
            st.lists(st.integers(0, 40), max_size=3),
            st.sampled_from([torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool]),
            st.sampled_from([0.0, 1e-3, 1.0]),
        ),
        max_size=3,
    ),
    seed=st.integers(0, 1000),
)
def test_any_export_comes_back(tmp_path_factory, ratios, kind, scope, shape, others, seed):
    described, stored = masked(shape, ratios, kind, scope, seed=seed)
    tensors = {"mask": stored}
    for i, (other, dtype, scale) in enumerate(others):
        tensors[f"other{i}"] = numbers(other, dtype, scale, seed)
    path = tmp_path_factory.mktemp("compact") / "a.safetensors"
    body = {"masks": {"mask": described}, "seed": seed}
    packed_file.write(path, body, tensors, compact=True)
    found, read = packed_file.read(path)
    assert found == {"version": 2, **body} and same(read, tensors)


@pytest.mark.parametrize("dtype, most", [(torch.float32, 0.90), (torch.float16, 0.90), (torch.bfloat16, 0.75)], ids=str)
def test_numbers_by_their_bytes(dtype, most):
    """The exponents of normal weights have about 3 bits of entropy."""
    tensors = {"a": numbers((300, 300), dtype, 0.1, 1)}
    body, packed = compact.pack({"masks": {}}, tensors)
    stored, entropy = tensors["a"].nbytes, compact.entropy_bytes({"masks": {}}, tensors)
    assert len(packed) < most * stored and len(packed) <= 1.01 * entropy
    assert same(unpack(body, packed)[1], tensors)


def test_constant_bytes_are_not_stored():
    """The last 13 bits of fp16 numbers in fp32 are 0, so one of four planes has a single symbol."""
    tensors = {"a": numbers((64, 64), torch.float16, 1, 1).float().nan_to_num(0, 0, 0)}
    body, packed = compact.pack({"masks": {}}, tensors)
    assert body["coded"]["a"]["planes"][0] == {"counts": [4096], "bytes": 0}
    assert same(unpack(body, packed)[1], tensors)


def test_the_decoded_size_is_bounded_by_the_file():
    """A mask that keeps all entries, or one of a million, needs almost no bytes, but at most 1,024 entries per byte are allowed."""
    for entries in (torch.ones(1024, 1024), torch.zeros(1024, 1024)):
        entries[0, 0] = 1
        body, kept = {"masks": {"a": {"shape": [1024, 1024], "bits": 1, "lowest": 0}}}, bits.pack(entries, 1)
        coded, packed = compact.pack(body, {"a": kept})
        assert coded["coded"] == {"a": {"shape": [2**17], "dtype": "uint8"}} and len(packed) == 2**17
        described, other = masked((128, 128), (0.3,))
        body["masks"]["b"] = described
        coded, packed = compact.pack(body, {"a": kept, "b": other})
        # 128 x 128 x 0.8813 bits are 1,805 bytes
        assert 1805 <= len(packed) <= 1805 + 2 * 16 and same(unpack(coded, packed)[1], {"a": kept, "b": other})


def test_golden_layout():
    """Tables, order and bytes by hand: a mask of 600 entries of three values, 5 bytes, and constant bfloat16 numbers."""
    entries = torch.tensor([0, 1, -1, 1, 0, 1] * 100).reshape(20, 30)
    tensors = {
        "c": torch.ones(40, 5, dtype=torch.bfloat16),
        "b": torch.arange(5, dtype=torch.uint8),
        "a": bits.pack(entries, 2, -1),
        "d": torch.cat([torch.zeros(2000), torch.ones(48)]).to(torch.float16).reshape(2, 1024),
    }
    mask = {"shape": [20, 30], "bits": 2, "lowest": -1}
    body, payload = compact.pack({"masks": {"a": mask}}, tensors)
    first, last = (body["coded"][name]["planes"] for name in "ad")
    # 600 entries of log2(600 / 100), log2(600 / 200) and log2(600 / 300) bits: 875.5 bits, and 1 to 2 words
    assert first == [{"counts": [100, 200, 300], "bytes": 116}]
    # 1.0 is 0x3f80 in bfloat16 and 0x3c00 in float16. A plane of one symbol needs no bytes, but a tensor of such planes is plain
    assert body["coded"]["c"] == {"shape": [40, 5], "dtype": "bfloat16"}
    assert last[0] == {"counts": [2048], "bytes": 0} and last[1]["counts"] == [2000] + [0] * 59 + [48]
    assert payload[116:121].tolist() == [0, 1, 2, 3, 4]
    assert payload[121:521].tolist() == [0x80, 0x3F] * 200 and len(payload) == 521 + last[1]["bytes"]
    assert digest.of_tensor(payload) == "1c72b657412889ba725d873548b3571d28eb7d1bd628d0475e93eeff6af3cdda"


def test_small_tensors_stay_as_they_are():
    described, stored = masked((4, 8), (0.3,))
    tensors = {"a": stored, "b": torch.ones(3), "c": torch.tensor(7)}
    body, packed = compact.pack({"masks": {"a": described}}, tensors)
    assert not [entry for entry in body["coded"].values() if "planes" in entry]
    # in the order of names: 32 entries, 3 x 4 bytes, 8 bytes
    assert len(packed) == 4 + 12 + 8 and packed[:4].equal(stored)


@pytest.fixture(scope="module")
def packed():
    """``body`` and bytes in the compact form: a mask of 3,600 entries, fp16 numbers, and 10 plain bytes."""
    described, stored = masked((60, 60), (0.5, 0.2), "signed")
    tensors = {
        "mask": stored,
        "numbers": numbers((60, 60), torch.float16, 0.1, 1),
        "plain": torch.ones(10, dtype=torch.uint8),
    }
    body, packed = compact.pack({"masks": {"mask": described}}, tensors)
    assert [name for name, entry in body["coded"].items() if "planes" in entry] == ["mask", "numbers"]
    return body, packed


def plane(name="mask", at=0, **fields):
    return lambda body: body["coded"][name]["planes"][at].update(fields)


def entry(name, **fields):
    return lambda body: body["coded"][name].update(fields)


def counts(change, name="mask", at=0):
    def changed(body):
        change(body["coded"][name]["planes"][at]["counts"])

    return changed


def test_a_plane_has_whole_words_of_32_bits():
    def is_possible(size):
        try:
            return bool(compact.Plane.from_json({"counts": [2700, 900], "bytes": size}, 3600, 2))
        except ValueError:
            return False

    possible = list(filter(is_possible, range(1000)))
    # 3,600 symbols of 0.811 bits are 365 bytes, and the coder's state is a few more.
    assert possible and 360 < possible[0] and possible[-1] < 400 and all(size % 4 == 0 for size in possible)


def larger(size):
    """Return a change that enlarges the mask, with counts to match."""

    def change(body):
        entry = body["coded"]["mask"]
        found = entry["planes"][0]["counts"]
        found[0] += size - sum(found)
        entry["shape"] = [size]

    return change


def moved(found):
    found[0], found[1] = found[0] + found[1] - 1, 1


def many_of_one_symbol(body):
    for i in range(3):
        body["coded"][f"more{i}"] = {"shape": [7_000_000], "bits": 1, "planes": [{"counts": [7_000_000], "bytes": 0}]}


OF_TYPE, OF_PLANES, OF_COUNTS = (
    "its dtype or its number of bits is invalid",
    r"a tensor of this dtype must have \d planes",
    r"its counts do not add up to [\d,]+ symbols, or do not fit its number of bytes",
)
HOSTILE = {
    "a huge mask": (larger(10**12), r"shape \[1000000000000\] is invalid, or too large for a file with [\d,]+ bytes of tensors"),
    "a mask a bit larger": (larger(4900), "its counts do not add up to 4,900 symbols"),
    "numbers of a huge shape": (entry("numbers", shape=[2**40, 2**40]), r"shape \[1099511627776, 1099511627776\] is invalid"),
    "half a row": (entry("numbers", shape=[0.5, 2]), r"shape \[0.5, 2\]"),
    "less than nothing": (entry("plain", shape=[-4]), r"shape \[-4\] is invalid"),
    "more than there is": (entry("plain", shape=[20]), r"shape \[[\d, ]+\] is too large for a file with [\d,]+ bytes of tensors"),
    "far more than there is": (entry("plain", shape=[30000]), r"shape \[30000\] is too large for a file with [\d,]+ bytes of tensors"),
    "wider numbers than there is room for": (entry("plain", dtype="float64"), r"shape \[[\d, ]+\] is too large for a file with "),
    "less than there is": (lambda body: body["coded"].pop("plain"), r"the sizes add up to [\d,]+ bytes, but the file has "),
    "another type": (entry("numbers", dtype="float32"), OF_PLANES),
    "no type": (entry("numbers", dtype=["float16"]), OF_TYPE),
    "two types": (entry("numbers", bits=2), OF_TYPE),
    "a mask of many bits": (entry("mask", bits=10**9), OF_TYPE),
    "a mask of half a bit": (entry("mask", bits=0.5), OF_TYPE),
    "no planes": (entry("mask", planes=[]), OF_PLANES),
    "planes of nothing": (entry("numbers", planes=None), OF_PLANES),
    "a mask without planes": (lambda body: body["coded"]["mask"].pop("planes"), OF_PLANES),
    "many planes": (entry("mask", planes=[None] * 10), OF_PLANES),
    "planes as they are": (entry("mask", planes=[None]), r"shape \[[\d, ]+\] is too large for a file with [\d,]+ bytes of tensors"),
    "planes of numbers": (entry("mask", planes=[3]), "its counts do not add up to 3,600 symbols"),
    "more counts": (counts(lambda c: c.append(1)), OF_COUNTS),
    "counts below nothing": (counts(lambda c: c.extend([-1, 1])), OF_COUNTS),
    "half a count": (counts(lambda c: c.extend([0.5, 0.5])), OF_COUNTS),
    "more symbols than bits": (counts(lambda c: c.extend([0] * 50 + [1])), OF_COUNTS),
    "counts of another table": (counts(moved), OF_COUNTS),
    "counts as text": (plane(counts="12"), OF_COUNTS),
    "fewer bytes": (plane(bytes=8), OF_COUNTS),
    "half a byte": (plane(bytes=100.5), OF_COUNTS),
    "all in one symbol": (plane(counts=[3600], bytes=0), r"the sizes add up to [\d,]+ bytes, but the file has "),
    "many masks of one symbol": (many_of_one_symbol, r"shape \[7000000\] is too large for a file with [\d,]+ bytes of tensors"),
    "an entry that is none": (lambda body: body["coded"].update(mask=3), "shape None is invalid"),
    "two counts exchanged": (counts(lambda c: c.reverse()), "the bytes are not the code of symbols with these counts"),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_sizes_are_checked_before_decoding(what, packed, monkeypatch):
    body, payload = copy.deepcopy(packed)
    change, expected = HOSTILE[what]
    change(body)
    if "code" not in expected:
        monkeypatch.setattr(entropy_code, "decode", None)
        monkeypatch.setattr(compact, "_read", None)
    with pytest.raises(InputError, match=f"^x: the description of .* is not usable, because {expected}") as refusal:
        unpack(body, payload)
    assert "\n" not in str(refusal.value) and len(str(refusal.value)) < 300


@pytest.mark.parametrize(
    "part", [{}, {"coded": 3}, {"coded": {}}, {"coded": {"a": {}}}, {"coded": None, "masks": 3}], ids=str
)
def test_a_file_of_right_hash_without_its_parts(part, packed, tmp_path, monkeypatch):
    """A malicious file with a right hash is refused in one line."""
    path = tmp_path / "a.safetensors"
    with monkeypatch.context() as patch:
        patch.setattr(compact, "pack", lambda body, tensors: ({**body, **part}, packed[1]))
        patch.setattr(packed_file, "read", lambda path: ({}, {}))
        packed_file.write(path, {"masks": {}}, {}, compact=True)
    with pytest.raises(InputError, match=f"^{path}: ") as refusal:
        read_state_dict(path)
    assert "\n" not in str(refusal.value) and "altered" not in str(refusal.value)


def test_every_coded_word_counts(packed):
    """A changed bit is detected even without the file's hash."""
    body, payload = packed
    for at in range(0, body["coded"]["mask"]["planes"][0]["bytes"], 50):
        changed = payload.clone()
        changed[at] ^= 16
        with pytest.raises(
            InputError, match="^x: the description of mask is not usable, because the bytes are not the code of symbols"
        ):
            unpack(body, changed)


def test_without_the_package(packed, monkeypatch):
    monkeypatch.setitem(sys.modules, "constriction", None)
    with pytest.raises(
        InputError, match="^x: a compact export; reading it needs the package constriction, which is not"
    ):
        unpack(*packed)
