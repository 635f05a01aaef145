"""Two ranks with different flags or data refuse to train together, in one line and without hanging."""

import io
import os
import shutil
import signal
import sys
from contextlib import redirect_stderr
from unittest.mock import patch

import pytest
import torch.distributed as dist
from fairseq.distributed import utils as distributed_utils
from fairseq_cli import hydra_train

from fairseq_reservoir.fairseq_repairs.cpu_launch import free_port
from tests.conftest import write_corpus
from tests.support.commands import USER_DIR, error_of
from tests.support.several_processes import in_processes

FLAGS = (
    "--encoder-layers 1 --decoder-layers 1 --reservoir-encoder L --max-update 2 --no-save --disable-validation".split()
)
SAME = "all ranks need the same flags"
# Flags of rank 1. Each is refused by a message of its option. Without the check, ranks with different criteria hang.
OTHERS = {
    "--lr 0.02": "rank 1: --lr is [0.02], but [0.01] on rank 0; " + SAME,
    "--criterion label_smoothed_cross_entropy": (
        "rank 1: --criterion is label_smoothed_cross_entropy, but cross_entropy on rank 0; " + SAME
    ),
}
MORE = {
    "--optimizer sgd": "rank 1: --optimizer is sgd, but adam on rank 0; " + SAME,
    "--weight-decay 0.5": "rank 1: --weight-decay is 0.5, but 0.0 on rank 0; " + SAME,
    "--clip-norm 1": "rank 1: --clip-norm is 1.0, but 0.0 on rank 0; " + SAME,
    "--dropout 0.2": "rank 1: --dropout is 0.2, but 0.1 on rank 0; " + SAME,
    "--update-freq 2": "rank 1: --update-freq is [2], but [1] on rank 0; " + SAME,
    "--max-update 3": "rank 1: --max-update is 3, but 2 on rank 0; " + SAME,
    "--max-epoch 1": "rank 1: --max-epoch is 1, but 100 on rank 0; " + SAME,
    "--batch-size 8": "rank 1: --batch-size is 8, but 4 on rank 0; " + SAME,
    "--arch reservoir_transformer": "rank 1: --arch is reservoir_transformer, but reservoir_transformer_tiny on rank 0; "
    + SAME,
    "--lr-scheduler inverse_sqrt": "rank 1: --lr-scheduler is inverse_sqrt, but fixed on rank 0; " + SAME,
    "--ddp-backend legacy_ddp": "rank 1: --ddp-backend is legacy_ddp, but pytorch_ddp on rank 0; " + SAME,
    "--reservoir-seed 4": "rank 1: --reservoir-seed is 4, but 3 on rank 0; " + SAME,
    "--seed 4": "rank 1: --seed is 4, but 3 on rank 0; " + SAME,
}


def be_torchruns(rank, port):
    """Make this process one of torchrun's by its environment. It may take part in several runs, one after the other."""
    signal.alarm(500)  # instead of hanging
    vars(distributed_utils.get_global_group).pop("_global_group", None)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE="2", RANK=str(rank))


def leave():
    if dist.is_initialized():
        dist.destroy_process_group()


def answers(rank, runs):
    """This rank's stderr and exit status in several runs, each (port, its data, its flags)."""
    found = []
    for port, data, flags in runs[rank]:
        be_torchruns(rank, port)
        with patch.object(sys, "excepthook", sys.excepthook):  # torch sets its own in each run
            found.append(error_of(data, *FLAGS, *flags))
        leave()
    return found


def both_ranks(pairs):
    """Outputs of both ranks in runs of (data of rank 0, data of rank 1, flags of rank 0, flags of rank 1)."""
    ports = [free_port() for _ in pairs]
    runs = [
        [(port, pair[rank], pair[2 + rank].split()) for port, pair in zip(ports, pairs, strict=True)] for rank in (0, 1)
    ]
    return list(zip(*in_processes(2, answers, runs)))


