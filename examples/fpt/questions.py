"""Write questions with their answers as training text for a language model, and the test questions.

Usage: questions.py FOLDER

Reads train, valid and test of FOLDER, each as .input0 (question) and .label (answer). Writes them as .txt, each line
"question = answer". From valid and test together, thinned out if there are many, it writes questions.txt, each "question =", and
answers.tsv, each part<TAB>words in the question's line<TAB>answer.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from lines import read_lines  # noqa: E402

LONGEST = 48  # the last words of longer questions
ASKED = {"valid": 500, "test": 1_000}


def read(folder, part):
    """(question, answer) pairs of a part."""
    columns = (folder / f"{part}.{column}" for column in ("input0", "label"))
    questions, answers = map(read_lines, columns)
    return [
        (" ".join([*question.split()[-LONGEST:], "="]), " ".join(answer.split()))
        for question, answer in zip(questions, answers, strict=True)
    ]


def main():
    folder = Path(sys.argv[1])
    pairs = {part: read(folder, part) for part in ("train", "valid", "test")}
    for part, lines in pairs.items():
        text = "".join(f"{question} {answer}\n" for question, answer in lines)
        (folder / f"{part}.txt").write_text(text, encoding="utf-8")
    asked = [
        (part, *pair)
        for part, most in ASKED.items()
        for pair in pairs[part][:: max(1, len(pairs[part]) // most)][:most]
    ]
    (folder / "questions.txt").write_text("".join(f"{question}\n" for _, question, _ in asked), encoding="utf-8")
    rows = "".join(f"{part}\t{len(question.split())}\t{answer}\n" for part, question, answer in asked)
    (folder / "answers.tsv").write_text(rows, encoding="utf-8")


if __name__ == "__main__":
    main()
