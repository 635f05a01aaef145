"""Examples of the tasks, with the sizes of the paper: drawn bits, ListOps, and images from their usual files.

memory: ``bits`` bits in each of five strings, then one string again with half of its bits hidden; the answer is that string.
xor: two strings; the answer is their bitwise exclusive or. listops: an expression such as ``[MAX 3 [SM 4 [MIN 9 5 ] ] 8 ]``; the
answer is its value. mnist, cifar10: patches of 4 x 4 pixels; cifar10-gray: single gray pixels; the answer is the class.
"""

import gzip
import random
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from fairseq.data import FairseqDataset

from fairseq_reservoir.errors import InputError

PARTS = {"train": 0, "valid": 1, "test": 2}
DRAWN = 1000  # examples in valid and in test of a drawn task
HELD_OUT = 5000  # images of the training set that are used as valid
STRINGS = {"memory": 5, "xor": 2}
# Default bits of a string and of a token.
BITS = {"memory": (1000, 50), "xor": (5, 1)}
OPERATORS = {
    "[MAX": max,
    "[MIN": min,
    "[MED": lambda values: sorted(values)[(len(values) - 1) // 2],
    "[SM": lambda values: sum(values) % 10,
}
SYMBOLS = {symbol: number for number, symbol in enumerate((*"0123456789", *OPERATORS, "]"))}
LISTOPS_LENGTH = 512  # longer expressions are cut after this many symbols
CIFAR_MEAN, CIFAR_STD = np.array([[0.4914, 0.4822, 0.4465], [0.2023, 0.1994, 0.2010]], dtype=np.float32)
GRAY, GRAY_MEAN, GRAY_STD = np.array([0.2989, 0.5870, 0.1140], dtype=np.float32), 0.4808, 0.2392
MARGIN = 4  # pixels by which an image is shifted, at most


class Shape(NamedTuple):
    """Sizes of a task's input and output.

    width: width of a vector, or number of symbols if ``symbols``. length: longest sequence. positions: number of last tokens from
    which answers are read. groups: answers per such token. classes: values of an answer.
    """

    width: int
    symbols: bool
    length: int
    positions: int
    groups: int
    classes: int


class Examples(FairseqDataset):
    """Examples (input, target) by index.

    Args:
        size: number of examples.
        example: function (epoch, index) -> arrays of the input (time[, width]) and the target.
        lengths: lengths of the inputs, or one length for all.
    """

    def __init__(self, size, example, lengths):
        self.example, self.epoch = example, 1
        self.sizes = np.broadcast_to(lengths, size)

    def __len__(self):
        return len(self.sizes)

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __getitem__(self, index):
        inputs, target = self.example(self.epoch, int(index))
        return {
            "id": int(index),
            "inputs": torch.as_tensor(inputs),
            "target": torch.as_tensor(target).long().reshape(-1),
        }

    def collater(self, samples):
        if not samples:
            return {}
        inputs = [sample["inputs"] for sample in samples]
        target = torch.stack([sample["target"] for sample in samples])
        return {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "net_input": {
                "inputs": torch.nn.utils.rnn.pad_sequence(inputs, batch_first=True),
                "lengths": torch.tensor([len(one) for one in inputs]),
            },
            "target": target,
            "nsentences": len(samples),
            "ntokens": target.numel(),
        }

    def num_tokens(self, index):
        return int(self.sizes[index])

    def size(self, index):
        return int(self.sizes[index])


class Bits:
    """Drawn strings of bits. ``memory`` has inputs of -1, 0 (hidden) and 1, ``xor`` of 0 and 1, as in the paper's code."""

    def __init__(self, cfg):
        self.name, self.seed, self.size = str(cfg.problem), cfg.draw_seed, cfg.examples
        bits, chunk = BITS[self.name]
        self.bits, self.chunk, self.strings = cfg.bits or bits, cfg.chunk or chunk, STRINGS[self.name]
        if self.bits % self.chunk:
            raise InputError(f"--chunk {self.chunk}: does not divide the {self.bits} bits of a string")
        tokens = self.bits // self.chunk
        shown = self.strings + (self.name == "memory")
        self.shape = Shape(self.chunk, False, shown * tokens, tokens, self.chunk, 2)

    def examples(self, part):
        def example(epoch, index):
            draw = np.random.default_rng([self.seed, PARTS[part], epoch if part == "train" else 0, index])
            inputs, target = getattr(self, self.name)(draw.integers(0, 2, (self.strings, self.bits)), draw)
            return inputs.reshape(-1, self.chunk).astype(np.float32), target

        return Examples(self.size if part == "train" else DRAWN, example, self.shape.length)

    def memory(self, strings, draw):
        asked = strings[draw.integers(len(strings))]
        shown = (2 * asked - 1) * draw.integers(0, 2, self.bits)
        return np.vstack([2 * strings - 1, shown]), asked

    def xor(self, strings, draw):
        return strings, strings[0] ^ strings[1]


class ListOps:
    """Expressions from the files of the Long Range Arena. Without a folder, drawn expressions of at most three levels and 40 symbols."""

    def __init__(self, cfg):
        self.folder, self.seed, self.size = cfg.files, cfg.draw_seed, cfg.examples
        self.shape = Shape(len(SYMBOLS), True, LISTOPS_LENGTH if self.folder else 40, 1, 1, 10)

    def examples(self, part):
        if self.folder:
            pairs = _read_listops(Path(self.folder, f"basic_{ {'valid': 'val'}.get(part, part) }.tsv"))
            return Examples(len(pairs), lambda _, index: pairs[index], [len(symbols) for symbols, _ in pairs])

        def draw(epoch, index):
            return _numbers(*expression(random.Random(f"{self.seed} {part} {epoch if part == 'train' else 0} {index}")))

        size = self.size if part == "train" else DRAWN
        return Examples(size, draw, self.shape.length)


def _numbers(symbols, value):
    return np.array([SYMBOLS[symbol] for symbol in symbols]), value


def _read_listops(path):
    """Read a .tsv file with the columns Source and Target. Parentheses only repeat the structure, so they are left out."""
    try:
        _, *lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except OSError as error:
        raise InputError(f"--files {path.parent}: {path.name} cannot be read ({error.strerror})") from error
    pairs = []
    for number, line in enumerate(lines, 2):
        source, _, target = line.partition("\t")
        symbols = [symbol for symbol in source.split() if symbol not in "()"][:LISTOPS_LENGTH]
        try:
            pairs.append(_numbers(symbols, int(target)))
        except (KeyError, ValueError) as error:
            raise InputError(
                f"{path}, line {number}: {error.args[0]!r} is not a symbol of ListOps or a value"
            ) from error
    return pairs


def expression(draw):
    """Draw an operator with two to four operands, digits or expressions of at most two more levels. Returns its symbols and its value."""
    symbols, value = _expression(draw, levels=2)
    return (symbols, value) if len(symbols) <= 40 else expression(draw)


def _expression(draw, levels):
    operator = draw.choice(list(OPERATORS))
    symbols, values = [operator], []
    for _ in range(draw.randint(2, 4)):
        if levels and draw.random() < 0.25:
            operand, value = _expression(draw, levels - 1)
        else:
            value = draw.randrange(10)
            operand = [str(value)]
        symbols += operand
        values.append(value)
    return [*symbols, "]"], OPERATORS[operator](values)


class Images:
    """Images as patches. The last 5,000 training images are ``valid``."""

    def __init__(self, cfg):
        self.name, self.folder, self.seed = str(cfg.problem), cfg.files, cfg.draw_seed
        if not self.folder:
            raise InputError(f"--problem {self.name}: needs --files with the folder of its files")
        side, channels, self.patch = {"mnist": (28, 1, 4), "cifar10": (32, 3, 4), "cifar10-gray": (32, 1, 1)}[self.name]
        self.shape = Shape(channels * self.patch**2, False, (side // self.patch) ** 2, 1, 1, 10)

    def examples(self, part):
        images, labels = (_read_mnist if self.name == "mnist" else _read_cifar10)(Path(self.folder), part == "test")
        held_out = min(HELD_OUT, len(images) // 2)
        if part != "test":
            chosen = slice(None, -held_out) if part == "train" else slice(-held_out, None)
            images, labels = images[chosen], labels[chosen]

        def example(epoch, index):
            image = images[index]
            if part == "train" and self.name == "cifar10":
                image = _moved(image, np.random.default_rng([self.seed, epoch, index]))
            return patches(self._scaled(image.astype(np.float32) / 255), self.patch), labels[index]

        return Examples(len(images), example, self.shape.length)

    def _scaled(self, image):
        if self.name == "cifar10":
            return (image - CIFAR_MEAN) / CIFAR_STD
        return image if self.name == "mnist" else ((image @ GRAY - GRAY_MEAN) / GRAY_STD)[:, :, None]


def _moved(image, draw):
    """Shift an image by at most four pixels, with black at the edges, and mirror it with probability 1/2."""
    x, y = draw.integers(0, 2 * MARGIN + 1, 2)
    image = np.pad(image, ((MARGIN, MARGIN), (MARGIN, MARGIN), (0, 0)))[x : x + image.shape[0], y : y + image.shape[1]]
    return image[:, ::-1] if draw.integers(2) else image


def patches(image, side):
    """Cut an image (height, width, channels) into patches, row by row: (patches, side * side * channels)."""
    height, width, channels = image.shape
    cut = image.reshape(height // side, side, width // side, side, channels).swapaxes(1, 2)
    return np.ascontiguousarray(cut).reshape(-1, side * side * channels)


def _read_mnist(folder, test):
    """Images (n, 28, 28, 1) and labels of the files ``*-ubyte``, plain or .gz."""
    prefix = "t10k" if test else "train"
    images = _read_bytes(folder / f"{prefix}-images-idx3-ubyte", 16)
    return images.reshape(-1, 28, 28, 1), _read_bytes(folder / f"{prefix}-labels-idx1-ubyte", 8)


def _read_cifar10(folder, test):
    """Images (n, 32, 32, 3) and labels of the binary version. A record has one byte for the label, then 1,024 bytes per channel."""
    names = ["test_batch"] if test else [f"data_batch_{number}" for number in range(1, 6)]
    records = np.concatenate([_read_bytes(folder / f"{name}.bin", 0).reshape(-1, 1 + 3072) for name in names])
    return records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), records[:, 0]


def _read_bytes(path, header):
    try:
        packed = path.with_name(f"{path.name}.gz")
        data = gzip.decompress(packed.read_bytes()) if packed.exists() else path.read_bytes()
    except OSError as error:
        raise InputError(f"--files {path.parent}: {path.name} cannot be read ({error.strerror or error})") from error
    return np.frombuffer(data, np.uint8, offset=header)


PROBLEMS = {"memory": Bits, "xor": Bits, "listops": ListOps, "mnist": Images, "cifar10": Images, "cifar10-gray": Images}


def problem(cfg):
    """The task of ``cfg.problem``, with the attribute ``shape`` and the method ``examples(part)``."""
    return PROBLEMS[str(cfg.problem)](cfg)
