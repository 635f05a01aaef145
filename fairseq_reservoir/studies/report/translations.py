"""Test scores of a run: test loss, and sacreBLEU, chrF and tokenised BLEU from translations or archived n-gram counts."""

import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...errors import InputError
from ...files import why
from . import counts, run_files
from .counts import CHRF, SACREBLEU, TOKENISED, Counts

_NUMBERED = re.compile(r"(?:.*\r)?([TDH])-(\d{1,15})", re.DOTALL)  # a progress bar may stand before it
_ENDED = re.compile(r"(?:^|\r)Generate (.*) with beam=\d+: ", re.MULTILINE)
# All other subsets are test sets. fairseq-preprocess calls them test, test1, ...
_NO_TEST = re.compile(r"(valid|train)\d*")
_GENERATED = ("generate.log", "generate-test.txt", "generate*.log", "generate-*.txt", "*/generate-test.txt")
_SCORED = ("test*.log", "eval-lm*.log")
_BITS = re.compile(r"Loss \(base 2\): (\d{1,15}(?:\.\d{1,15})?)(?![\d.])")
# Line of fairseq-eval-lm: the data folder, the subset, and the number of its blocks.
_SUBSET = re.compile(r"eval_lm:.* (\S+) [\d,]+ examples\r?$", re.MULTILINE)
# Signs in a log that only a part of the data was scored: skipped long samples, one of several shards, shortened lines, zero tokens.
_SKIPPED = re.compile(r"(\d[\d,]*) samples have invalid sizes and will be skipped")
_SHARDS = re.compile(r"'(?:num_shards|distributed_world_size)': (?!1\b)(\d+)")
_SHORTENED = re.compile(r"'shorten_method': '?(truncate|random_crop)\b")
_NO_TOKENS = "Evaluated 0 tokens"
# All files of a run that this module reads.
READ = (*_GENERATED, *_SCORED, "hypotheses", "references", counts.FILE, "bleu.json")


