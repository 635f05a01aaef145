"""Imported by the server of ``warm_start`` before it forks: what a training imports, and what hydra makes of fairseq's own flags."""

import gc

import fairseq_cli.generate
import fairseq_cli.train  # noqa: F401
import torch._dynamo  # with the first step of an optimizer
import torch.utils.checkpoint  # noqa: F401
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from tests.support import hydra_memory

hydra_memory.remember()
words = "data --arch transformer_tiny --optimizer adam".split()
convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), words))
gc.freeze()  # what lives to the end needs no collector of garbage
