"""benchmarks/export_sizes.py with a tiny model."""

import pytest

from benchmarks import export_sizes

pytest.importorskip("constriction", reason="constriction is not installed: pip install constriction")


def test_a_run(tmp_path):
    shape = "--encoder-embed-dim 64 --encoder-ffn-embed-dim 64 --encoder-layers 2 --decoder-layers 1"
    arms = [
        f"0.3: --arch supermask_one_layer_transformer --mask-keep-ratio 0.3 {shape}",
        "none: --arch reservoir_transformer_tiny",
    ]
    words = [word for arm in arms for word in ("--arm", arm)]
    masks, numbers = export_sizes.main([*words, "--words", 500, "--output", tmp_path / "out"])["arms"]
    # 0.3 log2(1/0.3) + 0.7 log2(1/0.7)
    assert masks["masks"] == pytest.approx(0.8813, abs=1e-3) and numbers["masks"] is None
    for found in (masks, numbers):
        assert found["entropy"] < found["compact"] < found["plain"]
        # vectors of 64 numbers are stored uncompressed, although few numbers seem to have less entropy
        assert found["compact"] - found["description"] <= 1.1 * found["entropy"]
    assert "| 0.3 | 0.88" in (tmp_path / "out.md").read_text()
