"""Dataclasses of fairseq's flags that this package reads, one for each topic. ``reading.read`` fills them in.

No model, task, criterion or command has all of these flags. A missing flag gets fairseq's default or None.
"""

from dataclasses import dataclass
from typing import Any, Optional


@dataclass
class ModelFlags:
    encoder_layers: Optional[int] = None
    decoder_layers: Optional[int] = None
    encoder_layers_to_keep: Any = None  # text, or a list on the command line of fairseq's own models
    decoder_layers_to_keep: Any = None
    encoder_embed_dim: Optional[int] = None
    decoder_embed_dim: Optional[int] = None
    decoder_output_dim: Optional[int] = None
    encoder_attention_heads: Optional[int] = None
    decoder_attention_heads: Optional[int] = None
    encoder_embed_path: Optional[str] = None
    decoder_embed_path: Optional[str] = None
    share_all_embeddings: bool = False
    share_decoder_input_output_embed: bool = False
    adaptive_input: bool = False
    adaptive_input_cutoff: Optional[str] = None
    adaptive_softmax_cutoff: Optional[str] = None
    base_layers: Optional[int] = None
    checkpoint_activations: bool = False
    offload_activations: bool = False
    cross_self_attention: bool = False
    no_cross_attention: bool = False
    quant_noise_pq: float = 0.0
    quant_noise_scalar: float = 0.0
    scale_attn: bool = False
    scale_fc: bool = False
    scale_heads: bool = False
    scale_resids: bool = False
    seed: int = 1


@dataclass
class PositionFlags:
    """Model flags that limit the length of a sample."""

    max_positions: Optional[int] = None
    max_target_positions: Optional[int] = None
    tokens_per_sample: Optional[int] = None


@dataclass
class DataFlags:
    """Task flags for the location of the data."""

    data: Optional[str] = None
    source_lang: Optional[str] = None
    target_lang: Optional[str] = None
    dataset_impl: Any = None
    regression_target: Optional[bool] = None
    upsample_primary: Optional[int] = None


@dataclass
class TaskFlags:
    num_batch_buckets: Optional[int] = None
    eval_bleu: Optional[bool] = None
    eval_bleu_args: Optional[str] = None
    eval_bleu_detok: Optional[str] = None
    eval_bleu_detok_args: Optional[str] = None
    eval_args: Optional[str] = None
    generation_args: Optional[str] = None
    classification_head_name: str = "sentence_classification_head"
    ranking_head_name: str = "sentence_classification_head"


@dataclass
class CriterionFlags:
    ignore_prefix_size: int = 0
    report_accuracy: Optional[bool] = None


@dataclass
class OptimizerFlags:
    """Optimizer flags that contain Python code, and ``groups``, the parameter groups of the optimizer ``composite``."""

    adam_betas: Any = None
    adamax_betas: Any = None
    lamb_betas: Any = None
    adafactor_eps: Any = None
    groups: Any = None


@dataclass
class SchedulerFlags:
    """Flags of ``--lr-scheduler manual``."""

    epoch2lr: Optional[str] = None
    update2lr: Optional[str] = None


@dataclass
class SearchFlags:
    beam: int = 5
    nbest: int = 1
    min_len: int = 1
    max_len_a: float = 0
    max_len_b: int = 200
    sampling: bool = False
    sampling_topk: int = -1
    sampling_topp: float = -1.0
    diverse_beam_groups: int = -1
    diversity_rate: float = -1.0
    match_source_len: bool = False
    retain_dropout: bool = False
    retain_dropout_modules: Any = None


@dataclass
class CheckpointFlags:
    """Flags that name checkpoints, and flags for models stored in several files."""

    restore_file: Optional[str] = None
    continue_once: Optional[str] = None
    finetune_from_model: Optional[str] = None
    reset_optimizer: bool = False
    reset_lr_scheduler: bool = False
    reset_meters: bool = False
    reset_dataloader: bool = False
    lm_path: Optional[str] = None
    checkpoint_suffix: str = ""
    checkpoint_shard_count: int = 1
    model_parallel_size: int = 1


def choice_of(group: Any) -> str | None:
    """Return the name chosen in a configuration group, such as "adam" in the group ``optimizer``. Return None if no name is chosen."""
    return getattr(group, "_name", None)


def architecture_of(model: Any) -> str | None:
    """Return the architecture in the configuration of a model, or None."""
    return choice_of(model) or getattr(model, "arch", None)
