"""``GraphedGenerator`` against fairseq's ``SequenceGenerator`` on a CPU in float32, with steps that run without graphs."""

import pytest

from tests.support.beam_searches import assert_same, batch, generators, model, use_on_cpu


@pytest.fixture(autouse=True)
def _on_cpu(monkeypatch):
    use_on_cpu(monkeypatch)


@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize("seed", range(6))
def test_same_hypotheses(seed, beam, caplog):
    theirs, ours = generators(model(seed), beam, max_len_a=1, max_len_b=seed % 3 * 10)
    lengths = [[5, 2, 9], [7], [3, 3, 12, 1, 6, 20, 2]][seed % 3]
    for number in range(2):
        given = batch(lengths, seed=number)
        assert_same(ours.generate([], given), theirs.generate([], given))
    assert "fairseq's own" not in caplog.text
