"""Repairs for samples that are longer than the model accepts: report them in one line, and score every token of a text.

fairseq omits long samples. Users may then mistake the score of the remaining samples for the score of all data.
"""

import logging
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np
from fairseq import utils
from fairseq.data import LanguagePairDataset, LMContextWindowDataset
from fairseq.tasks import FairseqTask

from ..errors import InputError
from .error_report import fairseq_command
from .given import Given, names_in
from .interactive import current_session
from .repair import repair, wrap

logger = logging.getLogger(__name__)
_BLOCK, _CONTEXT, _SKIP = "--tokens-per-sample", "--context-window", "--skip-invalid-size-inputs-valid-test"
_SIDES = ("source", "target")


@dataclass(frozen=True)
class _Scoring:
    """Flags of the running ``fairseq-eval-lm``."""

    has_block: bool  # whether --tokens-per-sample is given
    context: int  # --context-window
    skips: bool  # --skip-invalid-size-inputs-valid-test
    max_tokens: int | None  # limit of a batch, and so of a block


# None in every other command.
_scoring: ContextVar[_Scoring | None] = ContextVar("_scoring", default=None)


@repair("scored-text")
def score_every_token() -> None:
    """Score every token of a text in ``fairseq-eval-lm``, and stop a command that has omitted all samples.

    fairseq splits the text into blocks of ``--tokens-per-sample`` tokens (default 1024), and omits every block with more tokens than the
    model has positions. It then prints the loss of the remaining blocks, or 0.0000 if none remains, and ends with status 0. With this
    repair, the default of ``--tokens-per-sample`` is the block size with which the model was trained, and blocks that are too long for the
    model are refused. A training that omits all samples is also stopped, because it would run through empty epochs. ``trainer`` calls
    ``read_flags`` and ``use_block_of_training``.
    """
    wrap(FairseqTask, "filter_indices_by_size", filter_indices_by_size)


@repair("long-sentences")
def name_long_sentences():
    """Report, in one line, sentences that are too long for a model (fairseq #257).

    fairseq raises an exception with the number of one sentence. A training raises it only after the first epoch, and
    ``fairseq-interactive`` raises it in the middle of a session. With this repair, a training checks its validation data when it starts.
    ``fairseq-interactive`` skips long lines with a warning, translates all other lines, and ends with an error that lists the numbers of
    the skipped lines. With ``--skip-invalid-size-inputs-valid-test`` it ends without an error, as in fairseq. Long training sentences are
    omitted with a warning, as in fairseq. ``ReservoirTrainer`` calls ``check_validation``.
    """
    wrap(FairseqTask, "filter_indices_by_size", filter_indices_by_size)


def filter_indices_by_size(original, task, indices, dataset, max_positions=None, ignore_invalid_inputs=False):
    """Hook for both repairs above. fairseq's function omits long samples or raises an exception."""
    if name_long_sentences.is_applied:
        session = current_session()
        if session is not None and _name(task, dataset) is None:
            return _leave_out_lines(session, indices, dataset, max_positions, ignore_invalid_inputs)
        if not ignore_invalid_inputs:
            return _refuse_long_sentences(task, indices, dataset, max_positions)
    kept = original(task, indices, dataset, max_positions, ignore_invalid_inputs)
    if score_every_token.is_applied:
        _refuse_to_leave_out(task, indices, dataset, kept, max_positions)
    return kept


def read_flags(parser, flags, words) -> None:
    """Store the flags of ``fairseq-eval-lm`` for ``filter_indices_by_size``.

    Raises:
        InputError: ``--context-window`` is negative, or so large that no token of a block is scored.
    """
    if not score_every_token.is_applied:
        return
    if _CONTEXT not in parser._option_string_actions:
        _scoring.set(None)
        return
    given = names_in(words)
    read = Given(flags)
    context, block = read.context_window or 0, read.tokens_per_sample
    if context < 0:
        raise InputError(f"{_CONTEXT} {context}: must be at least 0")
    if _BLOCK in given and block is not None:
        _check_context(context, block)
    skips = bool(read.skip_invalid_size_inputs_valid_test)
    _scoring.set(_Scoring(_BLOCK in given, context, skips, read.max_tokens))


def _check_context(context, block):
    if 0 < block <= context:
        raise InputError(
            f"{_CONTEXT} {context}: must be less than {_BLOCK} {block}, which counts both the context and the scored tokens"
        )


def use_block_of_training(config, task) -> None:
    """If ``--tokens-per-sample`` is not given, let ``fairseq-eval-lm`` use the block size with which the model was trained."""
    scoring, options = _scoring.get(), getattr(task, "args", None)
    if scoring and not scoring.has_block and options is not None and hasattr(options, "tokens_per_sample"):
        trained = Given(config.task).tokens_per_sample
        if trained:
            trained = min(trained, scoring.max_tokens or trained)
            _check_context(scoring.context, trained)
            # fairseq subtracts the context from the value of the flag too.
            options.tokens_per_sample = trained - scoring.context
            logger.info("%s %d, as in the training of the model", _BLOCK, trained)


