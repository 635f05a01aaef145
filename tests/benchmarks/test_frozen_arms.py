"""benchmarks/frozen_arms.py: its arms, its arithmetic by hand, and one run with tiny models."""

import json

import pytest

from benchmarks import frozen_arms


def test_predicted_by_hand():
    # Products take 40 % of a step. With 3/4 of the FLOPs they take 30 %, and the other 60 % are unchanged.
    assert frozen_arms.predicted(0.75, 0.4) == pytest.approx(0.9)


def test_reached_by_hand():
    found = [
        {"arm": "T, a third", "ratio": 0.92, "predicted": 0.9},
        {"arm": "T, a half", "ratio": 0.84, "predicted": 0.8},
    ]
    expected = [
        "`T, a third` saves 0.080 of the time. This is 0.80 of the predicted saving, 0.100.",
        "`T, a half` saves 0.160 of the time. This is 0.80 of the predicted saving, 0.200.",
    ]
    assert frozen_arms.reached([{"arm": "plain"}, *found, {"arm": "F, a half"}]) == expected


def test_plans_are_a_third_and_a_half():
    arms = dict(frozen_arms.arms_of("512/1024"))
    plans = {
        name: flags.split("--reservoir-encoder ")[1].split()[0]
        for name, flags in arms.items()
        if "reservoir-encoder" in flags
    }
    assert (plans["T, a third"], plans["f, a half"], plans["plain, fast"]) == ("LTLTLL", "fLfLfL", "6L")
    assert all("--encoder-embed-dim 512 --encoder-ffn-embed-dim 1024" in flags for flags in arms.values())


@pytest.mark.slow
def test_a_run_on_a_tiny_shape(tmp_path, monkeypatch, capsys):
    tiny = "--encoder-embed-dim 8 --encoder-ffn-embed-dim 12 --encoder-attention-heads 2 --decoder-attention-heads 2"
    monkeypatch.setitem(frozen_arms.SIZES, "256/1024", tiny)
    shape = "--size 256/1024 --pairs 2 --warm-up 0 --profile-steps 1 --max-tokens 20 --length 5 --words 20 --threads 1"
    written = tmp_path / "arms"
    frozen_arms.main([*shape.split(), "--output", str(written), "--figure", f"{written}.pdf"])
    found = json.loads(written.with_suffix(".json").read_text())["sizes"]["256/1024"]
    arms = {arm["arm"]: arm for arm in found["arms"]}
    assert len(arms) == 3 + 2 * (3 + 4) and 0 < found["matrix_products"] < 1
    # Each T saves its weight gradients: 2 FLOPs x 20 tokens x (4 attention matrices of 8 x 8, two of 8 x 12).
    saved = 2 * 20 * (4 * 8 * 8 + 2 * 8 * 12)
    assert [arms["plain"]["flops"] - arms[f"T, a {share}"]["flops"] for share in ("third", "half")] == [
        2 * saved,
        3 * saved,
    ]
    # Backskipping replaces both backward products of a reservoir by one of 8 x 8 in the estimator.
    assert arms["T, a half, backskip"]["flops"] < arms["T, a half"]["flops"]
    # The three frozen layers lack two moments of 4 bytes per parameter.
    frozen = 3 * (4 * (8 * 8 + 8) + 2 * 8 * 12 + 12 + 8 + 2 * 16)
    assert arms["plain"]["peak_mib"] - arms["T, a half"]["peak_mib"] >= 8 * frozen / 2**20
    assert arms["plain, bf16"]["flops"] == arms["plain"]["flops"] == arms["plain, fast"]["flops"]
    assert capsys.readouterr().out == written.with_suffix(".md").read_text()
    assert written.with_suffix(".pdf").read_bytes().startswith(b"%PDF")
