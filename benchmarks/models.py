"""Models for benchmarks, built from flags as in fairseq-train, and batches of random tokens."""

import argparse
import logging
import re
import shlex
import warnings

import torch

logging.getLogger("fairseq.tasks.text_to_speech").disabled = True  # "Please install tensorboardX"
from fairseq import benchmark, options, tasks, utils  # noqa: E402, F401  (benchmark registers the task dummy_mt)
from fairseq.dataclass.utils import convert_namespace_to_omegaconf  # noqa: E402

from benchmarks.pairs import ROOT  # noqa: E402

TRAINING = "--dropout 0.1 --optimizer adam --lr 1e-3 --lr-scheduler inverse_sqrt --warmup-updates 800 --clip-norm 1.0"
COMMON = (
    f"--task dummy_mt --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --share-all-embeddings {TRAINING}"
)
MASKED = f"--task dummy_masked_lm --criterion masked_lm {TRAINING}"
LANGUAGE_MODEL = f"--task dummy_lm --criterion cross_entropy {TRAINING}"
MASKED_SHARE = 0.15


def import_plugin(threads=None):
    """Import the plugin like --user-dir, without its log lines and warnings, and set torch's number of threads if given."""
    if threads:
        torch.set_num_threads(threads)
    warnings.filterwarnings("ignore")
    logging.disable(logging.INFO)
    utils.import_user_module(argparse.Namespace(user_dir=str(ROOT / "fairseq_reservoir")))


def build(flags, shape):
    """Build configuration, task and model from ``flags``.

    Args:
        flags: flags of fairseq-train, which override those of ``common_of``.
        shape: options of the command line: words, length, max_tokens, seed, device.
    """
    common, lengths = common_of(flags), f"--tokens-per-sample {shape.length}"
    if common == COMMON:
        lengths = f"--src-len {shape.length} --tgt-len {shape.length}"
    sizes = f"--dict-size {shape.words} {lengths} --max-tokens {shape.max_tokens}"
    words = shlex.split(f"{common} {sizes} --seed {shape.seed} {'--cpu' if shape.device == 'cpu' else ''} {flags}")
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), words))
    utils.set_torch_seed(cfg.common.seed)
    task = tasks.setup_task(cfg.task)
    return cfg, task, task.build_model(cfg.model)


def common_of(flags):
    """Return the flags that precede an arm's own: a RoBERTa trains as a masked language model, ``*_lm`` as a language model."""
    if "roberta" in flags:
        return MASKED
    return LANGUAGE_MODEL if is_language_model(flags) else COMMON


def is_language_model(flags):
    return re.search(r"--arch \S*_lm", flags) is not None


def sentences_of(shape):
    return max(1, shape.max_tokens // shape.length)


def random_batch(dictionary, shape):
    """Batch in the format of fairseq's collater, with as many random sentences of ``length`` tokens as fit into ``max_tokens``."""
    sentences, generator = sentences_of(shape), torch.Generator().manual_seed(shape.seed)
    source, target = torch.randint(
        dictionary.nspecial, len(dictionary), (2, sentences, shape.length), generator=generator
    )
    source[:, -1] = target[:, -1] = dictionary.eos()
    lengths = torch.full((sentences,), shape.length)
    net_input = {"src_tokens": source, "src_lengths": lengths, "prev_output_tokens": target.roll(1, dims=1)}
    return {"id": torch.arange(sentences), "net_input": net_input, "target": target,
            "nsentences": sentences, "ntokens": target.numel()}  # fmt: skip


def masked_batch(dictionary, shape):
    """Batch in the format of fairseq's masked_lm, of the sentences of ``random_batch``. A share of the tokens is to be predicted."""
    batch = random_batch(dictionary, shape)
    generator = torch.Generator().manual_seed(shape.seed)
    source = batch["net_input"]["src_tokens"]
    chosen = torch.rand(source.shape, generator=generator) < MASKED_SHARE
    chosen[:, 0] = True
    target = source.masked_fill(~chosen, dictionary.pad())
    net_input = {
        "src_tokens": source.masked_fill(chosen, dictionary.unk()),
        "src_lengths": batch["net_input"]["src_lengths"],
    }
    return {**batch, "net_input": net_input, "target": target}


def language_model_batch(dictionary, shape):
    """Batch in the format of fairseq's language_modeling, of the target sentences of ``random_batch``. Each token predicts the next."""
    batch = random_batch(dictionary, shape)
    net_input = {
        "src_tokens": batch["net_input"]["prev_output_tokens"],
        "src_lengths": batch["net_input"]["src_lengths"],
    }
    return {**batch, "net_input": net_input}


# By the flags of ``common_of``.
BATCHES = {COMMON: random_batch, MASKED: masked_batch, LANGUAGE_MODEL: language_model_batch}
