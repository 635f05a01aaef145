"""Probes of hand-made outputs, for which the accuracies are known."""

from types import SimpleNamespace

import numpy as np
import pytest

from fairseq_reservoir.studies.probe.classifier import intervals, probe, standardised
from fairseq_reservoir.studies.probe.properties import (
    TEST,
    TRAIN,
    VALID,
    Property,
    Tokens,
    control_labels,
    properties,
    split_sentences,
)
from fairseq_reservoir.studies.probe.results import short_names
from fairseq_reservoir.studies.probe.sample import choose_sentences, gather, tokens_of


def sentence(*tokens, copied=None):
    return SimpleNamespace(tokens=np.array(tokens), copied=copied)


def many_tokens(sentences=300, length=8, kinds=12, seed=1):
    """Random sentences of one length, whose entries 4, 5, ... are equally frequent."""
    draw = np.random.default_rng(seed)
    rows = [sentence(*draw.integers(4, 4 + kinds, length)) for _ in range(sentences)]
    return tokens_of(rows, [1] * (4 + kinds), 4, 10**6, seed=1)


def task_of(labels, control, tokens):
    counts = np.bincount(labels[tokens.part == TRAIN])
    return Property("p", "", labels, control, len(counts), 0.0)


def test_separable_classes_are_always_found_and_random_ones_as_often_as_by_chance():
    tokens = many_tokens()
    draw = np.random.default_rng(2)
    labels, control = draw.integers(0, 4, len(tokens)), draw.integers(0, 4, len(tokens))
    # A one-hot vector of the class, and noise. The control labels have nothing to do with either.
    outputs = np.hstack([np.eye(4)[labels], 0.01 * draw.normal(size=(len(tokens), 4))]).astype(np.float32)
    found = probe(outputs, tokens, task_of(labels, control, tokens), seed=1)
    assert (found.accuracy.value, found.accuracy.low, found.accuracy.high) == (1.0, 1.0, 1.0)
    # 480 test tokens: the standard error of 1/4 is 0.02
    assert abs(found.control.value - 0.25) < 0.08
    assert found.control.low < 0.25 < found.control.high
    assert found.selectivity.value == found.accuracy.value - found.control.value
    assert found.selectivity.low == pytest.approx(1 - found.control.high)


def test_outputs_without_information_give_the_majority():
    tokens = many_tokens(sentences=50)
    labels = (np.arange(len(tokens)) % 4 == 0).astype(int)  # three of four tokens have class 0
    found = probe(np.zeros((len(tokens), 3), np.float32), tokens, task_of(labels, labels, tokens), seed=1)
    test = tokens.part == TEST
    assert found.accuracy.value == found.control.value == (labels[test] == 0).mean() == 0.75


def test_a_single_class_in_the_control_task():
    """Few keys can all get the same class."""
    tokens = many_tokens(sentences=50)
    labels = np.arange(len(tokens)) % 2
    found = probe(np.zeros((len(tokens), 3), np.float32), tokens, task_of(labels, labels * 0, tokens), seed=1)
    assert found.control.value == 1.0


def test_outputs_are_standardised_by_the_training_tokens():
    train = np.array([True, True, False])
    outputs = np.array([[1.0, 5.0], [3.0, 5.0], [6.0, 7.0]])
    # means 2 and 5, deviations 1 and 0, which counts as 1
    assert standardised(outputs, train).tolist() == [[-1, 0], [1, 0], [4, 2]]


def test_intervals_are_over_sentences():
    """Of two sentences of 50 tokens, the probe finds all tokens of one: a resample has both, only that one, or only the other."""
    sentences = np.repeat([3, 8], 50)
    accuracy, control, difference = intervals(sentences, sentences == 3, np.zeros(100), seed=1)
    assert (accuracy.value, accuracy.low, accuracy.high) == (0.5, 0.0, 1.0)
    assert (control.value, control.low, control.high) == (0.0, 0.0, 0.0)
    assert (difference.value, difference.low, difference.high) == (0.5, 0.0, 1.0)


def test_intervals_by_a_slow_bootstrap():
    draw = np.random.default_rng(5)
    sentences, right = np.repeat(np.arange(40), 5), draw.random(200) < 0.7
    accuracy, *_ = intervals(sentences, right, right, seed=1)
    slow = []
    for _ in range(4000):
        drawn = draw.integers(0, 40, 40)
        slow.append(np.mean([right[sentences == number] for number in drawn]))
    assert accuracy.low == pytest.approx(np.quantile(slow, 0.025), abs=0.02)
    assert accuracy.high == pytest.approx(np.quantile(slow, 0.975), abs=0.02)


def test_parts_are_of_sentences():
    parts = split_sentences(100, seed=1)
    assert np.bincount(parts).tolist() == [60, 20, 20]
    assert not np.array_equal(parts, split_sentences(100, seed=2))
    tokens = many_tokens(sentences=40)
    for number in range(40):
        assert len({*tokens.part[tokens.sentence == number].tolist()}) == 1


