"""Repairs of fairseq. The tests show each defect in plain fairseq, and then that it is repaired."""

import hashlib
import inspect
import sys
from argparse import Namespace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.distributed as dist
from fairseq import checkpoint_utils, options, utils
from fairseq.data import FairseqDataset, data_utils
from fairseq.data.bucket_pad_length_dataset import BucketPadLengthDataset
from fairseq.data.indexed_dataset import IndexedCachedDataset, IndexedDatasetBuilder
from fairseq.data.language_pair_dataset import LanguagePairDataset
from fairseq.data.token_block_dataset import TokenBlockDataset
from fairseq.dataclass.configs import EMAConfig
from fairseq.distributed import utils as distributed_utils
from fairseq.models import distributed_fairseq_model
from fairseq.models.ema.ema import EMA
from fairseq.tasks import FairseqTask
from hypothesis import given, settings, strategies as st

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.fairseq_repairs import batches, checkpoints, error_report, start_up


def batched_indices(batch_by_size, sizes, multiple, max_sentences=None, max_tokens=None):
    indices = np.argsort(sizes, kind="stable")
    return [
        index
        for batch in batch_by_size(
            indices,
            lambda index: sizes[index],
            num_tokens_vec=np.array(sizes, dtype=np.int64)[indices],
            max_tokens=max_tokens,
            max_sentences=max_sentences,
            required_batch_size_multiple=multiple,
        )
        for index in batch
    ]


def test_last_batch_is_kept():
    sizes = [3] * 13  # batches of 8 and 5; 5 is not a multiple of 8
    assert batched_indices(data_utils.batch_by_size.__wrapped__, sizes, 8, max_sentences=8) == list(range(8))
    assert batched_indices(data_utils.batch_by_size, sizes, 8, max_sentences=8) == list(range(13))


@settings(deadline=None, max_examples=200)
@given(
    sizes=st.lists(st.integers(1, 40), max_size=60),
    multiple=st.integers(1, 9),
    max_sentences=st.none() | st.integers(1, 20),
    max_tokens=st.none() | st.integers(40, 300),
)
def test_every_sentence_is_in_one_batch_in_order(sizes, multiple, max_sentences, max_tokens):
    batched = batched_indices(data_utils.batch_by_size, sizes, multiple, max_sentences, max_tokens)
    assert batched == list(np.argsort(sizes, kind="stable"))


def test_batching_takes_any_iterable_of_indices():
    batches = data_utils.batch_by_size(iter(range(5)), lambda index: 1, max_sentences=2, required_batch_size_multiple=2)
    assert [list(batch) for batch in batches] == [[0, 1], [2, 3], [4]]


def test_batching_without_the_defect_is_unchanged(monkeypatch):
    def repaired(indices, *args, **kwargs):
        return [indices]

    monkeypatch.setattr(data_utils, "batch_by_size", repaired)
    batches.keep_last_batch()
    assert data_utils.batch_by_size is repaired


@pytest.fixture
def plain_torch_load():
    """Use torch.load without the plugin's trusted classes for one test."""
    safe_globals = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    yield
    torch.serialization.clear_safe_globals()
    torch.serialization.add_safe_globals(safe_globals)


def test_training_resumes_from_its_checkpoint(make_corpus, run_fairseq, tiny_training, tmp_path, plain_torch_load):
    data, save_dir = make_corpus(), tmp_path / "checkpoints"
    flags = [*tiny_training, "--store-ema", "--ema-fp32", "--save-dir", save_dir]
    flags += ["--eval-bleu", "--eval-bleu-args", '{"beam": 1, "max_len_b": 3}']
    flags += ["--best-checkpoint-metric", "bleu", "--maximize-best-checkpoint-metric"]
    run_fairseq("train", data, *flags)
    last = str(save_dir / "checkpoint_last.pt")
    with pytest.raises(Exception, match="argparse.Namespace"):
        checkpoint_utils.load_checkpoint_to_cpu(last)
    checkpoints.trust_classes_in_checkpoints()
    first = checkpoint_utils.load_checkpoint_to_cpu(last)
    # 21 sentences in batches of 4 make 6 updates. The last has one sentence, which plain fairseq would skip.
    assert first["optimizer_history"][-1]["num_updates"] == 6
    run_fairseq("train", data, *flags, "--max-epoch", 2)
    assert checkpoint_utils.load_checkpoint_to_cpu(last)["optimizer_history"][-1]["num_updates"] == 12


