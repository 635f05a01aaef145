"""benchmarks/gpu_epochs.py and its parts: arguments, FLOPs, corpora, rows, table, and a run with tiny models on the CPU."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq import options
from fairseq.data import data_utils
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import gpu_epochs, gpu_rows, in_process, model_flops, synthetic_corpus
from benchmarks.plain_transformer import PlainTransformer
from tests.support.graphs import recording

SCRIPT = Path(gpu_epochs.__file__)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--data", "nowhere"], "--data nowhere: no such folder"),
        (["--data", ".", "--raw", "."], "--raw: give it or --data, not both"),
        (["--setting", "256/1024"], "--setting: needs --data or --raw"),
        (["--epochs", "0"], "--epochs 0: at least 1"),
        (["--batches", "0"], "--batches 0: at least 1"),
        (["--only", "slow"], "--only: invalid choice: 'slow'"),
    ],
)
def test_wrong_arguments_are_named(arguments, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        gpu_epochs.read_arguments(arguments)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", gpu_epochs.SETTINGS)
def test_flags_of_the_settings_are_understood(name):
    setting = gpu_epochs.SETTINGS[name]
    for arm in setting.arms:
        words = shlex.split(f"data {gpu_epochs.COMMON} {setting.flags(gpu_epochs.ARMS[arm])} --bf16")
        given = options.parse_args_and_arch(options.get_training_parser(), words)
        assert (given.encoder_embed_dim, given.decoder_ffn_embed_dim) == (setting.width, setting.ffn)
        assert (given.decoder_layers, given.max_tokens) == (setting.decoder, setting.max_tokens)
        assert "{" not in " ".join(words)


def test_arms_take_turns(tmp_path):
    flags = [
        "--device",
        "cuda",
        "--data",
        str(tmp_path),
        "--setting",
        "512/1024",
        "--setting",
        "1024/4096",
        "--arm",
        "T: --x {encoder}",
    ]
    given = gpu_epochs.read_arguments(flags)
    order = [(name, arm, number) for name, arm, _, number in gpu_epochs.plan(given)]
    small, large = ["stock", "fast", "graphs", "supermask", "T"], ["stock", "fast", "graphs", "T"]
    assert order[:9] == [("512/1024", arm, 1) for arm in small] + [("1024/4096", arm, 1) for arm in large]
    assert order[9:] == [("512/1024", arm, 2) for arm in small[::-1]] + [("1024/4096", arm, 2) for arm in large[::-1]]


def test_no_graphs_on_a_cpu():
    assert list(gpu_epochs.read_arguments(["--tiny"]).arms) == ["stock", "fast"]


def test_flops_by_hand():
    # Source side: a layer of 4 x 2 x 2 + 2 x 2 x 3 = 28 weights, and 8 for keys and values of the decoder.
    # Target side: a layer of 6 x 2 x 2 + 2 x 2 x 3 = 36 weights, and 2 x 5 of the output.
    # Pairs of tokens: 2 x 2 in the encoder; 1 + 2 + 3 and 2 x 3 in the decoder.
    expected = 6 * (36 * 2 + 46 * 3) + 12 * 2 * (4 + 6 + 6)
    assert model_flops.update_flops(2, 3, 1, 1, 5, [2], [3]) == expected == 1644


def test_flops_are_those_of_a_model():
    """Torch counts the matrix products of a whole update. It counts all pairs of tokens in causal attention."""
    model = PlainTransformer(words=30, width=8, ffn=12, heads=2, encoder=3, decoder=2)
    source, target = torch.randint(4, 30, (2, 7)), torch.randint(4, 30, (2, 5))
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(source, target.roll(1, 1), target).backward()
    unused = 2 * 2 * 12 * 8 * (5 * 5 - 5 * 6 // 2)  # sentences x layers x 12 FLOPs x width x pairs
    assert counter.get_total_flops() == model_flops.update_flops(8, 12, 3, 2, 30, [7, 7], [5, 5]) + unused


def test_lengths_as_in_wmt14():
    lengths = synthetic_corpus.wmt_lengths(50_000, seed=1)
    assert lengths.shape == (2, 50_000) and lengths.min() >= 1 and lengths.max() <= 250
    assert abs(lengths[0].mean() - 28.7) < 0.5 and 93 < np.percentile(lengths[0], 99) < 101
    assert np.corrcoef(np.log(lengths))[0, 1] > 0.9
    assert (synthetic_corpus.wmt_lengths(50_000, seed=1) == lengths).all()


def test_fairseq_reads_the_corpus(tmp_path):
    lengths = np.array([[3, 1, 4], [2, 5, 1]])
    synthetic_corpus.write(tmp_path / "data", lengths, words=20, seed=1)
    for language, expected in zip(("en", "de"), lengths):
        assert len((tmp_path / "data" / f"dict.{language}.txt").read_text().splitlines()) == 20 - 4
        data = data_utils.load_indexed_dataset(str(tmp_path / "data" / f"train.en-de.{language}"), None)
        assert list(data.sizes) == list(expected + 1)
        for sentence in data:
            assert sentence[-1] == 2 and sentence[:-1].min() >= 4 and sentence.max() < 20


def test_rows_are_saved_at_once(tmp_path, capsys, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(gpu_rows.time, "monotonic", lambda: now[0])
    rows = gpu_rows.Rows(tmp_path / "new" / "out", minutes=2)
    rows.add(kind="epoch", seconds=1.5)
    rows.add(kind="arm", arm="stock")
    lines = (tmp_path / "new" / "out.jsonl").read_text()
    assert lines == '{"kind": "epoch", "seconds": 1.5}\n{"kind": "arm", "arm": "stock"}\n' == capsys.readouterr().out
    assert rows.of_kind("arm") == [{"kind": "arm", "arm": "stock"}]
    now[0] = 219.9
    assert not rows.is_over()
    now[0] = 220.0
    assert rows.is_over() and not gpu_rows.Rows(tmp_path / "other").is_over()


def row(arm, number, *seconds, failed=None):
    epochs = [
        {"seconds": s, "loss": 5.0 - i, "batches": 10, "tokens": 600, "flops": 2e12} for i, s in enumerate(seconds)
    ]
    return {
        "setting": "s",
        "arm": arm,
        "round": number,
        "epochs": epochs,
        "failed": failed,
        "reserved_mib": 100.0 * number,
    }


def test_summary_by_hand():
    rows = [row("stock", 1, 9, 4, 6), row("graphs", 1, 3, 1, 1), row("graphs", 2, 2, 2, 4), row("stock", 2, 5, 5, 5)]
    rows += [row("bad", 2, 1, failed="ValueError: no such flag"), row("short", 1, 7)]
    stock, graphs, bad, short = gpu_epochs.summary(rows, peak=4e12)
    assert (stock["first"], stock["later"], stock["last"], stock["last_of_stock"]) == (9, 5, 5.5, 1)
    # Later epochs: 1 of 5 s in round 1, 3 of 5 s in round 2. Last epochs: 1 of 6 s and 4 of 5 s.
    assert graphs["later"] == 2 and graphs["later_of_stock"] == pytest.approx((0.2 + 0.6) / 2)
    assert graphs["last"] == 2.5 and graphs["last_of_stock"] == pytest.approx((1 / 6 + 4 / 5) / 2)
    assert graphs["last_of_graphs"] == graphs["later_of_graphs"] == 1
    # 10 batches, 600 tokens and 2e12 FLOPs in 2.5 s.
    assert (graphs["ms"], graphs["tokens_per_second"]) == (250, 240)
    assert (graphs["tflops"], graphs["share"], graphs["reserved_mib"]) == (0.8, 0.2, 200)
    assert graphs["losses"] == "5.000 4.000 3.000"
    assert bad["failed"] == "ValueError: no such flag" and "later" not in bad and "first" not in bad
    assert short["first"] == 7 and "later" not in short


def test_a_failed_arm_becomes_a_row(tmp_path):
    given = gpu_epochs.read_arguments(["--tiny"])
    rows = gpu_rows.Rows(tmp_path / "out")
    gpu_epochs.run("tiny", gpu_epochs.TINY["tiny"], "x", "--arch transformer --no-such-flag", 1, tmp_path, given, rows)
    (found,) = rows.of_kind("arm")
    assert "unrecognized arguments: --no-such-flag" in found["failed"] and found["epochs"] == []


def test_fewer_batches_of_all_lengths():
    class Batches:
        frozen_batches = batch_sampler = [[i] for i in range(7)]

    batches = Batches()
    gpu_epochs.fewer_batches(batches, 3)
    assert batches.batch_sampler == [[0], [3], [6]] == list(batches._frozen_batches)


def test_graphs_keep_the_shapes_of_all_batches(tmp_path):
    """Shapes that change after the first epoch would be recorded twice, and waste time and memory."""
    given = gpu_epochs.read_arguments(["--tiny", "--batches", "3", "--epochs", "3", "--precision", ""])
    synthetic_corpus.write(tmp_path / "data", synthetic_corpus.wmt_lengths(given.sentences, 1), given.words, 1)
    setting, rows = gpu_epochs.Setting(gpu_epochs.WMT, 8, 8, 2, 1, 1, 120), gpu_rows.Rows(tmp_path / "out")
    flags = f"{gpu_epochs.ARMS['graphs']} --cuda-graph-buckets 5"
    with recording("cpu"):
        gpu_epochs.run("tiny", setting, "graphs", flags, 1, tmp_path / "data", given, rows)
    (found,) = rows.of_kind("arm")
    assert found["failed"] is None
    assert len([line for line in found["said"] if "batches padded to" in line]) == 1
    assert "3 recorded shapes, 6 of 9 steps replayed" in found["epochs"][-1]["graphs"]


def test_log_messages_are_kept_and_not_printed(capfd):
    import logging

    logger = logging.getLogger("fairseq_reservoir.somewhere")
    with in_process.kept_messages("graphs") as found:
        logger.info("%d graphs", 3)
        logger.info("other")
    logger.info("4 graphs")
    assert found == ["3 graphs"] and capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_a_run_with_tiny_models(tmp_path):
    command = [
        sys.executable,
        SCRIPT,
        "--tiny",
        "--rounds",
        "1",
        "--batches",
        "3",
        "--threads",
        "1",
        "--output",
        tmp_path / "out",
    ]
    command += ["--precision", "", "--arm", "masked: --arch supermask_one_layer_transformer --encoder-layers {encoder}"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    result = json.loads((tmp_path / "out.json").read_text())
    stock, fast, masked = result["arms"]
    assert [arm["arm"] for arm in result["arms"]] == ["stock", "fast", "masked"]
    assert all(arm["failed"] is None and arm["later"] > 0 and arm["tokens_per_second"] > 0 for arm in result["arms"])
    assert fast["later_of_stock"] == fast["later"] / stock["later"]
    for trained in result["rows"]:
        first, second, third = trained["epochs"]
        assert first["batches"] == first["updates"] == third["updates"] == 3 and first["tokens"] == third["tokens"]
        assert abs(first["loss"] - np.log2(40)) < 2 and second["loss"] != first["loss"]
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["facts", *["epoch"] * 3, "arm"] + [
        "epoch",
        "epoch",
        "epoch",
        "arm",
    ] * 2
    assert ended.stdout == "".join(f"{line}\n" for line in lines) + (tmp_path / "out.md").read_text()


@pytest.mark.slow
def test_the_time_limit_ends_a_run(tmp_path):
    command = [sys.executable, SCRIPT, "--tiny", "--minutes", "0.0001", "--threads", "1", "--output", tmp_path / "out"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert [json.loads(line)["kind"] for line in (tmp_path / "out.jsonl").read_text().splitlines()] == ["facts"]