@dataclass
class Test:
    """The test scores of a run, and the signature of each score. A score is None if the run's folder has no data for it.

    Attributes:
        bleu: sacreBLEU.
        chrf: chrF.
        tokenised: BLEU of fairseq's tokens, without sacreBLEU's own tokenisation.
        bits: test loss in bits, as fairseq-eval-lm prints it.
        counts: n-gram counts of the translations.
        source: file with the translations, their counts, or the loss.
        remarks: notes on these scores in the report.
        faults: one line of text for each damaged file.
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
    """Read the lines of the file that ``--references`` names. The file may be a pipe.

    Raises:
        InputError: the file cannot be read, or has no text.
    """
    if path is None:
        return None
    try:
        text = Path(path).read_bytes().decode()
    except (OSError, ValueError) as error:
        raise InputError(f"--references {path}: cannot be read as text ({why(error)})") from error
    if not text.removeprefix("\ufeff").strip():
        raise InputError(f"--references {path}: has no text; give a file with one reference per line")
    return lines_of(text)


def lines_of(text: str) -> list[str]:
    """Split a corpus into lines. Only a line feed ends a line. A carriage return before it belongs to the line end (Windows)."""
    return [line.removesuffix("\r") for line in text.removeprefix("\ufeff").removesuffix("\n").split("\n")]


def read_test(folder: Path, references: list[str] | None) -> Test:
    """Compute the test scores in a run's folder.

    Translations are the D-lines in the output of fairseq-generate on a test set: ``generate*.log``, or the files ``generate-*.txt`` of
    --results-path. If there is no such output, the lines of the file ``hypotheses`` are used. References are the argument ``references``.
    If this argument is None, the file ``references`` in the run's folder is used, or the T-lines of the output if there is no such file.
    If there are no translations, the archived counts in ``counts.jsonl`` are used. Incomplete output gets no score. Its score would not be
    representative, because fairseq translates the shortest sentences first.
    """
    test = Test(faults=run_files.faults(folder, *READ))
    _read_loss(folder, test)
    sentences = _generated(folder, test)
    if sentences is None:
        return test
    hypotheses, theirs, referred = _translations_and_references(folder, sentences, references, test)
    if hypotheses and len(theirs) == len(hypotheses):
        test.counts = counts.compare(hypotheses, theirs, referred)
    elif hypotheses and theirs:
        test.remarks.append(
            f"no BLEU: there are {len(hypotheses)} translations but {len(theirs)} references; name the right file with --references"
        )
    elif hypotheses:
        test.remarks.append(
            "no sacreBLEU: the translations are detokenised, but the T-lines are not; name a file of raw references with --references"
        )
    else:
        _read_counts(folder, theirs, referred, test)
    if words := _count_tokens(sentences):
        test.counts = replace(test.counts, by=test.counts.by | {TOKENISED: words})
    test.bleu, test.signature = test.counts.score(SACREBLEU)
    test.chrf, test.chrf_signature = test.counts.score(CHRF)
    test.tokenised, test.tokenised_signature = test.counts.score(TOKENISED)
    if any(map(_is_of_pieces, [*hypotheses, *theirs])):
        test.remarks.append(
            "the translations or references contain subwords, so the scores are computed on subwords; if subwords are"
            " marked with ▁, translate again with --remove-bpe sentencepiece; if they are marked with @@, use --remove-bpe"
        )
    if test.counts.unknown:
        cure = "; give --references FILE, where FILE has the original references" if hypotheses else ""
        test.remarks.append(
            f"{test.counts.unknown} references contain <<unk>> in place of words outside the dictionary{cure}"
        )
    _remark_another_bleu(test, folder / "bleu.json")
    return test


def _read_counts(folder, theirs, referred, test):
    """Read the archived counts of the translations, if the folder has them."""
    for kept in run_files.found(folder, counts.FILE):
        try:
            test.counts, test.source = counts.read(kept), str(kept)
        except InputError as error:
            test.faults.append(str(error).removeprefix(f"{folder}/"))
            return
        if theirs and counts.digest(theirs) != test.counts.references:
            test.remarks.append(
                f"the scores from {kept.name} were computed with references that differ from {referred}"
            )


def _read_loss(folder, test):
    """Read the test loss that fairseq-eval-lm prints. If several logs contain a loss, use the first log in order of names."""
    found = []
    for log in sorted(run_files.found(folder, *_SCORED)):
        text = run_files.text_of(log) or ""
        if bits := _BITS.findall(text):
            subset = (_SUBSET.findall(text) or ["test"])[-1]
            if _NO_TEST.fullmatch(subset):
                test.remarks.append(f"no test loss: {log.name} evaluates the subset {subset}")
            elif part := _part_of_text(text):
                test.remarks.append(f"no test loss: {log.name} evaluates only {part}")
            else:
                found.append((log, float(bits[-1])))
    if found:
        (log, test.bits), *others = found
        test.source = str(log)
        if others:
            unused = ", ".join(other.name for other, _ in others)
            test.remarks.append(f"the test loss is read from {log.name}; this report does not use the loss in {unused}")


def _part_of_text(text):
    """Describe the part of the text on which fairseq-eval-lm computed its last loss; None if it was the whole text."""
    text = text.rsplit("Loss (base 2): ", 2)[-2]
    if _NO_TOKENS in text:
        return "0 tokens"
    if shards := _SHARDS.search(text):
        return f"one of {shards[1]} shards of the text"
    if shortened := _SHORTENED.search(text):
        return f"shortened lines (--shorten-method {shortened[1]})"
    if skipped := _SKIPPED.search(text):
        return f"a part of the text, because {skipped[1]} blocks were too long for the model"
    return None


def _is_of_pieces(line):
    return "▁" in line or "@@ " in line or line.endswith("@@")


def _translations_and_references(folder, sentences, references, test):
    """Return the translations, the references and the source of the references. Missing translations or references are []."""
    ours, theirs, referred = [], [], "fairseq-generate's T-lines"
    if sentences.get("D"):
        numbers = sorted(sentences["D"])
        ours = [sentences["D"][number] for number in numbers]
        if all(sentences.get("H", {}).get(number, line) == line for number, line in sentences["D"].items()):
            theirs = [sentences["T"][number] for number in numbers if number in sentences.get("T", {})]
        # If H- and D-lines differ, fairseq has detokenised only the D-lines. Its BLEU4 is then wrong.
    elif (hypotheses := run_files.text_of(folder / "hypotheses")) is not None:
        test.source, ours = str(folder / "hypotheses"), lines_of(hypotheses)
    if references is not None:
        theirs, referred = references, "--references"
    elif (written := run_files.text_of(folder / "references")) is not None:
        theirs, referred = lines_of(written), "the file references beside the translations"
    return ours, theirs, referred


def _generated(folder, test):
    """Return the sentences in the output of fairseq-generate; {} if there is no output for a test set, None if the output is incomplete."""
    texts = {file: run_files.text_of(file) or "" for file in run_files.found(folder, *_GENERATED)}
    # With --results-path the translations are not in generate.log.
    found = {file: sentences for file, text in texts.items() if (sentences := read_sentences(text)).get("D")}
    has_others = bool(run_files.found(folder, "hypotheses", counts.FILE))
    if not found:
        if texts and not any(map(_ENDED.search, texts.values())) and not has_others:
            test.remarks.append(
                f"no test score, because the translation is not finished: no sentence in {', '.join(file.name for file in texts)}"
            )
        return {}
    subsets = {file: _subset(file, texts[file]) for file in found}
    tests = {file: sentences for file, sentences in found.items() if not _NO_TEST.fullmatch(subsets[file])}
    if not tests:
        if not has_others:
            names = ", ".join(f"{file.name} translates the subset {subsets[file]}" for file in found)
            test.remarks.append(f"no test score: {names}")
        return {}
    (file, sentences), *others = tests.items()
    test.source = str(file)
    if others:
        names = ", ".join(str(other.relative_to(folder)) for other, _ in others)
        test.remarks.append(f"the test scores are computed from {file.name}; this report does not use {names}")
    if "T" in sentences and not _ENDED.search(texts[file]):  # without references fairseq prints no such line
        test.remarks.append(f"no test score, because the translation is not finished: {file.name} lacks its last line")
        return None
    if skipped := _SKIPPED.search(texts[file]):
        test.remarks.append(f"no test score: {file.name} lacks {skipped[1]} sentences that were too long for the model")
        return None
    if missing := max(sentences["D"]) + 1 - len(sentences["D"]):
        test.remarks.append(
            f"no test score, because the translation is not finished: {file.name} lacks {missing} of its sentences"
        )
        return None
    return sentences


def _subset(file, text):
    """Return the name of the translated subset, from the last line of the output or from the file's name; else "test"."""
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
        test.remarks.append(
            f"{written.name} in the same folder has a different score, {other}, perhaps computed with different references"
        )