def test_a_repeated_sentence_is_left_out():
    rows = [sentence(4, 5), sentence(4, 5), sentence(5, 4), sentence(4, 5, 6)]
    assert sorted(len(one.tokens) for one in choose_sentences(rows, 10, seed=1)) == [2, 2, 3]
    assert len(choose_sentences(rows, 2, seed=1)) == 2


def test_tokens_of_sentences():
    copied = np.array([True, False, False])
    rows = [sentence(7, 3, 9, copied=copied), sentence(9, 8, 7, copied=~copied)]
    counts = [0, 0, 0, 0, 0, 0, 0, 70, 80, 90]
    tokens = tokens_of(rows, counts, 4, 100, seed=1)  # entry 3 is a special symbol
    assert tokens.sentence.tolist() == [0, 0, 1, 1, 1]
    assert tokens.token.tolist() == [7, 9, 9, 8, 7]
    assert tokens.position.tolist() == [1, 3, 1, 2, 3]
    assert tokens.length.tolist() == [3] * 5
    assert tokens.frequency.tolist() == [70, 90, 90, 80, 70]
    assert tokens.copied.tolist() == [True, False, False, True, True]
    outputs = [(1, np.arange(6.0).reshape(1, 3, 2) + 10), (0, np.arange(6.0).reshape(1, 3, 2))]
    assert gather(outputs, tokens).tolist() == [[[0, 1], [4, 5], [10, 11], [12, 13], [14, 15]]]
    assert len(tokens_of(rows, counts, 4, 3, seed=1)) == 3


def tokens_with(**columns):
    """Ten sentences of two tokens. The first six are for training, then two for validation and two for tests."""
    part = np.repeat([TRAIN] * 6 + [VALID] * 2 + [TEST] * 2, 2)
    blank = {name: np.zeros(20, dtype=int) for name in ("token", "position", "length", "frequency")}
    return Tokens(**{**blank, "sentence": np.repeat(np.arange(10), 2), "copied": None, "part": part, **columns})


def test_classes_of_numbers_have_equal_shares_of_the_training_tokens():
    # The twelve training tokens have lengths 1 to 12, so quartiles end at 3, 6 and 9. Longer ones are in the last class.
    tokens = tokens_with(length=np.array([*range(1, 13), 3, 4, 6, 7, 9, 10, 50, 1]))
    (length,) = properties(tokens, seed=1)
    assert length.name == "length" and length.about.endswith("to 3, to 6, to 9, more") and length.classes == 4
    assert length.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 0, 1, 1, 2, 2, 3, 3, 0]
    assert length.majority == 0.25  # the first of equally frequent classes, which one of four test tokens has


def test_a_property_with_one_class_is_left_out():
    assert properties(tokens_with(), seed=1) == []
    always = tokens_with(copied=np.ones(20, dtype=bool))
    assert properties(always, seed=1) == []
    sometimes = tokens_with(copied=np.arange(20) % 2 == 0)
    assert [one.name for one in properties(sometimes, seed=1)] == ["copied"]


def test_the_control_task_has_a_class_for_each_key_and_the_shares_of_the_property():
    draw = np.random.default_rng(3)
    key = draw.integers(0, 500, 5000)
    labels = np.where(draw.random(5000) < 0.2, 1, 0)
    labels[:7] = -1
    train = np.arange(5000) < 4000
    control = control_labels(labels, key, train, np.random.default_rng(1))
    assert (control[:7] == -1).all() and (control[7:] >= 0).all()
    for one in range(500):
        assert len({*control[7:][key[7:] == one].tolist()}) <= 1
    # The property has class 1 for 20 % of the tokens. A key has 10 tokens, so the control task differs by 0.2 % at most.
    assert abs((control[7:4000] == 1).mean() - (labels[7:4000] == 1).mean()) < 0.003
    assert not np.array_equal(control, control_labels(labels, key, train, np.random.default_rng(2)))


def test_a_frequent_key_is_in_a_class_alone():
    """Half of the tokens have one key, and the property has two classes of equal size."""
    key = np.array([0] * 50 + list(range(1, 51)))
    for seed in range(9):
        control = control_labels(np.arange(100) % 2, key, np.ones(100, bool), np.random.default_rng(seed))
        assert 26 <= np.bincount(control).min() <= 50, seed


@pytest.mark.parametrize(
    "paths, names",
    [
        (["runs/a/best.pt", "runs/b/best.pt"], ["a", "b"]),
        (["best.pt", "last.pt"], ["best.pt", "last.pt"]),
        (["runs/a/best.pt", "runs/a/last.pt"], ["best.pt", "last.pt"]),
        (["a/b", "a/b/c"], ["b", "b/c"]),
        (["x/runs/a/best.pt"], ["a/best.pt"]),
        (["a.pt", "a.pt"], ["a.pt", "a.pt"]),
        (["./a/b.pt", "a/b.pt"], ["a/b.pt", "a/b.pt"]),
    ],
)
def test_short_names(paths, names):
    assert short_names(paths) == names
