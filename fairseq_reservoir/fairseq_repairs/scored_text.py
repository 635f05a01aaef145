"""Repairs of samples that fairseq leaves out because they are too long: a score of a part of the data looks like one of all."""

import logging
import sys
from contextvars import ContextVar
from dataclasses import dataclass

from fairseq import checkpoint_utils, options
from fairseq.data import LMContextWindowDataset
from fairseq.tasks import FairseqTask

from ..errors import InputError
from .given import Given
from .repair import repair, wrap

logger = logging.getLogger(__name__)
_BLOCK, _CONTEXT, _SKIP = "--tokens-per-sample", "--context-window", "--skip-invalid-size-inputs-valid-test"


@dataclass(frozen=True)
class _Scoring:
    """Flags of the running ``fairseq-eval-lm``."""

    has_block: bool  # whether --tokens-per-sample is given
    context: int
    skips: bool
    max_tokens: int | None  # of a batch, which holds at least one block


# None in every other command.
_scoring: ContextVar[_Scoring | None] = ContextVar("_scoring", default=None)


@repair("scored-text")
def score_every_token() -> None:
    """Let ``fairseq-eval-lm`` score every token of a text, and let no command continue without samples.

    ``fairseq-eval-lm`` cuts the text into blocks of 1024 tokens unless ``--tokens-per-sample`` is given, and leaves out every
    block that is longer than the model's positions. It then prints the loss of the other blocks, or 0.0000, with status 0.
    Now the block size of the training is the default, and a block that is too long is refused. A training that leaves out
    every sample starts one empty epoch after the other.
    """
    wrap(options, "parse_args_and_arch", _read_flags)
    wrap(checkpoint_utils, "load_model_ensemble_and_task", _take_block_of_training)
    wrap(FairseqTask, "filter_indices_by_size", _refuse_to_leave_out)


def _read_flags(original, parser, input_args=None, *args, **kwargs):
    parsed = original(parser, input_args, *args, **kwargs)
    if _CONTEXT not in parser._option_string_actions:
        _scoring.set(None)
        return parsed
    flags = Given(parsed[0] if isinstance(parsed, tuple) else parsed)
    words = {word.split("=")[0] for word in (sys.argv[1:] if input_args is None else input_args)}
    context, block = flags.context_window or 0, flags.tokens_per_sample
    if context < 0:
        raise InputError(f"{_CONTEXT} {context}: must be at least 0")
    if _BLOCK in words and block is not None:
        _check_context(context, block)
    skips = bool(flags.skip_invalid_size_inputs_valid_test)
    _scoring.set(_Scoring(_BLOCK in words, context, skips, flags.max_tokens))
    return parsed


def _check_context(context, block):
    if 0 < block <= context:
        raise InputError(
            f"{_CONTEXT} {context}: must be less than {_BLOCK} {block}, which counts the tokens of the context and the scored ones"
        )


def _take_block_of_training(original, filenames, arg_overrides=None, task=None, *args, **kwargs):
    models, config, task = original(filenames, arg_overrides, task, *args, **kwargs)
    scoring, ours = _scoring.get(), getattr(task, "args", None)
    if scoring and not scoring.has_block and hasattr(ours, "tokens_per_sample"):
        trained = Given(config.task).tokens_per_sample
        if trained:
            trained = min(trained, scoring.max_tokens or trained)
            _check_context(scoring.context, trained)
            # As fairseq does with the value of the flag.
            ours.tokens_per_sample = trained - scoring.context
            logger.info("%s %d, as in the training of the model", _BLOCK, trained)
    return models, config, task


def _refuse_to_leave_out(original, task, indices, dataset, max_positions=None, ignore_invalid_inputs=False):
    kept = original(task, indices, dataset, max_positions, ignore_invalid_inputs)
    scoring = _scoring.get()
    if scoring:
        _refuse_part(scoring, task, dataset, indices, kept, max_positions)
    # fairseq-interactive may leave out the one line that it has just read.
    is_of_data = scoring or any(dataset is loaded for loaded in task.datasets.values())
    if is_of_data and len(indices) and not len(kept):
        raise InputError(
            f"all {len(indices):,} samples are longer than the {max_positions} tokens that --max-source-positions, "
            f"--max-target-positions or --max-positions allow, and none is left; of a text in blocks {_BLOCK} is their length"
        )
    return kept


def _refuse_part(scoring, task, dataset, indices, kept, positions):
    """Refuse blocks that are longer than the positions of the model, with the tokens before them that they see."""
    block = getattr(getattr(task, "args", None), "tokens_per_sample", 0) + scoring.context
    cure = f"give --sample-break-mode none {_BLOCK} {positions}"
    if len(kept) < len(indices) and not scoring.skips:
        left_out = set(indices.tolist()) - set(kept.tolist())
        tokens, of = (sum(dataset.num_tokens(i) for i in those) for those in (left_out, indices.tolist()))
        raise InputError(
            f"{_BLOCK} {block}: {len(left_out):,} of {len(indices):,} blocks, with {tokens:,} of {of:,} tokens, are longer than the "
            f"model's {positions} positions and would not be scored; {cure}, or leave them out by {_SKIP}"
        )
    is_number = isinstance(positions, (int, float))
    if isinstance(dataset, LMContextWindowDataset) and is_number and len(kept) > 1 and block > positions:
        raise InputError(
            f"{_BLOCK} {block}: blocks with their {_CONTEXT} {scoring.context} are longer than the model's {positions} positions; {cure}"
        )
