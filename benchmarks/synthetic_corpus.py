"""Binarised corpora of random tokens with given sentence lengths."""

import numpy as np
import torch
from fairseq.data import Dictionary, indexed_dataset


def wmt_lengths(sentences, seed, median=24, longest=250):
    """Lengths of sentence pairs, distributed approximately as in WMT14 English-German with 32,000 shared pieces.

    The source is log-normal with a standard deviation of 0.6 of the logarithm: on average 29 tokens, and 1 of 100 sentences has more
    than 97. The logarithm of the ratio of target and source has a standard deviation of 0.15.

    Returns:
        (2, sentences): lengths of source and target without the end of sentence, from 1 to ``longest``.
    """
    draw = np.random.default_rng(seed)
    source = np.log(median) + 0.6 * draw.standard_normal(sentences)
    target = source + 0.15 * draw.standard_normal(sentences)
    return np.exp([source, target]).round().clip(1, longest).astype(int)


def write(folder, lengths, words, seed):
    """Write the training data of a translation from "en" to "de" to a folder, as fairseq-preprocess does.

    Args:
        folder: a pathlib.Path, created if missing.
        lengths: (2, sentences), lengths of source and target without the end of sentence.
        words: size of the joint dictionary, including four special symbols.
        seed: seed of the tokens. Their probabilities are proportional to 1 / (rank + 10), similar to words.
    """
    dictionary = Dictionary()
    for i in range(words - dictionary.nspecial):
        dictionary.add_symbol(f"word{i}")
    folder.mkdir(parents=True, exist_ok=True)
    draw, first = np.random.default_rng(seed), dictionary.nspecial
    weights = 1 / (np.arange(words - first) + 10)
    for language, counts in zip(("en", "de"), lengths, strict=True):
        dictionary.save(str(folder / f"dict.{language}.txt"))
        prefix = str(folder / f"train.en-de.{language}")
        builder = indexed_dataset.make_builder(f"{prefix}.bin", "mmap", vocab_size=words)
        tokens = first + draw.choice(len(weights), size=counts.sum(), p=weights / weights.sum())
        for sentence in np.split(tokens, np.cumsum(counts)[:-1]):
            builder.add_item(torch.from_numpy(np.append(sentence, dictionary.eos())))
        builder.finalize(f"{prefix}.idx")