def test_numpy_values_in_a_checkpoint(tmp_path, plain_torch_load):
    # --eval-bleu logs arrays of counts, and a criterion may log NumPy numbers.
    values = {"counts": np.array([1.0, 2.0]), "sizes": np.arange(3), "best": np.float64(27.5), "step": np.int64(3)}
    torch.save(values, tmp_path / "logs.pt")
    with pytest.raises(Exception, match="numpy"):
        torch.load(tmp_path / "logs.pt")
    checkpoints.trust_classes_in_checkpoints()
    loaded = torch.load(tmp_path / "logs.pt")
    assert all(np.array_equal(loaded[name], value) for name, value in values.items())


def test_parts_of_the_test_set(make_corpus, run_fairseq, tiny_training, tmp_path):
    """fairseq-generate translates each sentence in one part. Plain fairseq translates all sentences in every part."""
    data = make_corpus(test=5)
    run_fairseq("train", data, *tiny_training, "--max-update", 1, "--save-dir", tmp_path / "ck")
    flags = [
        "--path",
        tmp_path / "ck" / "checkpoint_last.pt",
        "--beam",
        1,
        "--cpu",
        "--batch-size",
        1,
        "--num-shards",
        2,
    ]
    sizes, found = [], []
    for part in (0, 1):
        run_fairseq("generate", data, *flags, "--shard-id", part, "--results-path", tmp_path / f"{part}")
        lines = open(tmp_path / f"{part}" / "generate-test.txt").read().splitlines()
        numbers = [line.split("\t")[0] for line in lines if line.startswith("H-")]
        sizes.append(len(numbers))
        found += numbers
    assert sizes == [3, 2] and sorted(found) == [f"H-{i}" for i in range(5)]
    with pytest.raises(InputError, match="^--num-shards 2: this command would score .* select a part with --shard-id$"):
        run_fairseq("generate", data, *flags)
    with pytest.raises(
        InputError, match="^--num-shards 2: fairseq-interactive translates every line; remove the flag$"
    ):
        run_fairseq("interactive", data, *flags, "--shard-id", 1)
    flags[-1] = 6
    with pytest.raises(
        InputError, match="^--shard-id 5: this part is empty, because the data has only 5 batches; give "
    ):
        run_fairseq("generate", data, *flags, "--shard-id", 5)


@pytest.mark.parametrize("flags", [(), ("--dataset-impl", "cached")])
def test_data_of_fairseqs_first_format(make_corpus, run_fairseq, tiny_training, flags):
    """Plain fairseq ends in a KeyError, because it reads the first batch before it fills the cache."""
    data = make_corpus()
    for file in list(data.glob("*.idx")):
        prefix = file.with_suffix("")
        sentences = [sentence.clone() for sentence in data_utils.load_indexed_dataset(str(prefix))]
        builder = IndexedDatasetBuilder(f"{prefix}.bin")
        for sentence in sentences:
            builder.add_item(sentence)
        builder.finalize(f"{prefix}.idx")
    run_fairseq("train", data, *tiny_training, "--no-save", *flags)
    with pytest.raises(KeyError):
        IndexedCachedDataset.__getitem__.__wrapped__(IndexedCachedDataset(str(data / "train.en-de.en")), 0)


def test_fine_tuning_of_mbart(make_corpus, run_fairseq, tiny_training, tmp_path):
    data, folder = make_corpus(test=5), tmp_path / "ck"
    task = "--task translation_from_pretrained_bart --langs en,de --source-lang en --target-lang de".split()
    run_fairseq("train", data, *tiny_training, *task, "--prepend-bos", "--max-update", 2, "--save-dir", folder)
    flags = ["--path", folder / "checkpoint_last.pt", "--beam", 1, "--cpu", "--results-path", tmp_path / "out"]
    run_fairseq("generate", data, *task, *flags)
    hypotheses = [line for line in open(tmp_path / "out" / "generate-test.txt") if line.startswith("H-")]
    assert len(hypotheses) == 5


