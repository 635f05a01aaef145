"""Print a table of the arms of a task: correct answers at each learning rate, and on test at the best rate.

Usage: report.py ANSWERS.tsv ARM_FOLDER...

Rates are the folders in an ARM_FOLDER with an answers.log. The best rate has the most correct answers on valid; ties go to the
smaller one. A score is the share of correct characters by position (of bits in memory and xor). "guess" is the score of the
most frequent character at each position.
"""

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from summarise import read_training  # noqa: E402

from fairseq_reservoir.studies.report.translations import by_line_number, read_sentences  # noqa: E402


def read_answers(file):
    """Correct answers: (part, number of words in the question's line, answer) of each question."""
    rows = (line.split("\t") for line in file.read_text(encoding="utf-8").removesuffix("\n").split("\n"))
    return [(part, int(words), answer.split()) for part, words, answer in rows]


def read_said(log, expected):
    """Words that fairseq-interactive generated after each question."""
    found = read_sentences(log.read_bytes().decode()).get("H", {})
    said = by_line_number(found)
    if said is None or len(said) != len(expected):
        sys.exit(f"report: {log}: {len(found)} answers to {len(expected)} questions")
    return [line.split()[words : words + len(answer)] for line, (_, words, answer) in zip(said, expected)]


def score(expected, said):
    """Percentage of the characters of ``expected`` (lists of words) that ``said`` has at the same position of the same word."""
    right = total = 0
    for answer, words in zip(expected, said, strict=True):
        for place, word in enumerate(answer):
            other = words[place] if place < len(words) else ""
            right += sum(a == b for a, b in zip(word, other))
            total += len(word)
    return 100 * right / total


def guess(expected):
    """The most frequent answer at each position, repeated."""
    common = ["".join(Counter(letters).most_common(1)[0][0] for letters in zip(*words)) for words in zip(*expected)]
    return [common] * len(expected)


def read_arm(folder, expected):
    """(scores by part for each rate, trained parameters, minutes of training steps) of an arm."""
    parts = [part for part, _, _ in expected]
    scores, seconds, trained = {}, 0.0, "?"
    for log in sorted(folder.glob("*/answers.log"), key=lambda log: float(log.parent.name)):
        said = read_said(log, expected)
        scores[log.parent.name] = {
            part: score(*zip(*((row[2], words) for row, words in zip(expected, said) if row[0] == part)))
            for part in dict.fromkeys(parts)
        }
        (_, trained), _, run = read_training(log.parent)
        seconds += run.seconds
    if not scores:
        sys.exit(f"report: {folder}: no answers.log of any rate")
    return scores, trained, seconds / 60


def table(expected, folders):
    """Lines of a Markdown table."""
    arms = {folder: read_arm(folder, expected) for folder in folders}
    rates = sorted({rate for scores, _, _ in arms.values() for rate in scores}, key=float)
    test = [answer for part, _, answer in expected if part == "test"]
    rows = [("arm", "trained", *(f"valid, {rate}" for rate in rates), "best rate", "test", "guess", "minutes")]
    rows.append(("---",) * len(rows[0]))
    for folder, (scores, trained, minutes) in arms.items():
        best = max(scores, key=lambda rate: scores[rate]["valid"])
        cells = (f"{scores[rate]['valid']:.1f}" if rate in scores else "" for rate in rates)
        result = f"**{scores[best]['test']:.1f}**", f"{score(test, guess(test)):.1f}", f"{minutes:.1f}"
        rows.append((folder.resolve().name, trained, *cells, best, *result))
    return [f"| {' | '.join(row)} |" for row in rows]


if __name__ == "__main__":
    answers, *folders = map(Path, sys.argv[1:])
    print("\n".join(table(read_answers(answers), folders)))
