"""Test scores: sacreBLEU, chrF and tokenised BLEU, recomputed from the translations or from archived n-gram counts."""

import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...errors import InputError
from ...files import why
from . import counts, run_files
from .counts import CHRF, SACREBLEU, TOKENISED, Counts

_NUMBERED = re.compile(r"(?:.*\r)?([TDH])-(\d{1,15})", re.DOTALL)  # behind a progress bar
_ENDED = re.compile(r"(?:^|\r)Generate (.*) with beam=\d+: ", re.MULTILINE)
# Other subsets are test sets. fairseq-preprocess calls them test, test1, ...
_NO_TEST = re.compile(r"(valid|train)\d*")
_GENERATED = ("generate.log", "generate-test.txt", "generate*.log", "generate-*.txt", "*/generate-test.txt")
_SCORED = ("test*.log", "eval-lm*.log")
_BITS = re.compile(r"Loss \(base 2\): (\d{1,15}(?:\.\d{1,15})?)(?![\d.])")
# fairseq-eval-lm: the data's folder, the subset and its blocks.
_SUBSET = re.compile(r"eval_lm:.* (\S+) [\d,]+ examples\r?$", re.MULTILINE)
# Signs in a log that only a part of the data was scored: long samples skipped, one of several shards, shortened lines, no token.
_SKIPPED = re.compile(r"(\d[\d,]*) samples have invalid sizes and will be skipped")
_SHARDS = re.compile(r"'(?:num_shards|distributed_world_size)': (?!1\b)(\d+)")
_SHORTENED = re.compile(r"'shorten_method': '?(truncate|random_crop)\b")
_NO_TOKENS = "Evaluated 0 tokens"
# All files of a run that this module reads.
READ = (*_GENERATED, *_SCORED, "hypotheses", "references", counts.FILE, "bleu.json")


@dataclass
class Test:
    """The test scores of a run; None for scores that its folder does not have.

    Attributes:
        source: file of the translations or of their counts.
        remarks: notes for the reader.
        faults: a line for each damaged file.
    """

    bleu: float | None = None
    signature: str = ""
    chrf: float | None = None
    chrf_signature: str = ""
    tokenised: float | None = None
    tokenised_signature: str = ""
    bits: float | None = None
    counts: Counts = field(default_factory=Counts)
    source: str = ""
    remarks: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def read_references(path: str | None) -> list[str] | None:
    """Read the lines of ``--references``, which may be a pipe.

    Raises:
        InputError: the file cannot be read.
    """
    if path is None:
        return None
    try:
        return lines_of(Path(path).read_bytes().decode())
    except (OSError, ValueError) as error:
        raise InputError(f"--references {path}: cannot be read as text ({why(error)})") from error


def lines_of(text: str) -> list[str]:
    """Split a corpus into lines. Only a line feed ends a line. A carriage return before it belongs to the line end (Windows)."""
    return [line.removesuffix("\r") for line in text.removeprefix("\ufeff").removesuffix("\n").split("\n")]


def read_test(folder: Path, references: list[str] | None) -> Test:
    """Compute the test scores in a run's folder.

    Translations are the D-lines of fairseq-generate's output on a test set: ``generate*.log``, or ``generate-*.txt`` of
    --results-path. Otherwise they are the lines of a file ``hypotheses``. References are ``references``, otherwise a file
    ``references`` in the run's folder, otherwise the T-lines. Without translations the archived counts in ``counts.jsonl`` are used.
    Incomplete output has no score, because fairseq begins with the shortest sentences.
    """
    test = Test(faults=run_files.faults(folder, *READ))
    _read_loss(folder, test)
    sentences = _generated(folder, test)
    if sentences is None:
        return test
    hypotheses, theirs, referred = _both(folder, sentences, references, test)
    if hypotheses and len(theirs) == len(hypotheses):
        test.counts = counts.compare(hypotheses, theirs, referred)
    elif hypotheses and theirs:
        test.remarks.append(
            f"{len(hypotheses)} translations but {len(theirs)} references, so no BLEU; give the right ones with --references"
        )
    elif hypotheses:
        test.remarks.append(
            "its translations are detokenised and its T-lines are not, so no sacreBLEU; give raw text with --references"
        )
    else:
        _take_counts(folder, theirs, referred, test)
    if words := _count_tokens(sentences):
        test.counts = replace(test.counts, by=test.counts.by | {TOKENISED: words})
    test.bleu, test.signature = test.counts.score(SACREBLEU)
    test.chrf, test.chrf_signature = test.counts.score(CHRF)
    test.tokenised, test.tokenised_signature = test.counts.score(TOKENISED)
    if any(map(_is_of_pieces, [*hypotheses, *theirs])):
        test.remarks.append(
            "its translations or references contain subwords (▁ or @@), so the scores are of subwords; translate with --remove-bpe "
            "sentencepiece or --remove-bpe"
        )
    if test.counts.unknown:
        cure = "; give the original text with --references" if hypotheses else ""
        test.remarks.append(f"{test.counts.unknown} references contain <<unk>>, words not in the dictionary{cure}")
    _remark_another_bleu(test, folder / "bleu.json")
    return test