def refused(message):
    """One line on stderr from each of two ranks. torch prefixes it with the rank."""
    return [(f"[rank{rank}]: fairseq-train: error: {message}\n", 1) for rank in (0, 1)]


def refused_in_main(message):
    """The same for a refusal in fairseq's ``main``, which installs our exception hook outside torch's: no prefix, and our status."""
    return [(f"fairseq-train: error: {message}\n", 2)] * 2


@pytest.fixture(scope="module")
def folders(toy_data, tmp_path_factory):
    """The data, a copy of it, fewer sentences of it, and its sentences with another dictionary."""
    folder = tmp_path_factory.mktemp("ranks")
    copied, fewer = folder / "copied", write_corpus(folder / "fewer", train=150, valid=8)
    shutil.copytree(toy_data, copied)
    shutil.copytree(toy_data, folder / "order")
    (folder / "order" / "dict.de.txt").write_text("".join(f"{letter} 1\n" for letter in "abdcefgh"))
    return {"whole": toy_data, "copied": copied, "fewer": fewer, "order": folder / "order"}


def test_another_flag_dictionary_or_data_set(folders):
    """Also flags that are equal but not supported with the number of ranks, which only torchrun's variables tell."""
    data, schedule = folders["whole"], "--optimizer freeze_skip --freeze-schedule 2:emb"
    *found, unsupported = both_ranks(
        [
            *((data, data, "", flags) for flags in OTHERS),
            (data, folders["order"], "", ""),
            (data, folders["fewer"], "", ""),
            (data, data, schedule, schedule),
        ]
    )
    for line, status in unsupported:
        assert status != 0 and "add --ddp-backend legacy_ddp" in line
    entries = (
        "rank 1: entry 6 of the target dictionary is d, but c on rank 0; all ranks need the same dictionaries in DATA"
    )
    assert [list(answer) for answer in found[:-1]] == [*map(refused, OTHERS.values()), refused_in_main(entries)]
    for line, status in found[-1]:
        assert status != 0 and "fairseq-train: error: rank 1: train has 150 sentences of " in line
        assert line.endswith(" on rank 0; all ranks need the same DATA\n") and line.count("\n") == 1


@pytest.mark.slow
def test_each_of_more_flags(toy_data):
    found = both_ranks([(toy_data, toy_data, "", flags) for flags in MORE])
    for (flags, message), answer in zip(MORE.items(), found):
        assert list(answer) == refused(message), flags


@pytest.mark.slow
def test_equal_data_elsewhere_and_other_logs_train(folders, tmp_path):
    flags = f"--num-workers 1 --log-format simple --log-interval 1 --log-file {tmp_path / 'log'} --data-buffer-size 3"
    ((first, second),) = both_ranks([(folders["whole"], folders["copied"], "", flags)])
    assert (first[1], second[1]) == (0, 0), (first, second)


def hydras_answer(rank, port, folder, data):
    """fairseq-hydra-train with another learning rate on rank 1."""
    be_torchruns(rank, port)
    os.chdir(folder)
    words = [
        "fairseq-hydra-train",
        *("--config-dir", f"{USER_DIR}/config", "--config-name", "translation"),
        *("common.cpu=true", f"task.data={data}", "checkpoint.no_save=true", "optimization.max_update=2"),
        *("model.encoder_layers=1", "model.decoder_layers=1", f"optimization.lr=[0.00{1 + rank}]"),
    ]
    errors = io.StringIO()
    with redirect_stderr(errors), patch.object(sys, "argv", words):
        try:
            hydra_train.cli_main()
            status = 0
        except SystemExit as leaving:
            status = leaving.code
    leave()
    return [line for line in errors.getvalue().splitlines() if "rror" in line], status


@pytest.mark.slow
def test_fairseq_hydra_train(toy_data, tmp_path):
    message = f"fairseq-hydra-train: error: rank 1: --lr is [0.002], but [0.001] on rank 0; {SAME}"
    for lines, status in in_processes(2, hydras_answer, free_port(), tmp_path, toy_data):
        assert lines == [message] and status != 0