@pytest.mark.parametrize("command", ["generate", "eval_lm"])
def test_scoring_with_several_ranks_is_refused(run_fairseq, capsys, command):
    with pytest.raises(
        InputError,
        match="^--distributed-world-size 2: this command would score only the first of 2 parts of the data",
    ):
        run_fairseq(command, "no-data", "--path", "no-model", "--distributed-world-size", 2)


def test_buckets_of_lengths():
    # Each bucket has a third of the lengths 1 to 9, and its size is the largest of them.
    assert data_utils.get_buckets(np.arange(1, 10), 3).tolist() == [3, 6, 9]
    tensors = Lengths([torch.ones(length) for length in range(1, 10)])
    padded = BucketPadLengthDataset(tensors, np.arange(1, 10), num_buckets=3, pad_idx=0, left_pad=False)
    assert [len(padded[i]) for i in range(9)] == [3, 3, 3, 6, 6, 6, 9, 9, 9]


def test_unused_validation_data_is_refused(make_corpus, run_fairseq, tiny_training, tmp_path, monkeypatch):
    data = make_corpus()
    for file in data.glob("valid.*"):
        (data / file.name.replace("valid.", "valid1.")).write_bytes(file.read_bytes())
    with pytest.raises(
        InputError,
        match="^--valid-subset valid: Valid paths .*valid1.* will be ignored. Set --combine-val to combine them or ",
    ):
        run_fairseq("train", data, *tiny_training, "--save-dir", tmp_path / "ck")


def test_language_model_checkpoint_loads(make_corpus, run_fairseq, tmp_path):
    # The flags of a language model are a DictConfig, not a Namespace.
    flags = (
        "--cpu --task language_modeling --arch transformer_lm --decoder-layers 1 --decoder-embed-dim 8"
        " --decoder-ffn-embed-dim 8 --decoder-attention-heads 1 --optimizer adam --lr 0.001 --batch-size 4"
        " --tokens-per-sample 8 --max-epoch 1 --num-workers 0 --log-format none --sample-break-mode eos"
    ).split()
    run_fairseq("train", make_corpus(), *flags, "--save-dir", tmp_path / "lm")
    state = checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "lm" / "checkpoint_last.pt"))
    assert state["cfg"]["model"]["_name"] == "transformer_lm"


def test_generation_scores_every_sentence(make_corpus, run_fairseq, tiny_training, tmp_path):
    data = make_corpus(test=5)
    run_fairseq("train", data, *tiny_training, "--save-dir", tmp_path / "ck")
    flags = ["--path", tmp_path / "ck" / "checkpoint_last.pt", "--beam", 1, "--cpu", "--results-path", tmp_path / "out"]
    run_fairseq("generate", data, *flags, "--batch-size", 4, "--max-len-b", 3)
    hypotheses = [line for line in open(tmp_path / "out" / "generate-test.txt") if line.startswith("H-")]
    assert sorted(line.split("\t")[0] for line in hypotheses) == [f"H-{i}" for i in range(5)]


def test_numpy_names_that_fairseq_uses(monkeypatch):
    def prompts():
        return TokenBlockDataset([torch.arange(3)], [3], None, pad=1, eos=2, break_mode="eos").sizes

    dictionary = SimpleNamespace(pad=lambda: 1, eos=lambda: 2, unk=lambda: 3)
    pairs = LanguagePairDataset([torch.arange(3)], [3], dictionary)
    for name in ("compat", "int", "float"):
        monkeypatch.delattr(np, name, raising=False)
    with pytest.raises(AttributeError):
        prompts()
    with pytest.raises(AttributeError):
        _ = np.int, np.float
    start_up.restore_numpy_names()
    assert list(prompts()) == [3] and (np.int, np.float) == (int, float)
    assert list(pairs.num_tokens_vec(np.array([0]))) == [3]


def parse(function, *flags):
    parser = options.get_training_parser()
    return function(parser, ["data", "--arch", "transformer_tiny", *flags])


def test_bf16_does_not_imply_a_tpu():
    assert parse(inspect.unwrap(options.parse_args_and_arch), "--bf16").tpu is True
    for flag in ("--bf16", "--memory-efficient-bf16"):
        args = parse(options.parse_args_and_arch, flag)
        assert (args.bf16, args.tpu) == (True, False)
    assert parse(options.parse_args_and_arch, "--bf16", "--tpu").tpu is True
    assert parse(options.parse_args_and_arch).tpu is False


