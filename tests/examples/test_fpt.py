"""Frozen pretrained Transformers: GPT-2's logits, the examples of the tasks, the arms, and a table by hand."""

import argparse
import gzip
import json
import math
import re
import shlex
import struct
import sys

import numpy as np
import pytest
import torch
from fairseq.utils import import_user_module
from safetensors.torch import save_file

from fairseq_reservoir.errors import InputError
from tests.examples.test_multi30k import EXAMPLES, bash
from tests.support.logs import Writer
from tests.support.scripts import run_script

FOLDER = EXAMPLES / "fpt"
import_user_module(argparse.Namespace(user_dir=str(FOLDER)))
model, pretrained, problems = (sys.modules[f"fpt.{name}"] for name in ("model", "pretrained", "problems"))
README = (FOLDER / "README.md").read_text()
SIZES = {"vocab_size": 11, "n_positions": 7, "n_embd": 8, "n_layer": 2, "n_head": 2}


def gpt2_tensors():
    """Random tensors under the names of Hugging Face's GPT2LMHeadModel, with LayerNorms that are not the identity."""
    draw, width = torch.Generator().manual_seed(1), SIZES["n_embd"]
    shapes = {"wte.weight": (SIZES["vocab_size"], width), "wpe.weight": (SIZES["n_positions"], width)}
    norms = ["ln_f", *(f"h.{depth}.ln_{number}" for depth in range(SIZES["n_layer"]) for number in (1, 2))]
    for depth in range(SIZES["n_layer"]):
        for name, rows, columns in (
            ("attn.c_attn", width, 3 * width), ("attn.c_proj", width, width),
            ("mlp.c_fc", width, 4 * width), ("mlp.c_proj", 4 * width, width),
        ):  # fmt: skip
            shapes |= {f"h.{depth}.{name}.weight": (rows, columns), f"h.{depth}.{name}.bias": (columns,)}
    shapes |= {f"{norm}.{part}": (width,) for norm in norms for part in ("weight", "bias")}
    return {f"transformer.{name}": torch.randn(shape, generator=draw) / 2 for name, shape in shapes.items()}


@pytest.fixture
def gpt2(tmp_path):
    folder = tmp_path / "gpt2"
    folder.mkdir()
    config = {"model_type": "gpt2", "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "n_inner": None}
    (folder / "config.json").write_text(json.dumps({**SIZES, **config}))
    save_file(gpt2_tensors(), folder / "model.safetensors")
    return folder


def our_logits(folder, symbols, tables):
    """Logits at all positions of our blocks, between the token table of GPT-2 as input and output layer."""
    given = pretrained.read_gpt2(str(folder))
    time = symbols.shape[1]
    shape = problems.Shape(len(tables), True, time, time, 1, len(tables))
    blocks = model.Blocks(argparse.Namespace(**given.sizes, dropout=0.0, attention_dropout=0.0), shape).eval()
    assert blocks.start_from(given.tensors) == time
    with torch.no_grad():
        blocks.embed_tokens.weight.copy_(tables)
        blocks.output_projection.weight.copy_(tables)
        blocks.output_projection.bias.zero_()
        return blocks(symbols, torch.full((len(symbols),), time))[0]


def gpt2_by_hand(tensors, symbols):
    """GPT-2's equations in double precision, one sequence of the batch and one head after the other."""
    t = {name.removeprefix("transformer."): tensor.double() for name, tensor in tensors.items()}
    heads, width = SIZES["n_head"], SIZES["n_embd"]

    def norm(x, name):
        x = x - x.mean(1, keepdim=True)
        return x / ((x**2).mean(1, keepdim=True) + 1e-5).sqrt() * t[f"{name}.weight"] + t[f"{name}.bias"]

    def product(x, name):
        return x @ t[f"{name}.weight"] + t[f"{name}.bias"]

    logits = []
    for sequence in symbols:
        x, time = t["wte.weight"][sequence] + t["wpe.weight"][: len(sequence)], len(sequence)
        for block in (f"h.{depth}" for depth in range(SIZES["n_layer"])):
            query, key, value = product(norm(x, f"{block}.ln_1"), f"{block}.attn.c_attn").split(width, 1)
            results = []
            for part in torch.arange(width).chunk(heads):
                scores = query[:, part] @ key[:, part].T / math.sqrt(width / heads)
                weights = scores.masked_fill(torch.ones(time, time).triu(1).bool(), -math.inf).softmax(1)
                results.append(weights @ value[:, part])
            x = x + product(torch.cat(results, 1), f"{block}.attn.c_proj")
            inner = product(norm(x, f"{block}.ln_2"), f"{block}.mlp.c_fc")
            inner = inner / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (inner + 0.044715 * inner**3)))
            x = x + product(inner, f"{block}.mlp.c_proj")
        logits.append(norm(x, "ln_f") @ t["wte.weight"].T)
    return torch.stack(logits)


