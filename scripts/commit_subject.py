"""Check that commit subjects are short imperatives, as CONTRIBUTING.md describes them.

commit_subject.py FILE    checks the message in FILE: git's hook commit-msg, which pre-commit installs
commit_subject.py         checks the newest commits that were made since this script was added: .ci/run
"""

import re
import subprocess
import sys
from pathlib import Path

LONGEST = 72
NEWEST = 50  # commits that .ci/run checks at most, so that a bad subject that was merged does not fail it for ever
# Imperatives that end as past tenses and participles do.
IMPERATIVES = {
    "Bring",
    "Embed",
    "Exceed",
    "Feed",
    "Need",
    "Proceed",
    "Seed",
    "Shed",
    "Speed",
    "Spring",
    "String",
    "Wed",
}
WRITTEN_BY_GIT = re.compile(r'Merge |Revert "|Reapply "')


def complaint(subject: str) -> str | None:
    """The first rule that a subject breaks, or None."""
    if WRITTEN_BY_GIT.match(subject):
        return None
    first = subject.split(" ")[0]
    if len(subject) > LONGEST:
        return f"{len(subject)} characters; use at most {LONGEST} and put the reason in the body"
    if not re.match(r"[A-Z]", subject):
        return "begin with a capital letter"
    if re.search(r"(?:ed|ing)$", first) and first not in IMPERATIVES:
        return f'"{first}": begin with an imperative, as in "Add a check"'
    if subject.endswith("."):
        return "remove the full stop at the end"
    return None


def subject_of(message: str) -> str:
    """The first line of a message that is not blank and not a comment of git."""
    lines = (line.strip() for line in message.splitlines() if not line.startswith("#"))
    return next(filter(None, lines), "")


def new_subjects(folder: Path) -> list[str]:
    """The subjects of the newest commits since this script was added; none where that commit is not in the history."""

    def git(*words: str) -> list[str]:
        ended = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True)
        return ended.stdout.splitlines() if ended.returncode == 0 else []

    added = git("log", "--diff-filter=A", "--format=%H", "--", f"scripts/{Path(__file__).name}")
    return git("log", f"-{NEWEST}", "--format=%s", f"{added[-1]}..HEAD") if added else []


def main(words: list[str], folder: Path) -> int:
    """Print every subject that breaks a rule, and return the exit status."""
    subjects = [subject_of(Path(words[0]).read_text(encoding="utf-8"))] if words else new_subjects(folder)
    wrong = [(subject, reason) for subject in subjects if (reason := complaint(subject))]
    for subject, reason in wrong:
        print(f"commit subject {subject!r}: {reason}", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).resolve().parents[1]))
