"""Rules for fairseq's numeric flags, one for each flag. A rule without bounds allows any finite number.

Values that mean "off" or "no limit" to fairseq are allowed. A value is refused if fairseq would fail later, or would train or search
nothing.
"""

import math
from collections.abc import Mapping
from typing import Any

from ..errors import InputError, flag_of
from ..plan.layer_plan import MOST_LAYERS
from .fairseq_flags import OptimizerFlags, choice_of
from .number_rules import Options, Rule, check as check_rules, collect, errors, refuse, rows
from .reading import read

_NO_LIMIT, _OFF, _NOT_GIVEN = {0: "no limit", -1: "no limit"}, {-1: "off"}, {-1: "none"}
_SHARE: dict[str, Any] = {"at_least": 0, "at_most": 1}
_RATE_OF_DROPOUT: dict[str, Any] = {"at_least": 0, "below": 1}
# Wider matrices or more positions do not fit into the memory of any machine.
_WIDEST, _LONGEST = 10**6, 10**9
_MOST_SEED = 2**31 - 1  # numpy accepts 32 bits, and fairseq passes it the seed plus the epoch
_MOST_WORKERS = 1000
_MOST_BEAM = 10_000
# fairseq divides a score by the length to the power of --lenpen, in float32.
_MOST_LENPEN = 10
# A schedule multiplies the learning rate by this factor repeatedly.
_MOST_SHRINK = 10
# Tasks that fill their batches up to a limit of tokens or sentences.
BATCHED = ("translation", "language_modeling", "masked_lm")
MASKED = ("masked_lm", "multilingual_masked_lm")
# The limits of a batch: tokens and sentences.
_LIMITS = (("max_tokens", "batch_size"), ("max_tokens_valid", "batch_size_valid"))
# Option -> the option from which it gets its default. The order matters: decoder_input_dim needs the value of decoder_embed_dim.
FOLLOWED_WIDTHS = {
    "decoder_embed_dim": "encoder_embed_dim",
    "decoder_ffn_embed_dim": "encoder_ffn_embed_dim",
    "decoder_input_dim": "decoder_embed_dim",
    "decoder_output_dim": "decoder_embed_dim",
}

TRAINING = (
    *rows("common", "log_interval model_parallel_size fp16_init_scale fp16_scale_window amp_init_scale amp_scale_window"
          " all_gather_list_size", at_least=1),
    Rule("common.seed", at_least=0, at_most=_MOST_SEED),
    Rule("common.fp16_scale_tolerance", **_SHARE),
    *rows("common", "min_loss_scale threshold_loss_scale amp_batch_retries empty_cache_freq", at_least=0),
    *rows("distributed_training", "distributed_world_size distributed_num_procs nprocs_per_node localsgd_frequency", at_least=1),
    *rows("distributed_training", "distributed_rank bucket_cap_mb pipeline_chunks", at_least=0),
    Rule("distributed_training.distributed_port", at_least=0, at_most=65535, besides=_NOT_GIVEN),
    Rule("distributed_training.device_id", at_least=0, besides=_NOT_GIVEN),
    Rule("distributed_training.heartbeat_timeout", at_least=0, besides=_OFF),
    Rule("distributed_training.slowmo_momentum", **_RATE_OF_DROPOUT),
    Rule("dataset.num_workers", at_least=0, at_most=_MOST_WORKERS),
    *rows("dataset", "max_tokens batch_size max_tokens_valid batch_size_valid", at_least=1, besides=_NO_LIMIT),
    *rows("dataset", "required_batch_size_multiple required_seq_len_multiple validate_interval num_shards", at_least=1),
    *rows("dataset", "data_buffer_size validate_after_updates max_valid_steps curriculum", at_least=0),
    Rule("dataset.validate_interval_updates", at_least=0, besides=_OFF),
    Rule("dataset.fixed_validation_seed", at_least=-(2**63), at_most=2**63 - 1),
    Rule("dataset.shard_id", at_least=0, below="dataset.num_shards"),
    *rows("optimization", "max_epoch max_update stop_time_hours lr", at_least=0),
    Rule("optimization.clip_norm", at_least=0, besides={-1: "off", math.inf: "off"}),
    Rule("optimization.update_freq", at_least=1),
    Rule("optimization.stop_min_lr", at_least=0, below="optimization.lr", besides=_OFF),
    Rule("checkpoint.save_interval", at_least=1),
    *rows("checkpoint", "save_interval_updates keep_interval_updates keep_last_epochs keep_best_checkpoints patience",
          at_least=0, besides=_OFF),
    Rule("checkpoint.keep_interval_updates_pattern", at_least=1, besides=_OFF),
    Rule("checkpoint.checkpoint_shard_count", at_least=1),
    Rule("bmuf.block_lr", above=0),
    Rule("bmuf.block_momentum", **_RATE_OF_DROPOUT),
    Rule("bmuf.global_sync_iter", at_least=1),
    Rule("bmuf.warmup_iterations", at_least=0),
    Rule("ema.ema_decay", at_least=0, below=1),
    Rule("ema.ema_start_update", at_least=0),
    Rule("ema.ema_update_freq", at_least=1),
)  # fmt: skip