SEQUENCES = torch.tensor([[3, 1, 4, 1, 5, 9, 2], [6, 5, 3, 5, 8, 9, 7]])


def test_logits_are_those_of_gpt2s_equations(gpt2):
    tensors = gpt2_tensors()
    ours = our_logits(gpt2, SEQUENCES, tensors["transformer.wte.weight"])
    torch.testing.assert_close(ours.double(), gpt2_by_hand(tensors, SEQUENCES), rtol=0, atol=1e-4)


def test_logits_are_those_of_the_library_transformers(tmp_path):
    transformers = pytest.importorskip("transformers", reason="needs the package transformers")
    config = transformers.GPT2Config(**SIZES, bos_token_id=0, eos_token_id=0, initializer_range=0.5)
    theirs = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter += 0.1 * torch.randn_like(parameter)  # biases and LayerNorms, too
    theirs.save_pretrained(tmp_path / "saved")
    with torch.no_grad():
        expected = theirs(SEQUENCES).logits
    ours = our_logits(tmp_path / "saved", SEQUENCES, theirs.transformer.wte.weight)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("change, message", [
    ({"model_type": "llama"}, "model_type is 'llama' in config.json, but must be 'gpt2'"),
    ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True"),
    ({"activation_function": "silu"}, "activation_function 'silu' is not one of gelu_new, gelu, relu"),
    ({"n_layer": 3}, "the tensor h.2.attn.c_attn.weight is missing"),
])  # fmt: skip
def test_other_models_are_refused(change, message, gpt2):
    config = json.loads((gpt2 / "config.json").read_text())
    (gpt2 / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(InputError, match=re.escape(message)):
        pretrained.read_gpt2(str(gpt2))


def test_a_folder_without_weights_is_refused(gpt2, tmp_path):
    (gpt2 / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"no \.safetensors file"):
        pretrained.read_gpt2(str(gpt2))
    with pytest.raises(InputError, match=r"config\.json cannot be read"):
        pretrained.read_gpt2(str(tmp_path))


def test_the_answers_are_read_from_the_last_real_tokens(gpt2):
    """Padding at the end changes nothing."""
    given = pretrained.read_gpt2(str(gpt2))
    shape = problems.Shape(3, False, 9, 2, 2, 4)
    cfg = argparse.Namespace(**given.sizes, dropout=0.0, attention_dropout=0.0)
    blocks = model.Blocks(cfg, shape).eval()
    assert blocks.start_from(given.tensors) == 7  # of nine positions
    inputs = torch.randn(2, 9, 3)
    short, _ = blocks(inputs[1:, :5], torch.tensor([5]))
    logits, _ = blocks(inputs, torch.tensor([9, 5]))
    assert logits.shape == (2, 2 * 2, 4)
    torch.testing.assert_close(logits[1:], short)


def config(problem, **settings):
    defaults = {"files": None, "examples": 50, "bits": None, "chunk": None, "draw_seed": 1}
    return argparse.Namespace(problem=problem, **{**defaults, **settings})


def test_bits():
    """Memory has 5 + 1 strings of 20 tokens of 50 bits, xor 2 strings of five bits: as in the paper."""
    task = problems.problem(config("memory"))
    assert task.shape == problems.Shape(50, False, 120, 20, 50, 2)
    examples = task.examples("train")
    for index in range(5):
        inputs, target = examples[index]["inputs"].reshape(6, 1000), examples[index]["target"]
        (asked,) = [string for string in inputs[:5] if torch.equal(string > 0, target == 1)]
        hidden = inputs[5] == 0
        assert torch.equal(inputs[5][~hidden], asked[~hidden]) and 400 < hidden.sum() < 600
    task = problems.problem(config("xor"))
    assert task.shape == problems.Shape(1, False, 10, 5, 1, 2)
    for index in range(20):
        one = task.examples("valid")[index]
        first, second = one["inputs"].reshape(2, 5).long()
        assert torch.equal(one["target"], (first + second) % 2)


def test_training_examples_are_drawn_anew_in_each_epoch():
    task = problems.problem(config("memory", bits=60, chunk=20))
    train, valid = task.examples("train"), task.examples("valid")
    before = train[3]["inputs"], valid[3]["inputs"]
    assert torch.equal(problems.problem(config("memory", bits=60, chunk=20)).examples("train")[3]["inputs"], before[0])
    for examples in (train, valid):
        examples.set_epoch(2)
    assert not torch.equal(train[3]["inputs"], before[0]) and torch.equal(valid[3]["inputs"], before[1])
    with pytest.raises(InputError, match="--chunk 7: does not divide the 60 bits"):
        problems.problem(config("memory", bits=60, chunk=7))


@pytest.mark.parametrize("words, value", [
    # the median of an even number of digits is the lower of the middle two; sums are modulo 10
    ("[MAX 2 9 ]", 9), ("[MIN 2 9 4 ]", 2), ("[MED 1 8 5 7 ]", 5), ("[SM 6 7 8 ]", 1), ("[MAX 3 [SM 4 [MIN 9 5 ] ] 8 ]", 9),
])  # fmt: skip
def test_values_of_expressions(words, value):
    assert evaluated(words.split()) == value


def evaluated(words):
    """Value of a ListOps expression, computed with a stack. The generator uses recursion."""
    stack = [[]]
    for word in words:
        if word.startswith("["):
            stack.append([word])
        elif word == "]":
            operator, *values = stack.pop()
            values.sort()
            value = {
                "[MAX": values[-1],
                "[MIN": values[0],
                "[MED": values[(len(values) - 1) // 2],
                "[SM": sum(values) % 10,
            }[operator]
            stack[-1].append(value)
        else:
            stack[-1].append(int(word))
    ((value,),) = stack
    return value


def test_drawn_expressions_and_their_padding():
    examples, symbols = problems.problem(config("listops")).examples("test"), list(problems.SYMBOLS)
    chosen = [examples[index] for index in range(40)]
    for one in chosen:
        assert (
            evaluated([symbols[number] for number in one["inputs"]]) == one["target"].item()
            and len(one["inputs"]) <= 40
        )
    batch = examples.collater(chosen)
    lengths = batch["net_input"]["lengths"]
    assert (
        lengths.tolist() == [len(one["inputs"]) for one in chosen]
        and batch["net_input"]["inputs"].shape[1] == lengths.max()
    )
    assert batch["target"].shape == (40, 1) and batch["ntokens"] == 40


def test_listops_of_the_long_range_arena(tmp_path):
    line = "( ( ( ( [MAX 3 ) ( ( ( [SM 4 ) 9 ) ] ) ) 8 ) ] )\t8\n"
    for part in ("train", "val", "test"):
        (tmp_path / f"basic_{part}.tsv").write_text(f"Source\tTarget\n{line}")
    examples = problems.problem(config("listops", files=str(tmp_path))).examples("valid")
    symbols = list(problems.SYMBOLS)
    assert " ".join(symbols[number] for number in examples[0]["inputs"]) == "[MAX 3 [SM 4 9 ] 8 ]"
    assert len(examples) == 1 and examples[0]["target"].item() == 8 and examples.num_tokens(0) == 8
    (tmp_path / "basic_test.tsv").write_text("Source\tTarget\n( ( [AVG 3 ) ] )\t8\n")
    with pytest.raises(InputError, match=r"basic_test.tsv, line 2: '\[AVG' is not a symbol"):
        problems.problem(config("listops", files=str(tmp_path))).examples("test")


def write_mnist(folder, count, compress):
    draw = np.random.default_rng(1)
    for prefix in ("train", "t10k"):
        images, labels = draw.integers(0, 256, (count, 28, 28), np.uint8), np.arange(count, dtype=np.uint8) % 10
        for name, data in (
            (f"{prefix}-images-idx3-ubyte", struct.pack(">4i", 2051, count, 28, 28) + images.tobytes()),
            (f"{prefix}-labels-idx1-ubyte", struct.pack(">2i", 2049, count) + labels.tobytes()),
        ):
            (folder / (f"{name}.gz" if compress else name)).write_bytes(gzip.compress(data) if compress else data)
    return images


@pytest.mark.parametrize("compress", [False, True])
def test_mnist(compress, tmp_path):
    images = write_mnist(tmp_path, 12, compress)
    task = problems.problem(config("mnist", files=str(tmp_path)))
    assert task.shape == problems.Shape(16, False, 49, 1, 1, 10)
    assert [len(task.examples(part)) for part in ("train", "valid", "test")] == [6, 6, 12]
    one = task.examples("test")[11]
    assert one["target"].item() == 1
    # The ninth of 7 x 7 patches: rows 4 to 7, columns 4 to 7
    np.testing.assert_allclose(one["inputs"][8], images[11, 4:8, 4:8].reshape(-1) / 255, rtol=1e-6)


def write_cifar10(folder):
    draw = np.random.default_rng(2)
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        records = draw.integers(0, 256, (4, 3073), np.uint8)
        records[:, 0] = range(4)
        (folder / f"{name}.bin").write_bytes(records.tobytes())
    return records


def test_cifar10(tmp_path):
    records = write_cifar10(tmp_path)
    task = problems.problem(config("cifar10", files=str(tmp_path)))
    assert task.shape == problems.Shape(48, False, 64, 1, 1, 10)
    assert [len(task.examples(part)) for part in ("train", "valid", "test")] == [10, 10, 4]
    one = task.examples("test")[3]
    assert one["target"].item() == 3
    # Pixel (4, 1) is in patch 8 of 8 x 8, in its first row. The three channels of a pixel are neighbours.
    red, green, blue = (records[3, 1 + channel * 1024 + 4 * 32 + 1] / 255 for channel in range(3))
    expected = [(red - 0.4914) / 0.2023, (green - 0.4822) / 0.1994, (blue - 0.4465) / 0.2010]
    np.testing.assert_allclose(one["inputs"][8, 3:6], expected, rtol=1e-4)
    gray = problems.problem(config("cifar10-gray", files=str(tmp_path)))
    assert gray.shape == problems.Shape(1, False, 1024, 1, 1, 10)
    value = (0.2989 * red + 0.5870 * green + 0.1140 * blue - 0.4808) / 0.2392
    np.testing.assert_allclose(gray.examples("test")[3]["inputs"][4 * 32 + 1], [value], rtol=1e-4)


def test_shifted_and_mirrored_images(tmp_path):
    """A shift by two rows down and one column to the left, mirrored. No image of valid or test is changed."""
    image = np.arange(1, 32 * 32 * 3 + 1).reshape(32, 32, 3)

    class Draw:
        def integers(self, *arguments):
            return 1 if len(arguments) == 1 else (2, 5)

    moved = problems._moved(image, Draw())
    np.testing.assert_array_equal(moved[2:, 1:], image[:-2, 1:][:, ::-1])
    assert not moved[:2].any() and not moved[:, 0].any()
    write_cifar10(tmp_path)
    task = problems.problem(config("cifar10", files=str(tmp_path)))
    for part, same in (("train", False), ("valid", True)):
        examples = task.examples(part)
        before = examples[0]["inputs"]
        examples.set_epoch(2)
        assert torch.equal(examples[0]["inputs"], before) == same


def test_missing_files_are_named(tmp_path):
    with pytest.raises(InputError, match="--problem mnist: needs --files"):
        problems.problem(config("mnist"))
    for problem, name in (("mnist", "t10k-images"), ("cifar10", "test_batch.bin"), ("listops", "basic_test.tsv")):
        with pytest.raises(InputError, match=f"{name}.* cannot be read"):
            problems.problem(config(problem, files=str(tmp_path))).examples("test")


ARMS = dict(re.findall(r"^\| `([a-z-]+)` \|.*\| (?:`--freeze-except ([a-z,]+)`)? *\|$", README, flags=re.MULTILINE))


def commands(data, *arguments, **environment):
    """Words of every fairseq-train of a dry run."""
    settings = {"RUNS": str(data / "runs"), "DATA": str(data), "RATES": "1e-3 2e-2", "TASK": "xor", **environment}
    ended = bash(FOLDER / "run.sh", *arguments, DRY_RUN="1", **settings)
    assert ended.returncode == 0, ended.stderr
    lines = [shlex.split(line.partition("2>&1")[0]) for line in ended.stdout.splitlines()]
    return [line for line in lines if line[0] == "fairseq-train"]


def value(words, flag):
    return words[words.index(flag) + 1] if flag in words else None


@pytest.fixture
def data(tmp_path):
    """A folder with a text for pretraining."""
    for part, lines in {"train": 200, "valid": 20, "test": 20}.items():
        text = "".join(f"the cat number {number} sat on the mat\n" for number in range(lines))
        (tmp_path / f"{part}.txt.gz").write_bytes(gzip.compress(text.encode()))
    return tmp_path


@pytest.mark.parametrize("arm", [
    "trained", "trained-pretrained", *(f"frozen-{start}{end}" for start in ("pretrained", "random") for end in
                                      ("", "-out", "-out-ln", "-out-ln-in", "-ffn")),
])  # fmt: skip
def test_arms(arm, data):
    *pretraining, first, second = commands(data, ARM=arm)
    assert (value(first, "--lr"), value(second, "--lr")) == ("1e-3", "2e-2")
    assert value(first, "--freeze-except") == (ARMS[arm] or None)
    start = f"{data}/runs/pretrained-2000-1" if "pretrained" in arm else None
    assert value(first, "--from-lm") == (start and f"{start}/checkpoint_best.pt")
    assert [value(words, "--save-dir") for words in pretraining] == ([start] if start else [])
    given = commands(data, ARM=arm, FROM="gpt2")
    assert len(given) == 2 and value(given[0], "--from-gpt2") == ("gpt2" if start else None)
    assert "--decoder-layers" not in given[0]  # the defaults have GPT-2's size


@pytest.mark.parametrize(
    "change, message",
    {
        "an arm": ({"ARM": "frozen"}, "ARM='frozen': name one of trained, trained-pretrained, frozen-pretrained"),
        "a task": ({"TASK": "sst2"}, "TASK='sst2': name one of memory, xor, listops, mnist, cifar10, cifar10-gray"),
        "files": ({"TASK": "mnist"}, "FILES is not set: name the folder with the files of mnist"),
        "no text": ({"DATA": ""}, "DATA is not set"),
        "no such text": (
            {"DATA": "nowhere"},
            "DATA=nowhere: neither nowhere/train.txt nor nowhere/train.txt.gz exists",
        ),
        "a size": ({"SIZE": "gpt2-xl"}, "SIZE='gpt2-xl': a pretrained model of this size needs FROM"),
    }.values(),
)
def test_wrong_settings_are_named(change, message, data):
    settings = {"ARM": "frozen-pretrained", "TASK": "xor", "DATA": str(data), "DRY_RUN": "1", **change}
    ended = bash(FOLDER / "run.sh", **settings)
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1) and f"fpt: {message}" in ended.stderr


def write_run(folder, valid, test, wall):
    log = Writer(folder, per_epoch=50, mflop=None).start()
    for epoch, (accuracy, seconds) in enumerate(zip(valid, (50, wall)), 1):
        log.valid(50 * epoch, loss=1, accuracy=accuracy).epoch(50 * epoch, seconds, 100, 60 * epoch)
    log.done().write()
    (folder / "test.log").write_text(f'| INFO | test | {{"test_accuracy": "{test}"}}\n')


def test_the_table_chooses_by_valid(tmp_path):
    write_run(tmp_path / "arm" / "1e-3", (70, 75), 90, 10)
    write_run(tmp_path / "arm" / "2e-2", (80, 60), 62.5, 10)  # the best checkpoint is the first
    write_run(tmp_path / "other" / "1e-3", (80, 80), 50, 40)
    write_run(tmp_path / "other" / "2e-2", (80, 80), 99, 40)  # of equal rates the smaller one
    lines = run_script(FOLDER / "report.py", tmp_path / "arm", tmp_path / "other").stdout.splitlines()
    assert lines[0] == "| arm | trained | valid, 1e-3 | valid, 2e-2 | best rate | test | minutes |"
    # Minutes: 50 + 10 s and 50 + 40 s, twice
    assert lines[2] == "| arm | 1,417,344 | 75.0 | 80.0 | 2e-2 | **62.5** | 2.0 |"
    assert lines[3] == "| other | 1,417,344 | 80.0 | 80.0 | 1e-3 | **50.0** | 3.0 |"


@pytest.mark.slow
def test_a_tiny_gpt2_from_beginning_to_end(gpt2, tmp_path):
    """Trained: 4dL + 2d of LayerNorms, d for each of 49 positions, 16d + d of the input and 10d + 10 of the output layer."""
    write_mnist(tmp_path, 20, False)
    settings = {"FROM": str(gpt2), "FILES": str(tmp_path), "TASK": "mnist", "ARM": "frozen-pretrained", "GPUS": "0"}
    ended = bash(FOLDER / "run.sh", RUNS=str(tmp_path / "runs"), RATES="1e-3", UPDATES="3", **settings)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    row = ended.stdout.splitlines()[-1]
    width, layers = SIZES["n_embd"], SIZES["n_layer"]
    count = 4 * width * layers + 2 * width + 49 * width + 17 * width + 10 * width + 10
    assert row.startswith(f"| frozen-pretrained-gpt2-3-1 | {count:,} |")
    state = torch.load(next((tmp_path / "runs").rglob("checkpoint_last.pt")), weights_only=False)["model"]
    given = pretrained.read_gpt2(str(gpt2)).tensors
    same = {
        name: torch.equal(state[f"decoder.{name}"], tensor) for name, tensor in given.items() if "positions" not in name
    }
    assert {name for name, equal in same.items() if equal} == {name for name in same if "layer_norm" not in name}
