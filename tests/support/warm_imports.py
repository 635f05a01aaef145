"""Modules that the server of ``warm_start`` imports before it forks: those of a training, and hydra's conversion of fairseq's flags."""

import gc
import sys

import fairseq_cli.generate
import fairseq_cli.train  # noqa: F401
import torch._dynamo  # imported at the first step of an optimizer
import torch.utils.checkpoint  # noqa: F401
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from tests.support import hydra_memory

sys.dont_write_bytecode = False  # the server is started with the flags of this process, which may be -B
hydra_memory.remember()
words = "data --arch transformer_tiny --optimizer adam".split()
convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), words))
gc.freeze()  # these objects live to the end and need no garbage collection
gc.set_threshold(50_000, 20, 50)
