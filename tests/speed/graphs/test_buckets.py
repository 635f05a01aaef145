"""Buckets: hand-worked examples, the best partition of few shapes, real length distributions, and shapes of collated batches."""

import time
from argparse import Namespace

import numpy as np
import pytest
from fairseq.data import Dictionary, FairseqDataset, LanguagePairDataset, SortDataset, data_utils
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from fairseq.tasks.sentence_prediction import SentencePredictionConfig, SentencePredictionTask
from fairseq.tasks.translation import load_langpair_dataset

from fairseq_reservoir.speed.graphs.buckets import choose, padding, shapes_of, smallest, tokens


def partitions(items):
    """All ways to split a list into groups."""
    if not items:
        yield []
        return
    for groups in partitions(items[1:]):
        yield [[items[0]], *groups]
        for i in range(len(groups)):
            yield [*groups[:i], [items[0], *groups[i]], *groups[i + 1 :]]


def batches_of(sizes, most, multiple=8):
    """Shapes of fairseq's batches of sentence pairs with ``sizes`` (sentences, 2) and at most ``most`` tokens per side."""
    order = np.lexsort((sizes[:, 1], sizes[:, 0]))
    longest = sizes.max(axis=1).astype(np.int64)
    batches = data_utils.batch_by_size(order, None, longest[order], most, None, multiple)
    return np.array([[len(batch), *sizes[batch].max(axis=0)] for batch in batches])


def like_iwslt(sentences, mean, longest, seed=1):
    """Log-normal lengths of sentence pairs, with a correlation of 0.96 between the sides."""
    draw = np.random.default_rng(seed)
    common = draw.normal(np.log(mean) - 0.3, 0.7, (sentences, 1))
    return np.clip(np.rint(np.exp(common + draw.normal(0, 0.11, (sentences, 2)))), 2, longest).astype(int)


class TestChoose:
    def test_by_hand(self):
        """Three shapes with 40, 48 and 480 tokens. Merging the first two adds 8, any other pair more than 300."""
        shapes = np.array([[4, 5, 5], [4, 6, 6], [8, 30, 30], [4, 5, 5]])
        assert choose(shapes, 2, multiple=1).tolist() == [[4, 6, 6], [8, 30, 30]]
        assert choose(shapes, 3, multiple=1).tolist() == [[4, 5, 5], [4, 6, 6], [8, 30, 30]]
        assert choose(shapes, 1, multiple=1).tolist() == [[8, 30, 30]]
        assert choose(shapes, 2, multiple=8).tolist() == [[4, 8, 8], [8, 32, 32]]

    def test_counts_decide(self):
        """One shape of 12 tokens joins the neighbour that occurs once instead of the one that occurs 100 times."""
        shapes = np.array([[1, 10], [1, 12], [1, 15]])
        assert choose(np.repeat(shapes, [100, 1, 1], axis=0), 2, multiple=1).tolist() == [[1, 10], [1, 15]]
        assert choose(np.repeat(shapes, [1, 1, 100], axis=0), 2, multiple=1).tolist() == [[1, 12], [1, 15]]

    def test_the_cheaper_pair_is_merged(self):
        """Merging the first two shapes adds 3 tokens, merging the first and the last adds 5."""
        shapes = np.array([[1, 10, 10], [1, 10, 13], [1, 15, 10]])
        assert choose(shapes, 2, multiple=1).tolist() == [[1, 10, 13], [1, 15, 10]]

    def test_shapes_move_to_cheaper_buckets(self):
        """Each bucket is the elementwise maximum of the batches for which it is the cheapest."""
        shapes = batches_of(like_iwslt(8000, 20, 80), 2048)
        buckets = choose(shapes, 12, multiple=1)
        chosen = np.array([smallest(buckets, shape) for shape in shapes])
        assert [shapes[chosen == i].max(axis=0).tolist() for i in range(len(buckets))] == buckets.tolist()

    @pytest.mark.parametrize("seed", range(8))
    def test_against_the_best_partition(self, seed):
        shapes = np.random.default_rng(seed).integers(1, 20, (7, 3))
        groups = [split for split in partitions(list(range(7))) if len(split) <= 3]
        best = min(sum(len(g) * tokens(shapes[g].max(axis=0)) for g in split) for split in groups)
        found = padding(shapes, choose(shapes, 3, multiple=1)) * tokens(shapes).sum()
        assert best * (1 - 1e-9) <= found <= 1.1 * best

    @pytest.mark.parametrize("multiple", [1, 2, 8])
    @pytest.mark.parametrize("limit", [1, 5, 40])
    def test_every_batch_fits(self, limit, multiple):
        shapes = batches_of(like_iwslt(20000, 25, 175), 4096)
        buckets = choose(shapes, limit, multiple)
        assert len(buckets) <= limit and not (buckets[:, 1:] % multiple).any()
        assert (shapes[:, None] <= buckets).all(axis=2).any(axis=1).all()
        assert (np.diff(tokens(buckets)) >= 0).all()
        assert choose(shapes[::-1], limit, multiple).tolist() == buckets.tolist()

    def test_no_batches(self):
        assert choose(np.zeros((0, 3), dtype=int)).shape == (0, 3)
        assert padding(np.zeros((0, 3), dtype=int), np.array([[1, 2, 3]])) == 1

    def test_no_buckets(self):
        with pytest.raises(ValueError, match="limit 0: must be at least 1"):
            choose(np.array([[1, 2, 3]]), 0)