def test_bf16_trains_a_plain_model(make_corpus, run_fairseq, tiny_training, tmp_path):
    run_fairseq("train", make_corpus(), *tiny_training, "--bf16", "--save-dir", tmp_path / "ck")
    state = checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "ck" / "checkpoint_last.pt"))
    weight = state["model"]["encoder.layers.0.fc1.weight"]  # fairseq always stores float32
    assert torch.equal(weight, weight.bfloat16().float())


class Lengths(list):
    """List of tensors with the interface of a data set."""

    supports_prefetch = False


class Pairs(FairseqDataset):
    """Data set of eight items in an order drawn from NumPy's global generator."""

    can_reuse_epoch_itr_across_epochs = True
    collater = list

    def __len__(self):
        return 8

    def ordered_indices(self):
        return np.random.permutation(8)

    def num_tokens(self, index):
        return 1


def test_pruning_one_stack_keeps_the_other():
    names = [
        "encoder.layers.0.fc1.weight",
        "encoder.layers.1.fc1.weight",
        "decoder.layers.0.fc1.weight",
        "decoder.embed",
    ]
    states = {name: torch.tensor(i) for i, name in enumerate(names)}
    repaired = checkpoint_utils.prune_state_dict
    for prune, lost in ((repaired.__wrapped__, {"decoder.layers.0.fc1.weight"}), (repaired, set())):
        pruned = prune(dict(states), Namespace(arch="transformer", encoder_layers_to_keep="1"))
        # layer 1 of the encoder, worth 1, is layer 0 now
        whole = {"encoder.layers.0.fc1.weight": 1, "decoder.layers.0.fc1.weight": 2, "decoder.embed": 3}
        assert {name: int(t) for name, t in pruned.items()} == {n: v for n, v in whole.items() if n not in lost}
    both = Namespace(arch="transformer", encoder_layers_to_keep="1", decoder_layers_to_keep="0")
    assert set(repaired(dict(states), both)) == set(whole)
    assert repaired(states, Namespace(arch="transformer")) is states


def test_a_resumed_run_keeps_its_batches():
    def batches(get_batch_iterator, **flags):
        iterator = get_batch_iterator(FairseqTask(Namespace()), Pairs(), max_sentences=2, seed=5, **flags)
        return [list(batch) for batch in iterator.frozen_batches], iterator.epoch

    plain, repaired = inspect.unwrap(FairseqTask.get_batch_iterator), FairseqTask.get_batch_iterator
    expected, _ = batches(plain, epoch=1)
    assert batches(plain, epoch=3)[0] != expected
    assert batches(repaired, epoch=3) == (expected, 3)
    # If a run makes new batches for each epoch, a resumed run does too.
    assert batches(repaired, epoch=3, disable_iterator_cache=True) == batches(plain, epoch=3)


def test_the_batches_of_the_first_epoch_are_reused():
    task, pairs = FairseqTask(Namespace()), Pairs()
    first = task.get_batch_iterator(pairs, epoch=1)
    assert task.get_batch_iterator(pairs, epoch=2) is first and first.epoch == 1


