"""``--fast``: lets fairseq's trainer train the same model with fewer passes, and says with which."""

import logging

from fairseq.criterions import CRITERION_REGISTRY
from fairseq.modules import MultiheadAttention
from fairseq.modules.fairseq_dropout import FairseqDropout

from ..layers.fast_dropout import use_fast_dropout
from ..options.fairseq_flags import choice_of
from ..options.fast_options import FastOptions
from ..options.reading import read
from .fast_attention import is_usual, use_fast_attention
from .fast_loss import reads_only_logits, use_fast_loss, why_not

logger = logging.getLogger(__name__)


def asked(cfg) -> bool:
    """Whether a configuration asks for it; ``cfg`` may be flat."""
    return read(FastOptions, _group(cfg, "model")).fast


def start(cfg, model, criterion):
    """Prepare a model for training if ``--fast`` is given, and return the criterion to train it with."""
    if not asked(cfg):
        return criterion
    optimizer = choice_of(cfg.optimizer)
    logger.info("--fast:\n%s", parts(model, type(criterion), criterion, optimizer, _half(cfg)))
    return use(model, criterion)


def use(model, criterion):
    """Replace parts of a model in training as ``parts`` lists them, and return the criterion to train it with."""
    use_fast_dropout(model)
    use_fast_attention(model, weights_unread=reads_only_logits(type(criterion)))
    return criterion if why_not(model, type(criterion), criterion) else use_fast_loss(model, criterion)


def parts(model, criterion: type, options, optimizer: str | None, half: str = "") -> str:
    """What ``--fast`` does for a model, and where it does not apply, a line each.

    Args:
        criterion: its class.
        options: those of the criterion, as attributes.
        optimizer: its name.
        half: the flag, if there is one, with which it holds its weights in half precision.
    """
    drops = sum(isinstance(module, FairseqDropout) and module.p > 0 for module in model.modules())
    attentions = [module for module in model.modules() if isinstance(module, MultiheadAttention)]
    usual = sum(map(is_usual, attentions))
    loss = why_not(model, criterion, options)
    adam = "on, Adam in one pass"
    if optimizer not in ("adam", "freeze_skip", "freeze_skip_adam"):
        adam = "off: it is for --optimizer adam"
    elif half:
        adam = f"off: {half} keeps no weights in float32"
    lines = {
        "dropout": f"on, {drops} places" if drops else "off: there is none",
        "attention": f"on, {usual} of {len(attentions)}" if usual else "off: there is none that is fairseq's usual one",
        "loss": f"off: {loss}" if loss else "on; on a CPU only words that count are projected to the vocabulary",
        "optimizer": adam,
    }
    return "\n".join(f"  {name:<10} {state}" for name, state in lines.items())


def planned(model, args) -> str:
    """``parts`` for a model built without data, and the flags of the training it was built for; nothing without ``--fast``."""
    if not asked(args):
        return ""
    return "--fast:\n" + parts(model, CRITERION_REGISTRY[args.criterion], args, args.optimizer, _half(args))


def _half(cfg):
    """The flag that leaves the optimizer without float32 copies; ``cfg`` may be flat."""
    common = _group(cfg, "common")
    if common.memory_efficient_fp16:
        return "--memory-efficient-fp16"
    return "--memory-efficient-bf16" if common.memory_efficient_bf16 else ""


def _group(cfg, name):
    """A group of a configuration. The flat flags of a command line have all groups in one."""
    return getattr(cfg, name, None) or cfg