def _take_counts(folder, theirs, referred, test):
    """Use the counts of an archive, if the folder has them."""
    for kept in run_files.found(folder, counts.FILE):
        try:
            test.counts, test.source = counts.read(kept), str(kept)
        except InputError as error:
            test.faults.append(str(error).removeprefix(f"{folder}/"))
            return
        if theirs and counts.digest(theirs) != test.counts.references:
            test.remarks.append(f"{kept.name} counts against other references than those of {referred}")


def _read_loss(folder, test):
    """Read the test loss that fairseq-eval-lm prints. If several logs have one, the first by name counts."""
    found = []
    for log in sorted(run_files.found(folder, *_SCORED)):
        text = run_files.text_of(log) or ""
        if bits := _BITS.findall(text):
            subset = (_SUBSET.findall(text) or ["test"])[-1]
            if _NO_TEST.fullmatch(subset):
                test.remarks.append(f"no test loss: {log.name} is of {subset}")
            elif part := _part_of_text(text):
                test.remarks.append(f"no test loss: {log.name} is of {part}")
            else:
                found.append((log, float(bits[-1])))
    if found:
        (log, test.bits), *others = found
        test.source = str(log)
        if others:
            test.remarks.append(f"test loss of {log.name}, not of {', '.join(other.name for other, _ in others)}")


def _part_of_text(text):
    """Return which part of the text the last loss of fairseq-eval-lm is of; None if of all of it."""
    text = text.rsplit("Loss (base 2): ", 2)[-2]
    if _NO_TOKENS in text:
        return "0 tokens"
    if shards := _SHARDS.search(text):
        return f"one of {shards[1]} shards of the text"
    if shortened := _SHORTENED.search(text):
        return f"shortened lines (--shorten-method {shortened[1]})"
    if skipped := _SKIPPED.search(text):
        return f"a part of the text: {skipped[1]} blocks were too long for the model's positions"
    return None


def _is_of_pieces(line):
    return "▁" in line or "@@ " in line or line.endswith("@@")


def _both(folder, sentences, references, test):
    """Return translations, references (either may be []), and where the references are from."""
    ours, theirs, referred = [], [], "fairseq-generate's T-lines"
    if sentences.get("D"):
        numbers = sorted(sentences["D"])
        ours = [sentences["D"][number] for number in numbers]
        if all(sentences.get("H", {}).get(number, line) == line for number, line in sentences["D"].items()):
            theirs = [sentences["T"][number] for number in numbers if number in sentences.get("T", {})]
        # Otherwise fairseq has detokenised the D-lines only, and the BLEU4 that it prints is wrong.
    elif (hypotheses := run_files.text_of(folder / "hypotheses")) is not None:
        test.source, ours = str(folder / "hypotheses"), lines_of(hypotheses)
    if references is not None:
        theirs, referred = references, "--references"
    elif (written := run_files.text_of(folder / "references")) is not None:
        theirs, referred = lines_of(written), "the file references beside the translations"
    return ours, theirs, referred