@pytest.fixture
def gloo(tmp_path, monkeypatch):
    """Start a process group of one rank, as in fairseq-train."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # torch replaces it, and monkeypatch restores it
    monkeypatch.setattr(sys, "argv", ["/bin/fairseq-train"])
    error_report.install_in_command()
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_ddp_wraps_a_cpu_module(gloo, monkeypatch):
    flags = Namespace(
        tpu=False, ddp_backend="pytorch_ddp", device_id=0, broadcast_buffers=False, bucket_cap_mb=25,
        find_unused_parameters=False, gradient_as_bucket_view=False, ddp_comm_hook="none", heartbeat_timeout=-1,
    )  # fmt: skip

    def wrap():
        model = torch.nn.Linear(2, 2)
        return distributed_fairseq_model.DistributedFairseqModel(flags, model, None, torch.device("cpu"))

    wrap()(torch.ones(1, 2)).sum().backward()
    monkeypatch.setattr(distributed_fairseq_model, "DistributedDataParallel", torch.nn.parallel.DistributedDataParallel)
    with pytest.raises(ValueError, match="device_ids"):
        wrap()


@pytest.mark.skipif(torch.cuda.is_available(), reason="plain fairseq gathers through the CUDA device")
def test_objects_are_gathered_on_cpus(gloo, monkeypatch):
    group, repaired = dist.group.WORLD, distributed_utils.all_gather_list
    assert repaired({"loss": 1.5}, group=group) == [{"loss": 1.5}]
    monkeypatch.setattr(distributed_utils, "all_gather_list", repaired.__wrapped__)
    with pytest.raises(Exception, match="(?i)cuda|type|nvidia"):
        distributed_utils.all_gather_list({"loss": 1.5}, group=group)


class PartlyFrozen(torch.nn.Module):
    """Model with a frozen and a trained layer, a second name of the frozen weight, and three buffers."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.frozen, self.trained = torch.nn.Linear(7, 7), torch.nn.Linear(7, 7)
        self.tied = torch.nn.Linear(7, 7, bias=False)
        self.tied.weight = self.frozen.weight
        self.frozen.requires_grad_(False)
        self.register_buffer("constant", torch.rand(11))
        self.register_buffer("mean", torch.zeros(1))
        self.register_buffer("count", torch.zeros(1, dtype=torch.long))