def _refuse_to_leave_out(task, indices, dataset, kept, max_positions):
    scoring = _scoring.get()
    if scoring:
        _refuse_part(scoring, task, dataset, indices, kept, max_positions)
    # fairseq-interactive may omit the only line that it has just read.
    is_of_data = scoring or any(dataset is loaded for loaded in task.datasets.values())
    if is_of_data and len(indices) and not len(kept):
        raise InputError(
            f"all {len(indices):,} samples are longer than the limit of {max_positions} tokens; raise it with --max-source-positions, "
            f"--max-target-positions or --max-positions, or shorten text blocks with {_BLOCK}"
        )


def _refuse_part(scoring, task, dataset, indices, kept, positions):
    """Refuse the data if a block with its context has more tokens than the model has positions."""
    block = getattr(getattr(task, "args", None), "tokens_per_sample", 0) + scoring.context
    cure = f"give --sample-break-mode none {_BLOCK} {positions}"
    if len(kept) < len(indices) and not scoring.skips:
        left_out = set(indices.tolist()) - set(kept.tolist())
        tokens, of = (sum(dataset.num_tokens(i) for i in those) for those in (left_out, indices.tolist()))
        raise InputError(
            f"{_BLOCK} {block}: {len(left_out):,} of {len(indices):,} blocks, with {tokens:,} of {of:,} tokens, are longer than the "
            f"model's {positions} positions, so the model cannot score them; {cure}, or give {_SKIP} to score only the other blocks"
        )
    is_number = isinstance(positions, (int, float))
    if isinstance(dataset, LMContextWindowDataset) and is_number and len(kept) > 1 and block > positions:
        raise InputError(
            f"{_BLOCK} {block}: blocks including {_CONTEXT} {scoring.context} are longer than the model's {positions} positions; {cure}"
        )


def check_validation(trainer) -> None:
    """Refuse validation data with sentences that are too long, before the first update of a training.

    Raises:
        InputError: a sentence is too long, and no flag omits it.
    """
    task = trainer.task
    if not name_long_sentences.is_applied or trainer.cfg.dataset.skip_invalid_size_inputs_valid_test:
        return
    limits = utils.resolve_max_positions(task.max_positions(), trainer.get_model().max_positions())
    for split, dataset in task.datasets.items():
        if type(dataset) is LanguagePairDataset and split != trainer.cfg.dataset.train_subset:
            task.filter_indices_by_size(np.arange(len(dataset)), dataset, limits)


def _refuse_long_sentences(task, indices, dataset, max_positions):
    kept, left_out = dataset.filter_indices_by_size(indices, max_positions)
    if len(left_out):
        count = f"{len(left_out):,} of {len(indices):,} sentences"
        lengths = _too_long(dataset, left_out, max_positions)
        raise InputError(f"{_split(task, dataset)}: {count} are too long: the longest {lengths}; {_SKIP} omits them")
    return kept


def _leave_out_lines(session, indices, dataset, max_positions, quietly):
    kept, left_out = dataset.filter_indices_by_size(indices, max_positions)
    for index in sorted(left_out):
        number = session.first + int(index)
        lengths = _too_long(dataset, [index], max_positions)
        logger.warning("line %d is not translated, because it %s", number, lengths)
        if not quietly:
            session.left_out.append(number)
    return kept


def _too_long(dataset, left_out, limits):
    """Describe the longest sample, as in ``has 9 source tokens including ..., but the model accepts 5 (--max-source-positions)``."""
    sizes = [dataset.size(index) for index in left_out]
    if isinstance(limits, dict):
        return f"has {sizes[0]} tokens, but the model accepts {limits}"
    if not isinstance(limits, (tuple, list)):
        return f"has {max(np.max(size) for size in sizes):,} tokens, but the model accepts {limits:,}"
    found = []
    for side, limit, lengths in zip(_SIDES, limits, zip(*(np.broadcast_to(size, len(limits)) for size in sizes))):
        if limit is not None and max(lengths) > limit:
            end = "" if found else " including the end of the sentence"
            found.append(
                f"{max(lengths):,} {side} tokens{end}, but the model accepts {limit:,} (--max-{side}-positions)"
            )
    return "has " + "; ".join(found)


def _split(task, dataset):
    name = _name(task, dataset)
    if name is None:
        return "DATA"
    if fairseq_command() in ("fairseq-generate", "fairseq-eval-lm"):
        return f"--gen-subset {name}"
    return f"--valid-subset {name}"


def _name(task, dataset):
    """Return the name of the split that a data set belongs to, or None."""
    return next((name for name, of_split in task.datasets.items() if of_split is dataset), None)