def _generated(folder, test):
    """Return the sentences of fairseq-generate's output; {} without output, None if it is incomplete."""
    texts = {file: run_files.text_of(file) or "" for file in run_files.found(folder, *_GENERATED)}
    # With --results-path the translations are not in generate.log.
    found = {file: sentences for file, text in texts.items() if (sentences := read_sentences(text)).get("D")}
    has_others = bool(run_files.found(folder, "hypotheses", counts.FILE))
    if not found:
        if texts and not any(map(_ENDED.search, texts.values())) and not has_others:
            test.remarks.append(f"translation not finished: no sentence in {', '.join(file.name for file in texts)}")
        return {}
    subsets = {file: _subset(file, texts[file]) for file in found}
    tests = {file: sentences for file, sentences in found.items() if not _NO_TEST.fullmatch(subsets[file])}
    if not tests:
        if not has_others:
            names = ", ".join(f"{file.name} is of {subsets[file]}" for file in found)
            test.remarks.append(f"no test score of its translations: {names}")
        return {}
    (file, sentences), *others = tests.items()
    test.source = str(file)
    if others:
        names = ", ".join(str(other.relative_to(folder)) for other, _ in others)
        test.remarks.append(f"test scores of {file.name}, not of {names}")
    if "T" in sentences and not _ENDED.search(texts[file]):  # without references fairseq prints no such line
        test.remarks.append(f"translation not finished: {file.name} lacks its last line, so no test score")
        return None
    if skipped := _SKIPPED.search(texts[file]):
        test.remarks.append(
            f"no test score: {file.name} leaves out {skipped[1]} sentences that were too long for the model"
        )
        return None
    if missing := max(sentences["D"]) + 1 - len(sentences["D"]):
        test.remarks.append(f"translation not finished: {file.name} lacks {missing} of its sentences, so no test score")
        return None
    return sentences


def _subset(file, text):
    """Return the translated subset: from the last line, else from the file's name, else test."""
    if ended := _ENDED.findall(text):
        return ended[-1]
    named = file.stem.removeprefix("generate-")
    return named if file.suffix == ".txt" or _NO_TEST.fullmatch(named) else "test"


def _remark_another_bleu(test, written):
    try:
        other = float(json.loads(run_files.text_of(written) or "{}").get("score"))
    except (ValueError, AttributeError, TypeError, OverflowError, RecursionError):
        return
    if test.bleu is not None and abs(other - test.bleu) > 0.0051 and len(str(other)) > 3:
        test.remarks.append(f"{written.name} beside it has {other}, for its own references")


def tokenised_bleu(sentences: dict[str, dict[int, str]]) -> tuple[float, str] | None:
    """Return BLEU of H-lines against T-lines, without tokenisation, and its signature; None unless both have the same sentences.

    fairseq-generate prints the same BLEU4 without --tokenizer. With one it compares detokenised translations with tokenised
    references.
    """
    words = _count_tokens(sentences)
    return (counts.score(TOKENISED, words), words.signature) if words else None


def _count_tokens(sentences):
    ours, theirs = sentences.get("H", {}), sentences.get("T", {})
    if not ours or set(ours) != set(theirs):
        return None
    return counts.count(
        TOKENISED, [ours[number] for number in sorted(ours)], [theirs[number] for number in sorted(ours)]
    )


def read_sentences(text: str) -> dict[str, dict[int, str]]:
    """Read fairseq-generate's lines by letter (T reference, H and D hypothesis) and number. Only the best hypothesis counts.

    A carriage return within a sentence is one of its characters.
    """
    found: dict[str, dict] = {}
    for line in lines_of(text):
        head, _, rest = line.partition("\t")
        if match := _NUMBERED.fullmatch(head):
            letter, number = match[1], int(match[2])
            found.setdefault(letter, {}).setdefault(number, rest if letter == "T" else rest.partition("\t")[2])
    return found


def by_line_number(numbered: dict[int, str]) -> list[str] | None:
    """Return sentences 0, 1, 2, ... as a list; None if one is missing, or without any."""
    if not numbered or sorted(numbered) != list(range(len(numbered))):
        return None
    return [numbered[number] for number in range(len(numbered))]