OPTIMIZERS = (
    *rows("optimizer", "weight_decay adam_eps adadelta_eps adamax_eps lamb_eps", at_least=0),
    *rows("optimizer", "momentum beta1", at_least=0, below=1),
    Rule("optimizer.adadelta_rho", **_SHARE),
    Rule("optimizer.clip_threshold", above=0),
    Rule("optimizer.decay_rate", at_most=0),
)

SCHEDULERS = (
    Rule("lr_scheduler.warmup_updates", at_least=1, only_with=("inverse_sqrt",)),
    *rows("lr_scheduler", "warmup_updates force_anneal lr_threshold lr_patience end_learning_rate power warmup_steps"
          " hold_steps decay_steps init_lr_scale", at_least=0),
    Rule("lr_scheduler.warmup_init_lr", at_least=0, at_most=(1, "optimization.lr"), besides=_NOT_GIVEN),
    Rule("lr_scheduler.total_num_update", above=0),
    Rule("lr_scheduler.final_lr_scale", above=0),
    # torch's ReduceLROnPlateau refuses 1.
    Rule("lr_scheduler.lr_shrink", at_least=0, below=1, only_with=("reduce_lr_on_plateau",)),
    Rule("lr_scheduler.lr_shrink", at_least=0, at_most=_MOST_SHRINK),
    Rule("lr_scheduler.lr_decay", **_SHARE),
    Rule("lr_scheduler.lr_deacy_period", at_least=1),
    Rule("lr_scheduler.min_lr", at_least=0, below="optimization.lr", only_with=("step",)),
    Rule("lr_scheduler.min_lr", at_least=0),
    Rule("lr_scheduler.t_mult", at_least=1),
    Rule("lr_scheduler.lr_period_updates", at_least=2, only_with=("triangular",)),
    Rule("lr_scheduler.lr_period_updates", above=0,
         besides=dict.fromkeys((-1, 0), "--max-update minus --warmup-updates")),
    Rule("lr_scheduler.max_lr", above="optimization.lr", only_with=("triangular",)),
)  # fmt: skip

CRITERIA = (
    Rule("criterion.label_smoothing", at_least=0, below=1),
    *rows("criterion", "ignore_prefix_size alignment_lambda ctc_weight rdrop_alpha latency_avg_weight latency_var_weight"
          " latency_update_after pred_masked_weight pred_nomask_weight loss_weights nsp_loss_weight"
          " general_unit_loss_weight edge_unit_loss_weight duration_loss_weight", at_least=0),
    *rows("criterion", "bce_pos_weight guided_attention_loss_sigma", above=0),
    *rows("criterion", "wer_lm_weight wer_word_score wer_sil_weight"),
)  # fmt: skip

