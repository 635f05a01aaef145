"""Repair of the task translation_from_pretrained_bart."""

from fairseq.tasks import LegacyFairseqTask
from fairseq.tasks.translation_from_pretrained_bart import TranslationFromPretrainedBARTTask

from .repair import repair


@repair("pretrained-bart", needed=lambda: not issubclass(TranslationFromPretrainedBARTTask, LegacyFairseqTask))
def let_the_task_find_its_flags():
    """Let the task translation_from_pretrained_bart, which fine-tunes mBART, load data and translate.

    The task reads its flags from ``args``, but its base class stores them only as ``cfg`` since it has a dataclass. fairseq ends in an
    AttributeError.
    """
    TranslationFromPretrainedBARTTask.args = property(lambda task: task.cfg)