def tokenised_bleu(sentences: dict[str, dict[int, str]]) -> tuple[float, str] | None:
    """Return the BLEU of the H-lines against the T-lines, and the signature; None if H- and T-lines have different sentence numbers.

    The lines are not tokenised again. The result equals the BLEU4 of fairseq-generate without --tokenizer. With --tokenizer,
    fairseq-generate compares detokenised translations with tokenised references.
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
    """Read the output of fairseq-generate into dictionaries: letter -> sentence number -> sentence.

    A letter at the beginning of each line shows its content: T (reference), H (hypothesis in tokens) or D (detokenised hypothesis). If a
    sentence has several hypotheses, only the first and best one is read. A carriage return within a sentence is kept as a character.
    """
    found: dict[str, dict] = {}
    for line in lines_of(text):
        head, _, rest = line.partition("\t")
        if match := _NUMBERED.fullmatch(head):
            letter, number = match[1], int(match[2])
            found.setdefault(letter, {}).setdefault(number, rest if letter == "T" else rest.partition("\t")[2])
    return found


def by_line_number(numbered: dict[int, str]) -> list[str] | None:
    """Return the sentences in the order of their numbers 0, 1, 2, ...; None if a number is missing or there are no sentences."""
    if not numbered or sorted(numbered) != list(range(len(numbered))):
        return None
    return [numbered[number] for number in range(len(numbered))]