TASKS = (
    *rows("task", "max_source_positions max_target_positions max_positions", at_least=1, at_most=_LONGEST),
    *rows("task", "upsample_primary output_dictionary_size", at_least=1, besides=_NOT_GIVEN),
    Rule("task.num_batch_buckets", at_least=0),
    Rule("task.tokens_per_sample", at_least=2, only_with=MASKED, why="one token marks the beginning of the text"),
    Rule("task.tokens_per_sample", at_least=1),
    # Speech models also have flags with these names.
    Rule("task.mask_prob", above=0, below=1, only_with=MASKED),
    *rows("task", "leave_unmasked_prob random_token_prob", only_with=MASKED, **_SHARE),
    Rule("task.mask_multiple_length", at_least=1, only_with=MASKED),
    Rule("task.mask_stdev", at_least=0, only_with=MASKED),
    Rule("task.multilang_sampling_alpha", at_least=0),
    *rows("task", "init_token separator_token", at_least=0),
    Rule("task.num_classes", at_least=1, only_with=("sentence_prediction", "sentence_prediction_adapters"),
         why="give the number of labels in the data, or 1 with --regression-target"),
)  # fmt: skip

MODELS = (
    *rows("model", "dropout attention_dropout activation_dropout act_dropout relu_dropout adaptive_softmax_dropout"
          " pooler_dropout input_dropout weight_dropout encoder_layerdrop decoder_layerdrop"
          " encoder_dropout_in encoder_dropout_out decoder_dropout_in decoder_dropout_out", **_RATE_OF_DROPOUT),
    *rows("model", "quant_noise_pq quant_noise_scalar", **_SHARE),
    *rows("model", "encoder_embed_dim decoder_embed_dim encoder_ffn_embed_dim decoder_ffn_embed_dim decoder_input_dim"
          " decoder_output_dim encoder_conv_dim decoder_conv_dim encoder_hidden_size decoder_hidden_size decoder_out_embed_dim"
          " character_embedding_dim encoder_attention_heads decoder_attention_heads quant_noise_pq_block_size",
          at_least=1, at_most=_WIDEST),
    *rows("model", "max_positions max_source_positions max_target_positions tokens_per_sample", at_least=1, at_most=_LONGEST),
    *rows("model", "adaptive_softmax_factor adaptive_input_factor base_sublayers encoder_kernel_size_list"
          " decoder_kernel_size_list", at_least=1),
    *rows("model", "encoder_layers decoder_layers base_layers char_embedder_highway_layers", at_least=0, at_most=MOST_LAYERS),
    *rows("model", "min_params_to_wrap base_shuffle sentence_class_num encoder_layers_to_keep decoder_layers_to_keep",
          at_least=0),
    Rule("model.num_segment", at_least=0),
    *rows("model", "mha_reg_scale_factor ffn_reg_scale_factor", at_least=0),
    *rows("model", "mha_heads_to_keep ffn_blocks_to_remove", at_least=0, besides=_OFF),
)  # fmt: skip

GENERATION = (
    Rule("generation.beam", at_least=1, at_most=_MOST_BEAM),
    Rule("generation.nbest", at_least=1),  # fairseq limits it to --beam
    *rows("generation", "max_len_a max_len_b max_len_a_mt max_len_b_mt min_len prefix_size no_repeat_ngram_size"
          " beam_mt iter_decode_max_iter diverse_beam_strength", at_least=0),
    *rows("generation", "lenpen lenpen_mt", at_least=-_MOST_LENPEN, at_most=_MOST_LENPEN),
    Rule("generation.unkpen", besides={math.inf: "no <unk>"}),
    Rule("generation.sampling_topk", at_least=0, besides=_OFF),
    Rule("generation.sampling_topp", at_least=0, at_most=1, besides=_OFF),
    Rule("generation.temperature", above=0),
    *rows("generation", "diverse_beam_groups diversity_rate", at_least=0, besides=_OFF),
    *rows("generation", "lm_weight iter_decode_eos_penalty"),
    Rule("generation.iter_decode_with_beam", at_least=1),
    Rule("eval_lm.context_window", at_least=0),
    Rule("eval_lm.softmax_batch", at_least=1, at_most=2**63 - 1),
    Rule("interactive.buffer_size", at_least=0),
    *rows("scoring", "pad eos unk", at_least=0),
    Rule("bpe.sentencepiece_alpha", at_least=0),
)  # fmt: skip

# The flags of ``fairseq-reservoir translate``.
TRANSLATE = (
    Rule("translate.beam", at_least=1, at_most=_MOST_BEAM),
    Rule("translate.nbest", at_least=1, at_most="translate.beam"),
    Rule("translate.lenpen", at_least=-_MOST_LENPEN, at_most=_MOST_LENPEN),
    *rows("translate", "max_len_b split_above batch_size buffer_size", at_least=1),
)

