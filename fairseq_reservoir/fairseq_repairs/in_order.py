"""Every repair of fairseq, in the order in which they are applied."""

from . import (
    adaptive_loss,
    allocator,
    batches,
    checkpoints,
    cpu_launch,
    error_report,
    mixed_precision,
    moving_average,
    processes,
    recomputation,
    saving,
    start_up,
)

REPAIRS = (
    # First, so that a mistake in all that follows is told in one line.
    error_report.report_input_errors,
    error_report.refuse_flags_in_one_line,
    # What a command meets while it starts; these and those below do not depend on each other, but for the last.
    start_up.restore_numpy_names,
    start_up.hush_hydra,
    start_up.keep_bf16_off_tpu,
    # Before anything large is allocated.
    allocator.keep_freed_memory,
    # Data.
    batches.keep_last_batch,
    batches.keep_batches_when_resuming,
    # Checkpoints.
    checkpoints.load_no_programs,
    checkpoints.trust_classes_in_checkpoints,
    checkpoints.keep_the_stack_that_is_not_pruned,
    checkpoints.store_shared_tensors_once,
    saving.write_once,
    saving.copy_checkpoints_whole,
    # Training.
    adaptive_loss.count_the_second_word_of_every_band,
    moving_average.keep_untrained_tensors_in_ema,
    moving_average.begin_average_from_any_checkpoint,
    recomputation.recompute_what_is_trained,
    mixed_precision.unscale_once,
    mixed_precision.keep_overflow_on_cpu,
    processes.let_ddp_wrap_cpu_modules,
    processes.let_gloo_gather_objects,
    processes.broadcast_checkpoints,
    processes.reduce_only_what_is_trained,
    # Last, since hooks below are called before it: it starts processes, and each of them installs everything anew.
    cpu_launch.start_processes_on_cpus,
)
