"""``--fast``: train the same model with fewer passes over memory, and log which components of the training are replaced."""

import logging

from fairseq.criterions import CRITERION_REGISTRY
from fairseq.modules import MultiheadAttention
from fairseq.modules.fairseq_dropout import FairseqDropout

from ..layers.fast_dropout import use_fast_dropout
from ..options.fairseq_flags import choice_of
from ..options.reading import read
from ..options.speed_options import FastOptions
from . import matmul_precision
from .fast_attention import is_usual, use_fast_attention
from .fast_loss import reads_only_logits, unsupported_reason, use_fast_loss
from .fast_masked_lm import use_fast_masked_lm

logger = logging.getLogger(__name__)


def is_enabled(cfg) -> bool:
    """Whether ``--fast`` is given. ``cfg`` is grouped (``cfg.model``, ``cfg.task``, ...) or flat, like parsed command-line flags."""
    return read(FastOptions, _group(cfg, "model")).fast


def start(cfg, model, criterion):
    """Prepare a model for a training with ``--fast``. Return the criterion for the training. Without ``--fast``, change nothing."""
    if not is_enabled(cfg):
        return criterion
    optimizer = choice_of(cfg.optimizer)
    logger.info("--fast:\n%s", describe(model, type(criterion), criterion, optimizer, cfg))
    return use(model, criterion)


def use(model, criterion):
    """Replace dropout, attention and loss of a model where ``--fast`` supports them. Return the criterion for the training."""
    use_fast_dropout(model)
    use_fast_attention(model, weights_unread=reads_only_logits(type(criterion)))
    if unsupported_reason(model, type(criterion), criterion):
        return use_fast_masked_lm(model, criterion)
    return use_fast_loss(model, criterion)


def describe(model, criterion: type, options, optimizer: str | None, cfg) -> str:
    """List the components of a training that ``--fast`` can replace, one per line: "on", or "off" with the reason.

    Args:
        criterion: the class of the criterion.
        options: an object with the criterion's options as attributes.
        optimizer: the name of the optimizer.
        cfg: the configuration, grouped or flat.
    """
    drops = sum(isinstance(module, FairseqDropout) and module.p > 0 for module in model.modules())
    attentions = [module for module in model.modules() if isinstance(module, MultiheadAttention)]
    usual = sum(map(is_usual, attentions))
    loss = unsupported_reason(model, criterion, options)
    products, half = matmul_precision.unsupported_reason(model, _group(cfg, "common")), _half(cfg)
    adam = "on, Adam in one pass"
    if optimizer not in ("adam", "freeze_skip", "freeze_skip_adam"):
        adam = "off: only for --optimizer adam"
    elif half:
        adam = f"off: {half} keeps no weights in float32"
    lines = {
        "dropout": f"on, {drops} places" if drops else "off: the model has no dropout",
        "attention": f"on, {usual} of {len(attentions)}"
        if usual
        else "off: the model does not use fairseq's attention",
        "loss": f"off: {loss}" if loss else "on; on a CPU, padding is not projected to the vocabulary",
        "optimizer": adam,
        "products": f"off: {products}"
        if products
        else "the faster of torch's and oneDNN's, measured at the start; "
        "oneDNN's saved 0.3 of stock fairseq's time on an AMD EPYC with AVX-512",
    }
    return "\n".join(f"  {name:<10} {state}" for name, state in lines.items())


def describe_for_plan(model, args, cfg) -> str:
    """Call ``describe`` for a model built without data. Return "" if ``--fast`` is not given."""
    if not is_enabled(args):
        return ""
    return "--fast:\n" + describe(model, CRITERION_REGISTRY[args.criterion], args, args.optimizer, args)


def _half(cfg):
    """Return ``--memory-efficient-fp16`` or ``--memory-efficient-bf16`` if it is given, else "". ``cfg`` is grouped or flat."""
    common = _group(cfg, "common")
    if common.memory_efficient_fp16:
        return "--memory-efficient-fp16"
    return "--memory-efficient-bf16" if common.memory_efficient_bf16 else ""


def _group(cfg, name):
    """Return a group of a configuration. If ``cfg`` is flat, return ``cfg``, because it contains the options of all groups."""
    return getattr(cfg, name, None) or cfg
