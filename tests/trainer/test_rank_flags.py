"""Comparison of the flags of all ranks. MAY_DIFFER lists each option that may differ between ranks."""

from argparse import Namespace

import pytest
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.trainer import rank_flags
from fairseq_reservoir.trainer.rank_flags import compare_flags, options_of, refuse_other_flags

MAY_DIFFER = """
    common.no_progress_bar common.log_interval common.log_format common.log_file common.aim_repo common.aim_run_hash
    common.tensorboard_logdir common.wandb_project common.azureml_logging common.user_dir common.plasma_path
    distributed_training.distributed_world_size distributed_training.distributed_num_procs distributed_training.distributed_rank
    distributed_training.distributed_init_method distributed_training.distributed_port distributed_training.device_id
    distributed_training.distributed_no_spawn distributed_training.nprocs_per_node
    dataset.num_workers dataset.data_buffer_size bmuf.distributed_world_size checkpoint.checkpoint_suffix task.data
    model.freeze_cache model.start_encoder_from model.start_decoder_from
""".split()


def composed(arch):
    arguments = ["data", "--arch", arch, "--task", "translation", "--optimizer", "adam", "--bpe", "sentencepiece"]
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), arguments))


def test_every_option_is_compared_unless_it_may_differ():
    """One after the other, each of about 350 options gets another value on rank 1."""
    first = OmegaConf.to_container(composed("reservoir_transformer_tiny"))
    accepted, refused = [], []
    for group, values in first.items():
        for name in values or ():
            other = {**first, group: {**values, name: "something else"}}
            try:
                refuse_other_flags([options_of(first), options_of(other)])
                accepted.append(f"{group}.{name}")
            except InputError as refusal:
                flag = {"model._name": "arch"}.get(f"{group}.{name}", group if name == "_name" else name)
                assert str(refusal).startswith(f"rank 1: --{flag.replace('_', '-')} is something else, but ")
                refused.append(f"{group}.{name}")
    assert sorted(accepted) == sorted(MAY_DIFFER)
    assert len(refused) > 300


def test_an_older_model_has_all_flags_in_its_own_group():
    first = {"model": Namespace(_name="fconv", lr=[0.1], distributed_rank=0, log_format="json", data="here")}
    second = {"model": Namespace(_name="fconv", lr=[0.1], distributed_rank=1, log_format="none", data="there")}
    assert options_of(first) == options_of(second) == {"model._name": "fconv", "model.lr": "[0.1]"}


def test_the_choice_is_named_before_its_options():
    first = {"optimizer": {"momentum": 0.9, "_name": "nag"}}
    second = {"optimizer": {"adam_eps": 1e-8, "_name": "adam"}}
    with pytest.raises(InputError) as refusal:
        refuse_other_flags([options_of(first), options_of(first), options_of(second)])
    assert str(refusal.value) == "rank 2: --optimizer is adam, but nag on rank 0; all ranks need the same flags"


def test_option_of_one_rank_only_and_object_without_a_value():
    first, second = {"model": {"new": 1, "function": object()}}, {"model": {"function": object()}}
    with pytest.raises(InputError, match="^rank 1: --new is missing, but 1 on rank 0; all ranks need the same flags$"):
        refuse_other_flags([options_of(first), options_of(second)])
    assert list(options_of(first)) == ["model.new"]


def test_another_version_is_named():
    first, second = {"the version of torch": "2.13.0"}, {"the version of torch": "2.13.1"}
    with pytest.raises(
        InputError, match="^rank 1: the version of torch is 2.13.1, but 2.13.0 on rank 0; all ranks need the"
    ):
        refuse_other_flags([first, second])


@pytest.mark.parametrize("other, exchanges", [(0.1, 1), (0.2, 2)])
def test_equal_ranks_exchange_one_hash(monkeypatch, other, exchanges):
    """Ranks exchange their options only if their hashes differ."""
    first, second = {"optimization": {"lr": 0.1}}, {"optimization": {"lr": other}}
    hashes = []
    with monkeypatch.context() as patch:
        patch.setattr(rank_flags.dist, "is_initialized", lambda: True)
        patch.setattr(rank_flags, "gather", lambda value: [hashes.append(value)] and [value])
        compare_flags(second)
        theirs, sent = hashes.pop(), []
        replies = iter([theirs, options_of(second)])
        patch.setattr(rank_flags, "gather", lambda value: [sent.append(value)] and [value, next(replies)])
        if exchanges == 1:
            compare_flags(first)
        else:
            replies = iter([theirs, rank_flags._software() | options_of(second)])
            with pytest.raises(InputError, match="^rank 1: --lr is 0.2, but 0.1 on rank 0"):
                compare_flags(first)
    assert len(sent) == exchanges and len(sent[0]) == 64
