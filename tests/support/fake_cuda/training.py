"""Updates of fairseq's trainer on the fake device, and the host's reads in each of them."""

from collections import Counter
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace

import torch
from fairseq import options, tasks
from fairseq.dataclass.configs import FairseqConfig
from fairseq.trainer import Trainer
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._pytree import keystr, tree_flatten_with_path

from tests.support.commands import USER_DIR, forget_earlier_runs

from .device import fake_cuda

PAD, EOS, WORDS = 1, 2, 12


@dataclass
class Outcome:
    """Result of one training.

    Attributes:
        error: the error that ended it, or "".
        reads, copies: for each update, counts of reads and of copies to the device; see ``CountingMode``.
        left: tensors that are still on the CPU.
        without_gradient: trained parameters without a gradient.
        not_pinned: tensors in batches of fairseq's loader that are not in pinned memory, if its task is translation.
    """

    error: str = ""
    reads: list[Counter] = field(default_factory=list)
    copies: list[Counter] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    without_gradient: list[str] = field(default_factory=list)
    not_pinned: list[str] = field(default_factory=list)


def train(data, words: str, updates: int = 1, plant=nullcontext) -> Outcome:
    """Run some updates of a training.

    Args:
        data: folder with the dictionaries.
        words: flags of fairseq-train.
        plant: a context with a deliberate mistake.
    """
    outcome = Outcome()
    forget_earlier_runs()
    cfg, flags = _configuration(data, words), _flags()
    task = tasks.setup_task(cfg.task)
    torch.manual_seed(1)
    model, criterion = task.build_model(cfg.model), task.build_criterion(cfg.criterion)
    if cfg.common.fp16 or cfg.common.bf16:
        # As in the trainer, but while values exist, because later tensors are already converted.
        model.to(torch.half if cfg.common.fp16 else torch.bfloat16)
    with ExitStack() as stack:
        stack.enter_context(plant())
        seen = stack.enter_context(fake_cuda())
        try:
            trainer = Trainer(cfg, task, model, criterion)
            if cfg.task.task == "translation":
                outcome.not_pinned = _not_pinned(trainer)
            for _ in range(updates):
                seen.reads, seen.copies = Counter(), Counter()
                trainer.train_step([_batch(cfg.task.task)])
                outcome.reads.append(seen.reads)
                outcome.copies.append(seen.copies)
            if trainer.get_num_updates() != updates:
                raise RuntimeError(f"{trainer.get_num_updates()} updates")
            if _flags() != flags:
                raise RuntimeError(f"torch's flags of precision were changed: {flags} to {_flags()}")
        except Exception as error:
            outcome.error = f"{type(error).__name__}: {error}"
            return outcome
        outcome.left = list(_left(trainer))
        outcome.without_gradient = [
            name
            for name, p in trainer.get_model().named_parameters()
            if p.requires_grad and p.grad is None and not (cfg.common.fp16 or cfg.common.bf16)
        ]
    return outcome


def _configuration(data, words):
    parser = options.get_training_parser()
    # The loader works in this thread, because an error in another thread would be lost.
    loader = "--num-workers 0 --data-buffer-size 0 --batch-size 3"
    fixed = f"{data} --user-dir {USER_DIR} {loader} --log-format none --no-progress-bar --no-save"
    flat = options.parse_args_and_arch(parser, [*fixed.split(), *words.split()])
    # All flags in each part: fairseq accepts it, and hydra would take half the time of a test.
    if hasattr(flat, "adam_betas"):
        flat.adam_betas = str(flat.adam_betas)
    return SimpleNamespace(**dict.fromkeys(FairseqConfig.__dataclass_fields__, flat))


def _flags():
    """torch's settings of matrix products and cuDNN, which only the user may change."""
    return (
        torch.get_float32_matmul_precision(),
        torch.backends.cuda.matmul.allow_tf32,
        torch.backends.cudnn.allow_tf32,
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic,
    )


def _batch(task):
    """Three sentences of 5, 4 and 2 tokens, in the format of the task's collater."""
    source = torch.tensor([[4, 5, 6, 7, EOS], [PAD, 4, 5, 6, EOS], [PAD, PAD, PAD, 4, EOS]])
    target = torch.tensor([[7, 6, 5, 4, EOS], [6, 5, 4, EOS, PAD], [4, EOS, PAD, PAD, PAD]])
    batch = {"id": torch.arange(3), "nsentences": 3, "ntokens": 11, "target": target}
    if task == "translation":
        net_input = {"src_tokens": source, "prev_output_tokens": target.roll(1, 1)}
    else:
        net_input = {"src_tokens": target.clone()}
    if task == "masked_lm":
        batch["target"] = target.masked_fill(target % 2 == 0, PAD)
    return batch | {"net_input": net_input | {"src_lengths": torch.tensor([5, 4, 2])}}


def _not_pinned(trainer):
    """Names of tensors outside pinned memory in the batches for the trainer. The batches have values; only work on the device is fake."""
    with unset_fake_temporarily():
        batches = list(trainer.get_train_iterator(epoch=1).next_epoch_itr())
        tensors = [x for x in tree_flatten_with_path(batches)[0] if isinstance(x[1], torch.Tensor)]
        if not tensors:
            raise RuntimeError("no tensor in a batch")
        return [keystr(path) for path, tensor in tensors if not tensor.is_pinned()]


def _left(trainer):
    model = trainer.get_model()
    everything = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    everything |= {f"{name}.grad": p.grad for name, p in model.named_parameters() if p.grad is not None}
    for number, state in enumerate(trainer.optimizer.optimizer.state.values()):
        everything |= {f"optimizer {number} {key}": x for key, x in state.items() if isinstance(x, torch.Tensor)}
    return (name for name, tensor in everything.items() if tensor.device.type != "cuda")