RULES = (*TRAINING, *OPTIMIZERS, *SCHEDULERS, *CRITERIA, *TASKS, *MODELS, *GENERATION)


def check(config: Any) -> None:
    """Refuse numbers in fairseq's flags that fairseq cannot use.

    Args:
        config: the namespace of a command line, or fairseq's configuration.
    """
    found = _errors(config, RULES)
    with collect(found):
        _check_limits(config)
    for group in _groups_of_composite(config):
        with collect(found):
            check_rules(group, (*OPTIMIZERS, *SCHEDULERS, *rows("optimization", "lr", at_least=0)))
    refuse(found)


def check_training(config: Any) -> None:
    """Refuse numbers that fairseq cannot use in a training, see ``check``."""
    found: list[str] = []
    with collect(found):
        _check_max_tokens(Options(config))
    with collect(found):
        check(config)
    refuse(found)


def refuse_command_line(found: list[str], args: Any) -> None:
    """Refuse a command line with errors in the model's flags, if there are any. Also name wrong numbers in the other flags of a training.

    Args:
        found: the messages of the errors in the model's flags.
        args: the namespace of the command line.
    """
    if found:
        with collect(found):
            check_training(args)
    refuse(found)


def check_model(options: Any) -> None:
    """Refuse numbers in a model's options that break a rule, such as a dropout above 1.

    Args:
        options: only the options of the model, as a namespace or as the configuration of a checkpoint.
    """
    refuse(_errors({"model": options}, MODELS))


def _check_limits(config: Any) -> None:
    """Refuse an unlimited batch size: ``--max-tokens`` or ``--batch-size`` is 0, and neither is positive."""
    values = Options(config).group("dataset")[1]
    for pair in _LIMITS:
        off = [name for name in pair if values.get(name) == 0]
        if off and not any((values.get(name) or 0) > 0 for name in pair):
            one, other = (flag_of(name) for name in (off[0], pair[1 - pair.index(off[0])]))
            raise InputError(
                f"{one} 0: means no limit, and {other} sets no limit either; set a limit, for example --max-tokens 4096"
            )


def _errors(config: Any, rules: tuple[Rule, ...]) -> list[str]:
    """Return the errors in numbers. Skip numbers that are copies of another flag's number, because the user has given only one."""
    options = Options(config)
    sources = {"dataset": dict(zip(_LIMITS[1], _LIMITS[0])), "model": FOLLOWED_WIDTHS}
    copies = tuple(
        f"{flag_of(copy)} "
        for group, copied in sources.items()
        for copy, source in copied.items()
        if options.value(f"{group}.{copy}") == options.value(f"{group}.{source}")
    )
    return [message for message in errors(options, rules) if not message.startswith(copies)]


def _check_max_tokens(options: Options) -> None:
    """Refuse token limits below 1. With ``--num-batch-buckets``, fairseq uses the limit as a sentence length."""
    most, of_validation = (options.value(f"dataset.{name}") for name in ("max_tokens", "max_tokens_valid"))
    buckets = options.value("task.num_batch_buckets")
    if most is not None and most < 1 and options.group("task")[0] in BATCHED:
        raise InputError(
            f"--max-tokens {most}: must be at least 1, because a training omits sentences longer than this limit; for no limit, give"
            " --batch-size instead"
        )
    if buckets and most is None:
        raise InputError(f"--num-batch-buckets {buckets}: needs --max-tokens (tokens per batch)")
    if buckets and of_validation is not None and of_validation < 1:
        raise InputError(f"--max-tokens-valid {of_validation}: must be at least 1 with --num-batch-buckets")


def _groups_of_composite(config: Any) -> list[Mapping[str, Any]]:
    """Return the optimizers inside ``composite``, each as a configuration with its learning rate and its schedule."""
    optimizer = getattr(config, "optimizer", None)
    groups = read(OptimizerFlags, optimizer).groups if choice_of(optimizer) == "composite" else None
    return [
        {
            "optimizer": group.get("optimizer"),
            "lr_scheduler": group.get("lr_scheduler"),
            "optimization": {"lr": group.get("lr")},
        }
        for group in (groups or {}).values()
        if hasattr(group, "get")
    ]
