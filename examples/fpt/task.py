"""``--task fpt``: the tasks of "Pretrained Transformers as Universal Computation Engines" (Lu et al., 2021)."""

import logging
from dataclasses import dataclass, field
from typing import Optional

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.tasks import FairseqTask, register_task

from . import problems
from .pretrained import read_gpt2, read_language_model

logger = logging.getLogger(__name__)


@dataclass
class FPTTaskConfig(FairseqDataclass):
    # fairseq requires a folder if there is an option "data".
    files: Optional[str] = field(
        default=None,
        metadata={"help": "folder with the task's files. memory and xor are always drawn, listops without a folder"},
    )
    problem: ChoiceEnum(list(problems.PROBLEMS)) = field(default="xor", metadata={"help": "the task"})
    examples: int = field(
        default=5000, metadata={"help": "drawn tasks: training examples per epoch. Each epoch draws new ones"}
    )
    bits: Optional[int] = field(default=None, metadata={"help": "bits of a string; default: 1,000 in memory, 5 in xor"})
    chunk: Optional[int] = field(default=None, metadata={"help": "bits of one token; default: 50 in memory, 1 in xor"})
    draw_seed: int = field(default=1, metadata={"help": "seed of the drawn examples"})


@register_task("fpt", dataclass=FPTTaskConfig)
class FPTTask(FairseqTask):
    """Classify tokens or vectors. ``shape`` has the sizes of the input and of the output."""

    source_dictionary = target_dictionary = None

    def __init__(self, cfg, **kwargs):
        super().__init__(cfg, **kwargs)
        self.problem = problems.problem(cfg)
        self.shape = self.problem.shape

    def build_model(self, cfg, from_checkpoint=False):
        """Build a model. Unless it is for a checkpoint, copy the pretrained blocks that ``cfg`` names, and set their sizes in ``cfg``."""
        pretrained = None
        if not from_checkpoint and cfg.from_gpt2:
            pretrained = read_gpt2(cfg.from_gpt2)
        elif not from_checkpoint and cfg.from_lm:
            pretrained = read_language_model(cfg.from_lm)
        if pretrained:
            for name, value in pretrained.sizes.items():
                setattr(cfg, name, value)
        model = super().build_model(cfg, from_checkpoint)
        if pretrained:
            known = model.decoder.start_from(pretrained.tensors)
            logger.info(f"pretrained blocks: {cfg.from_gpt2 or cfg.from_lm}; {known} of {self.shape.length} positions")
        return model

    def load_dataset(self, split, **kwargs):
        self.datasets[split] = self.problem.examples(split)

    def max_positions(self):
        return self.shape.length