@pytest.mark.parametrize("most", [4096, 8192])
def test_the_default_pads_at_most_15_percent(most):
    shapes = batches_of(like_iwslt(160000, 25, 175), most)
    buckets = choose(shapes)
    assert len(buckets) <= 40 and padding(shapes, buckets) <= 1.15


def test_an_epoch_of_wmt14():
    """35,000 batches with thousands of distinct shapes take at most 2 seconds."""
    shapes = batches_of(like_iwslt(400000, 30, 1024), 4096)
    shapes = np.concatenate([np.minimum(shapes + [0, i % 3, i // 3], 1360) for i in range(11)])
    start = time.process_time()
    buckets = choose(shapes)
    assert time.process_time() - start < 2
    assert len(shapes) > 30000 and padding(shapes, buckets) <= 1.2


def test_smallest():
    buckets = np.array([[8, 10, 10], [4, 12, 12], [8, 20, 20]])
    assert [smallest(buckets, shape) for shape in [(8, 10, 9), (4, 10, 10), (5, 12, 12), (4, 21, 2)]] == [0, 1, 2, None]
    assert smallest(np.array([[1, 2, 9], [1, 9, 3]]), (1, 2, 3)) == 0
    assert smallest(np.zeros((0, 3)), (1, 2, 3)) is None


def test_padding_by_hand():
    """Batches of 16, 16 and 18 tokens. The first two are padded to 20, and the last fits no bucket."""
    shapes, buckets = np.array([[2, 4, 4], [2, 4, 4], [3, 3, 3]]), np.array([[2, 5, 5]])
    assert padding(shapes, buckets) == pytest.approx(58 / 50)


def collated_shapes(dataset, batches):
    """Shapes of the batches that the data set collates."""
    found = []
    for batch in batches:
        inputs = dataset.collater([dataset[i] for i in batch])["net_input"]
        target = inputs.get("prev_output_tokens")
        found.append([*inputs["src_tokens"].shape, *([] if target is None else [target.shape[1]])])
    return found


def batches_in(dataset):
    return dataset.batch_by_size(dataset.ordered_indices(), max_tokens=40, required_batch_size_multiple=2)


@pytest.fixture(scope="module")
def words(toy_data):
    return Dictionary.load(str(toy_data / "dict.txt"))


def pairs(folder, words, combine=False, truncate_source=False, **flags):
    return load_langpair_dataset(
        str(folder), "train", "en", words, "de", words, combine, "mmap", 2, True, False, 4, 1024, truncate_source=truncate_source, **flags
    )  # fmt: skip


class TestShapesOf:
    @pytest.mark.parametrize(
        "flags", [{}, {"pad_to_multiple": 4}, {"prepend_bos": True}, {"append_source_id": True}, {"combine": True}]
    )
    def test_translation(self, make_corpus, words, flags):
        dataset = pairs(make_corpus(train=60, train1=30), words, **flags)
        assert len(dataset) == (150 if "combine" in flags else 60)
        batches = batches_in(dataset)
        assert shapes_of(dataset, batches).tolist() == collated_shapes(dataset, batches)

    def test_a_truncated_source_is_one_too_long_at_most(self, toy_data, words):
        dataset = pairs(toy_data, words, truncate_source=True)
        batches = batches_in(dataset)
        excess = shapes_of(dataset, batches) - collated_shapes(dataset, batches)
        assert set(excess[:, 1]) <= {0, 1} and not excess[:, [0, 2]].any()

    def test_a_source_alone(self, toy_data, words):
        both = pairs(toy_data, words)
        dataset = LanguagePairDataset(both.src, both.src_sizes, words)
        assert shapes_of(dataset, [[3, 1], [2]]).tolist() == collated_shapes(dataset, [[3, 1], [2]])

    @pytest.mark.parametrize("bos", [False, True])
    @pytest.mark.parametrize("targets", [["future"], ["past"]])
    @pytest.mark.parametrize("mode", ["none", "eos", "complete"])
    @pytest.mark.parametrize("fixed", [False, True])
    def test_language_modeling(self, toy_data, words, mode, targets, bos, fixed):
        args = Namespace(
            data=str(toy_data), tokens_per_sample=9, sample_break_mode=mode, add_bos_token=bos, pad_to_fixed_length=fixed,
            pad_to_fixed_bsz=fixed, batch_size=6, batch_size_valid=6, dataset_impl="mmap", shorten_method="none",
            shorten_data_split_list="", seed=1, use_plasma_view=False, plasma_path="",
        )  # fmt: skip
        task = LanguageModelingTask(args, words, targets=targets)
        task.load_dataset("train")
        dataset = task.datasets["train"]
        batches = batches_in(dataset)
        excess = shapes_of(dataset, batches) - collated_shapes(dataset, batches)
        assert not excess[:, 0].any()
        assert set(excess[:, 1]) <= ({0} if targets == ["future"] or mode == "none" else {0, 1})

    @pytest.mark.parametrize("method", ["none", "truncate", "random_crop"])
    @pytest.mark.parametrize("mode", ["none", "eos", "complete", "complete_doc"])
    def test_masked_lm(self, toy_data, mode, method):
        config = MaskedLMConfig(
            data=str(toy_data), tokens_per_sample=6, sample_break_mode=mode, shorten_method=method, seed=1
        )
        task = MaskedLMTask.setup_task(config)
        task.load_dataset("train")
        dataset = task.datasets["train"]
        batches = batches_in(dataset)
        assert shapes_of(dataset, batches).tolist() == collated_shapes(dataset, batches)

    @pytest.mark.parametrize("bos", [None, 0])
    def test_sentence_prediction(self, moods, bos):
        config = SentencePredictionConfig(
            data=str(moods), num_classes=2, init_token=bos, seed=1, max_positions=64, shorten_method="none", no_shuffle=False
        )  # fmt: skip
        task = SentencePredictionTask.setup_task(config)
        task.load_dataset("train")
        dataset = task.datasets["train"]
        batches = batches_in(dataset)
        assert shapes_of(dataset, batches).tolist() == collated_shapes(dataset, batches)

    def test_empty_batches(self, toy_data, words):
        dataset = pairs(toy_data, words)
        assert shapes_of(dataset, [[5], [], [1, 2]]).tolist() == collated_shapes(dataset, [[5], [1, 2]])
        assert shapes_of(dataset, ()).shape == (0, 3)

    def test_unknown_data_sets(self, toy_data, words):
        """A subclass may collate in another way."""

        class Other(LanguagePairDataset):
            def collater(self, samples, pad_to_length=None):
                return {}

        both = pairs(toy_data, words)
        assert shapes_of(FairseqDataset(), [[0]]) is None
        assert shapes_of(Other(both.src, both.src_sizes, words), [[0]]) is None
        assert shapes_of(SortDataset(both, [both.src_sizes]), [[0]]).tolist() == collated_shapes(both, [[0]])

    def test_35000_batches_take_less_than_a_second(self, toy_data, words):
        both = pairs(toy_data, words)
        lengths = np.random.default_rng(1).integers(1, 99, 35000 * 120)
        dataset = LanguagePairDataset(both.src, lengths, words)
        batches = tuple(np.arange(len(lengths)).reshape(35000, 120))
        start = time.process_time()
        found = shapes_of(dataset, batches)
        assert time.process_time() - start < 1
        assert found[:, 1].tolist() == lengths.reshape(35000, 120).max(axis=1).tolist()
