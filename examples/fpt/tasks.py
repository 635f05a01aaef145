"""The synthetic tasks of "Pretrained Transformers as Universal Computation Engines", as sentences of symbols.

Usage: tasks.py symbols
       tasks.py memory|xor|listops SEED OUTPUT_FOLDER

Writes train, valid and test, each as .input0 (one question per line) and .label (its answer). No question occurs twice, so
memorised answers are useless. The same seed gives the same files everywhere.
"""

import random
import sys
from itertools import product
from pathlib import Path

# There are 4,096 questions of xor.
SIZES = {"test": 1_000, "valid": 500, "train": 2_500}
MANY = {**SIZES, "train": 20_000}
CHUNK = 4  # bits in one symbol of memory
OPERATORS = {
    "[MAX": max,
    "[MIN": min,
    "[MED": lambda values: sorted(values)[(len(values) - 1) // 2],
    "[SM": lambda values: sum(values) % 10,
}
SYMBOLS = (*"0123456789", *OPERATORS, "]", "+", "=", *map("".join, product("01?", repeat=CHUNK)))


def memory(draw):
    """Five strings of 16 bits, and one of them again with half of its bits hidden. The answer is that string.

    Four bits are one symbol; in the paper 50 bits are one vector.
    """
    given = ["".join(draw.choices("01", k=4 * CHUNK)) for _ in range(5)]
    asked = draw.choice(given)
    shown = "".join(bit if draw.random() < 0.5 else "?" for bit in asked)
    return [chunk for string in (*given, shown) for chunk in _chunks(string)], _chunks(asked)


def _chunks(string):
    return [string[start : start + CHUNK] for start in range(0, len(string), CHUNK)]


def xor(draw):
    """Two strings of six bits, each bit a symbol; the answer is their bitwise exclusive or."""
    first, second = draw.choices("01", k=6), draw.choices("01", k=6)
    return [*first, "+", *second], [str(int(a != b)) for a, b in zip(first, second)]


def listops(draw):
    """An operator on two to four operands, digits and at most two levels of expressions in it; the answer is its value."""
    words, value = _expression(draw, levels=2)
    return (words, [str(value)]) if len(words) <= 40 else listops(draw)


def _expression(draw, levels):
    operator = draw.choice(list(OPERATORS))
    words, values = [operator], []
    for _ in range(draw.randint(2, 4)):
        if levels and draw.random() < 0.25:
            operand, value = _expression(draw, levels - 1)
        else:
            value = draw.randrange(10)
            operand = [str(value)]
        words += operand
        values.append(value)
    return [*words, "]"], OPERATORS[operator](values)


TASKS = {"memory": (memory, MANY), "xor": (xor, SIZES), "listops": (listops, MANY)}


def examples(task, seed):
    """(question, answer) pairs of each part, all different."""
    make, sizes = TASKS[task]
    draw, seen, parts = random.Random(f"{task} {seed}"), set(), {}
    for part, size in sizes.items():
        parts[part] = []
        while len(parts[part]) < size:
            question, answer = map(" ".join, make(draw))
            if question not in seen:
                seen.add(question)
                parts[part].append((question, answer))
    return parts


def main():
    if sys.argv[1:] == ["symbols"]:
        print(*SYMBOLS)
        return
    task, seed, output = sys.argv[1:]
    for part, pairs in examples(task, seed).items():
        Path(output, f"{part}.input0").write_text("".join(f"{question}\n" for question, _ in pairs))
        Path(output, f"{part}.label").write_text("".join(f"{answer}\n" for _, answer in pairs))


if __name__ == "__main__":
    main()
