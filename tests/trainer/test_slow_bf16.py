"""One line before training on a processor that emulates bf16. The tests replace the capabilities that torch reports."""

import pytest
import torch

from fairseq_reservoir.trainer import likely_mistakes
from tests.support.commands import train

BEFORE = {"architecture": "x86_64", "avx2": True, "avx512_f": True, "avx512_bf16": False, "amx_bf16": False}
NATIVE = BEFORE | {"avx512_bf16": True}
ARM = {"architecture": "arm64", "neon": True, "bf16": True}


@pytest.mark.parametrize("capabilities, found", [
    (BEFORE, False), (NATIVE, True), (BEFORE | {"amx_bf16": True}, True), (ARM, True), (ARM | {"bf16": False}, False), ({}, None),
])  # fmt: skip
def test_processors_that_multiply_in_bf16(monkeypatch, capabilities, found):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    assert likely_mistakes.multiplies_in_bf16() is found


def test_torch_that_does_not_report_capabilities(monkeypatch):
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert likely_mistakes.multiplies_in_bf16() is None


def test_agrees_with_the_kernel():
    with open("/proc/cpuinfo") as info:
        features = next((line.split() for line in info if line.startswith(("flags", "Features"))), [])
    assert likely_mistakes.multiplies_in_bf16() in (
        None,
        bool({"avx512_bf16", "amx_bf16", "bf16", "svebf16"} & set(features)),
    )


PLAN = ("--reservoir-encoder", "LT", "--reservoir-decoder", "L")


@pytest.mark.parametrize("capabilities, flags, named", [
    (BEFORE, ["--bf16"], "--bf16: this processor has no bf16 multiplication"),
    (BEFORE, ["--memory-efficient-bf16"], "--memory-efficient-bf16: this"),
    (BEFORE, ["--frozen-dtype", "bf16"], "--frozen-dtype bf16: this"),
    (BEFORE, [], None),
    (NATIVE, ["--bf16"], None),
])  # fmt: skip
def test_one_line_before_training(toy_data, monkeypatch, caplog, capabilities, flags, named):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    caplog.set_level("INFO")
    train(toy_data, *PLAN, *flags, "--max-update", 1, "--no-save", "--disable-validation")
    texts = [record.getMessage() for record in caplog.records]
    positions = [i for i, text in enumerate(texts) if "bf16 multiplication" in text]
    assert len(positions) == (named is not None)
    if named:
        assert (
            texts[positions[0]].startswith(named)
            and texts[positions[0]].endswith("remove the flag on this machine")
            and "\n" not in texts[positions[0]]
        )
        assert positions[0] < next(i for i, text in enumerate(texts) if text.startswith("begin training epoch"))