def sha256(tensor):
    return hashlib.sha256(tensor.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()


FROZEN = ["frozen.weight", "frozen.bias", "tied.weight", "constant"]


def average(step, model, updates=200, **flags):
    """Return the EMA copy after ``updates`` updates with the given ``_step_internal``."""
    ema = EMA(model, EMAConfig(store_ema=True, ema_decay=0.9999, **flags))
    for _ in range(updates):
        with torch.no_grad():
            model.trained.weight += 0.01
            model.mean += 1
        step(ema, model)
    return ema.get_model().state_dict()


@pytest.mark.parametrize("half, fp32", [(False, False), (False, True), (True, False), (True, True)])
def test_ema_keeps_frozen_tensors_exactly(half, fp32):
    model = PartlyFrozen().half() if half else PartlyFrozen()
    model.count += 41
    expected = {name: sha256(model.state_dict()[name]) for name in FROZEN}
    start = model.trained.weight.clone()
    copy = average(EMA._step_internal, model, ema_fp32=fp32)
    assert {name: sha256(copy[name]) for name in FROZEN} == expected
    assert copy["count"].item() == 41
    if not half:  # tensors that change are averaged as before: 0 < copy - start < model - start
        assert (copy["trained.weight"] > start).all() and (copy["trained.weight"] < model.trained.weight).all()
        assert 0 < copy["mean"].item() < 200


def test_ema_averages_buffers_that_change():
    """The average of ``mean``, 0 before the update and 1 after it, is 0.9999 * 0 + 0.0001 * 1.

    Entries that do not change keep their value exactly, even if it is infinite.
    """
    model = PartlyFrozen()
    model.constant[0] = float("-inf")
    ema = EMA(model, EMAConfig(store_ema=True, ema_decay=0.9999))
    expected = model.constant.clone()
    model.mean += 1
    model.constant[1] += 1
    expected[1] = expected[1] * 0.9999 + (expected[1] + 1) * 0.0001
    ema.step(model)
    copy = ema.get_model()
    assert copy.mean.item() == pytest.approx(0.0001)
    torch.testing.assert_close(copy.constant, expected)
    assert copy.constant[2:].equal(model.constant[2:])


def test_plain_ema_lets_frozen_tensors_drift():
    model = PartlyFrozen()
    del model.count
    copy = average(EMA._step_internal.__wrapped__, model)
    assert any(sha256(copy[name]) != sha256(model.state_dict()[name]) for name in FROZEN)


def test_plain_ema_cannot_average_integers():
    with pytest.raises(RuntimeError, match="Long"):
        average(EMA._step_internal.__wrapped__, PartlyFrozen())


def hook_output(monkeypatch, capsys, program, error):
    """Return (line on stderr, exit status or None) of the exception hook in ``program``."""

    monkeypatch.setattr(sys, "argv", [program])
    monkeypatch.setattr(sys, "excepthook", lambda *_: print("TRACEBACK", file=sys.stderr))
    error_report.install_in_command()
    hook = sys.excepthook
    error_report.install_in_command()
    assert sys.excepthook is hook
    status = None
    try:
        hook(type(error), error, None)
    except SystemExit as exit_error:
        status = exit_error.code
    return capsys.readouterr().err, status


def caused(outer, cause=None, context=None):
    outer.__cause__, outer.__context__ = cause, context
    return outer


@pytest.mark.parametrize(
    "error",
    [
        InputError("--flag: no"),
        caused(RuntimeError("x"), cause=InputError("--flag: no")),
        caused(RuntimeError("x"), context=caused(KeyError("y"), cause=InputError("--flag: no"))),
    ],
)
def test_input_errors_are_one_line(monkeypatch, capsys, error):
    assert hook_output(monkeypatch, capsys, "/bin/fairseq-train", error) == ("fairseq-train: error: --flag: no\n", 2)


def test_other_errors_and_other_programs_keep_their_traceback(monkeypatch, capsys):
    assert hook_output(monkeypatch, capsys, "/bin/fairseq-train", ValueError("x")) == ("TRACEBACK\n", None)
    assert hook_output(monkeypatch, capsys, "/bin/mine.py", InputError("x")) == ("TRACEBACK\n", None)


def test_input_errors_in_a_process_group(gloo, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["/bin/fairseq-train"])
    sys.excepthook(InputError, InputError("--flag: no"), None)  # torch's hook, which wraps ours
    assert capsys.readouterr().err == "[rank0]: fairseq-train: error: --flag: no\n"


class Shell:
    """Like IPython's shell, which uses a bound method as its exception hook."""

    def show(self, kind, error, traceback):
        print("TRACEBACK", file=sys.stderr)


def test_a_shells_own_hook_gets_all_other_errors(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["/lib/fairseq_cli/train.py"])
    monkeypatch.setattr(sys, "excepthook", Shell().show)
    error_report.install_in_command()
    sys.excepthook(ValueError, ValueError("x"), None)
    with pytest.raises(SystemExit):
        sys.excepthook(InputError, InputError("--flag: no"), None)
    assert capsys.readouterr().err == "TRACEBACK\nfairseq-train: error: --flag: no\n"


@pytest.mark.parametrize("start", [
    lambda: options.parse_args_and_arch(options.get_training_parser(), ["data", "--arch", "transformer"]),
    lambda: utils.import_user_module(Namespace(user_dir=None)),  # fairseq-preprocess starts with it
])  # fmt: skip
def test_the_hook_is_installed_only_in_commands(monkeypatch, start):
    before = Shell().show
    for program, is_command in (("/home/me/train.py", False), ("/bin/fairseq-train", True)):
        monkeypatch.setattr(sys, "argv", [program])
        monkeypatch.setattr(sys, "excepthook", before)
        start()
        assert (sys.excepthook != before) is is_command


def test_cyclic_chains_of_errors_are_searched_once():
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__context__ = second, first
    assert error_report.find_input_error(first) is None


@pytest.mark.parametrize(
    "program, command",
    [
        ("/env/bin/fairseq-eval-lm", "fairseq-eval-lm"),
        ("/env/lib/fairseq_cli/eval_lm.py", "fairseq-eval-lm"),
        ("/home/me/train.py", None),
    ],
)
def test_name_of_the_command(monkeypatch, program, command):
    monkeypatch.setattr("sys.argv", [program])
    assert error_report.fairseq_command() == command


@pytest.mark.parametrize("plain", [True, False])
def test_a_tied_tensor_trained_in_half_precision_is_stored_once(plain):
    move_to_cpu = utils.move_to_cpu.__wrapped__ if plain else utils.move_to_cpu
    embedding = torch.arange(6.0).reshape(2, 3).half()
    views = {"projection": embedding.detach(), "turned": embedding.T, "first": embedding[:1]}
    moved = move_to_cpu({"embed": embedding, **views, "step": torch.tensor(5.0)})
    assert (moved["embed"].data_ptr() == moved["projection"].data_ptr()) is not plain
    assert torch.equal(moved["embed"], embedding.float()) and torch.equal(moved["turned"], embedding.T.float())
    assert torch.equal(moved["first"], torch.tensor([[0.0, 1.0, 2.0]])) and moved["step"] == 5
