"""Every repair of fairseq, in the order in which they are applied."""

from . import (
    adaptive_loss,
    allocator,
    batches,
    checkpoints,
    clipping,
    cpu_launch,
    damaged_data,
    epochs,
    error_report,
    ignored_prefix,
    mixed_precision,
    moving_average,
    processes,
    recomputation,
    saving,
    scored_text,
    start_up,
    stopping,
)

REPAIRS = (
    # First, so that a mistake in all that follows is told in one line.
    error_report.report_input_errors,
    error_report.refuse_flags_in_one_line,
    # What a command meets while it starts; these and those below do not depend on each other, but for the last.
    start_up.restore_numpy_names,
    start_up.find_buckets_of_lengths,
    start_up.name_unused_validation,
    start_up.hush_hydra,
    start_up.keep_bf16_off_tpu,
    # Before anything large is allocated.
    allocator.keep_freed_memory,
    # Data.
    damaged_data.refuse_damaged_dictionaries,
    damaged_data.refuse_damaged_index,
    batches.keep_last_batch,
    scored_text.score_every_token,
    epochs.load_every_epoch_anew,
    epochs.keep_batches_when_resuming,
    epochs.train_on_the_last_group,
    epochs.resume_with_other_processes,
    # Checkpoints.
    checkpoints.load_no_programs,
    checkpoints.trust_classes_in_checkpoints,
    checkpoints.keep_the_stack_that_is_not_pruned,
    checkpoints.store_shared_tensors_once,
    saving.write_once,
    saving.copy_checkpoints_whole,
    # Training.
    stopping.remember_patience,
    stopping.train_no_further,
    stopping.name_what_diverged,
    adaptive_loss.count_the_second_word_of_every_band,
    ignored_prefix.count_no_ignored_prefix,
    moving_average.keep_untrained_tensors_in_ema,
    moving_average.begin_average_from_any_checkpoint,
    recomputation.recompute_what_is_trained,
    mixed_precision.unscale_once,
    mixed_precision.keep_fp32_weights,
    mixed_precision.keep_overflow_on_cpu,
    clipping.clip_where_the_gradients_are,
    processes.let_ddp_wrap_cpu_modules,
    processes.let_gloo_gather_objects,
    processes.broadcast_checkpoints,
    processes.reduce_only_what_is_trained,
    processes.score_everything_in_one_process,
    processes.validate_without_a_batch,
    # Last, since hooks below are called before it: it starts processes, and each of them installs everything anew.
    cpu_launch.start_processes_on_cpus,
)
