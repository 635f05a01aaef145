"""Test scores: sacreBLEU, chrF and tokenised BLEU, all recomputed from the translations or what an archive has counted of them,
and the paired bootstrap between arms."""

import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...errors import InputError
from ...files import why
from . import counts, run_files
from .counts import CHRF, SACREBLEU, TOKENISED, Counts

SAMPLES = 1000
_NUMBERED = re.compile(r"(?:.*\r)?([TDH])-(\d{1,15})", re.DOTALL)  # behind a progress bar
_ENDED = re.compile(r"(?:^|\r)Generate (.*) with beam=\d+: ", re.MULTILINE)
# Subsets that are no test set; of the others fairseq-preprocess makes test, test1, ...
_NO_TEST = re.compile(r"(valid|train)\d*")
_GENERATED = ("generate.log", "generate-test.txt", "generate*.log", "generate-*.txt", "*/generate-test.txt")
_SCORED = ("test*.log", "eval-lm*.log")
_BITS = re.compile(r"Loss \(base 2\): (\d{1,15}(?:\.\d{1,15})?)(?![\d.])")
# fairseq-eval-lm: the data's folder, the subset and its blocks.
_SUBSET = re.compile(r"eval_lm:.* (\S+) [\d,]+ examples\r?$", re.MULTILINE)
# Signs in a log that a part of the data was scored: samples that were too long, one share of several, shortened lines, no token.
_SKIPPED = re.compile(r"(\d[\d,]*) samples have invalid sizes and will be skipped")
_SHARES = re.compile(r"'(?:num_shards|distributed_world_size)': (?!1\b)(\d+)")
_SHORTENED = re.compile(r"'shorten_method': '?(truncate|random_crop)\b")
_NO_TOKENS = "Evaluated 0 tokens"
# All files of a run that are read here.
READ = (*_GENERATED, *_SCORED, "hypotheses", "references", counts.FILE, "bleu.json")


@dataclass
class Test:
    """The test scores of a run; what its folder does not hold is None.

    ``source`` is the file of the translations, or of what was counted of them; ``remarks`` are for the reader. ``faults`` name damaged
    files.
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


@dataclass(frozen=True)
class Pair:
    """A seed of an arm against the same seed of the baseline; ``interval`` is half of sacreBLEU's 95 % interval of ``bleu``."""

    arm: str
    seed: int | None
    bleu: float
    baseline: float
    interval: float
    p: float
    signature: str
    source: str


def read_references(path: str | None) -> list[str] | None:
    """The lines of ``--references``, which may be a pipe.

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
    """The lines of a corpus. Only a line feed ends a line. A carriage return before it is a part of the end (Windows)."""
    return [line.removesuffix("\r") for line in text.removeprefix("\ufeff").removesuffix("\n").split("\n")]


def read_test(folder: Path, references: list[str] | None) -> Test:
    """The test scores in a run's folder.

    Translations are the D-lines of fairseq-generate's output (its standard output in ``generate*.log``, or ``generate-*.txt`` of
    --results-path) of another subset than train and valid, else the lines of a file ``hypotheses``; references are
    ``references``, else those of a file ``references`` in the run's folder, else the T-lines. Without translations the scores are
    of what an archive has counted of them, ``counts.jsonl``. Output that stops in the middle has no score: fairseq begins with
    the shortest sentences, which are no test set. A file that cannot be read is left out and is among the test's ``faults``.
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
            f"{len(hypotheses)} translations but {len(theirs)} references, so no BLEU: --references names others"
        )
    elif hypotheses:
        test.remarks.append(
            "its translations are detokenised and its T-lines are not, so no sacreBLEU: --references names raw text"
        )
    else:
        _take_counts(folder, theirs, referred, test)
    if words := _words(sentences):
        test.counts = replace(test.counts, by=test.counts.by | {TOKENISED: words})
    test.bleu, test.signature = test.counts.of(SACREBLEU)
    test.chrf, test.chrf_signature = test.counts.of(CHRF)
    test.tokenised, test.tokenised_signature = test.counts.of(TOKENISED)
    if any(map(_is_of_pieces, [*hypotheses, *theirs])):
        test.remarks.append(
            "its translations or references hold pieces of words (▁ or @@), and so the scores are of those: translate with --remove-bpe "
            "sentencepiece or --remove-bpe"
        )
    if test.counts.unknown:
        cure = ": --references names the real ones" if hypotheses else ""
        test.remarks.append(f"{test.counts.unknown} references hold <<unk>>, words not in the dictionary{cure}")
    _remark_another_bleu(test, folder / "bleu.json")
    return test


def _take_counts(folder, theirs, referred, test):
    """The counts of an archive, if the folder has them."""
    for kept in run_files.found(folder, counts.FILE):
        try:
            test.counts, test.source = counts.read(kept), str(kept)
        except InputError as error:
            test.faults.append(str(error).removeprefix(f"{folder}/"))
            return
        if theirs and counts.digest(theirs) != test.counts.references:
            test.remarks.append(f"{kept.name} counts against other references than those of {referred}")


def _read_loss(folder, test):
    """The loss that fairseq-eval-lm prints of a test text; of several logs the first in order of their names counts."""
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
    """The part of the text that fairseq-eval-lm scored when it printed the last loss of a log, None where it scored all of it."""
    text = text.rsplit("Loss (base 2): ", 2)[-2]
    if _NO_TOKENS in text:
        return "0 tokens"
    if shares := _SHARES.search(text):
        return f"one of {shares[1]} shares of the text"
    if shortened := _SHORTENED.search(text):
        return f"shortened lines (--shorten-method {shortened[1]})"
    if skipped := _SKIPPED.search(text):
        return f"a part of the text: {skipped[1]} blocks were too long for the model's positions"
    return None


def _is_of_pieces(line):
    return "▁" in line or "@@ " in line or line.endswith("@@")


def _both(folder, sentences, references, test):
    """Translations, references, either [] where there are none, and where the latter are from."""
    ours, theirs, referred = [], [], "fairseq-generate's T-lines"
    if sentences.get("D"):
        numbers = sorted(sentences["D"])
        ours = [sentences["D"][number] for number in numbers]
        if all(sentences.get("H", {}).get(number, line) == line for number, line in sentences["D"].items()):
            theirs = [sentences["T"][number] for number in numbers if number in sentences.get("T", {})]
        # Else fairseq detokenises D-lines and not T-lines, nor is the BLEU4 right that it prints of the two.
    elif (hypotheses := run_files.text_of(folder / "hypotheses")) is not None:
        test.source, ours = str(folder / "hypotheses"), lines_of(hypotheses)
    if references is not None:
        theirs, referred = references, "--references"
    elif (written := run_files.text_of(folder / "references")) is not None:
        theirs, referred = lines_of(written), "the file references beside the translations"
    return ours, theirs, referred


def _generated(folder, test):
    """The sentences of fairseq-generate's output, {} if there is none, None if it did not come to its end."""
    texts = {file: run_files.text_of(file) or "" for file in run_files.found(folder, *_GENERATED)}
    # With --results-path the translations are elsewhere than in generate.log.
    found = {file: sentences for file, text in texts.items() if (sentences := read_sentences(text)).get("D")}
    elsewhere = bool(run_files.found(folder, "hypotheses", counts.FILE))
    if not found:
        if texts and not any(map(_ENDED.search, texts.values())) and not elsewhere:
            test.remarks.append(f"translation not finished: no sentence in {', '.join(file.name for file in texts)}")
        return {}
    subsets = {file: _subset(file, texts[file]) for file in found}
    tests = {file: sentences for file, sentences in found.items() if not _NO_TEST.fullmatch(subsets[file])}
    if not tests:
        if not elsewhere:
            names = ", ".join(f"{file.name} is of {subsets[file]}" for file in found)
            test.remarks.append(f"no test score of its translations: {names}")
        return {}
    (file, sentences), *others = tests.items()
    test.source = str(file)
    if others:
        names = ", ".join(str(other.relative_to(folder)) for other, _ in others)
        test.remarks.append(f"test scores of {file.name}, not of {names}")
    if "T" in sentences and not _ENDED.search(texts[file]):  # without references fairseq ends with no such line
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
    """What was translated: what fairseq says at the end, else what the file is named after, else test."""
    if ended := _ENDED.findall(text):
        return ended[-1]
    named = file.stem.removeprefix("generate-")
    return named if file.suffix == ".txt" or _NO_TEST.fullmatch(named) else "test"


def _remark_another_bleu(test, written):
    try:
        said = float(json.loads(run_files.text_of(written) or "{}").get("score"))
    except (ValueError, AttributeError, TypeError, OverflowError, RecursionError):
        return
    if test.bleu is not None and abs(said - test.bleu) > 0.0051 and len(str(said)) > 3:
        test.remarks.append(f"{written.name} beside it says {said}, against the references that it was given")


def tokenised_bleu(sentences: dict[str, dict[int, str]]) -> tuple[float, str] | None:
    """BLEU of H-lines against T-lines, word by word as they stand there, and its signature; None if one is without the other.

    This is the BLEU4 that fairseq-generate prints, as long as no --tokenizer is given: with one it compares detokenised
    translations with tokenised references.
    """
    words = _words(sentences)
    return (counts.score(TOKENISED, words), words.signature) if words else None


def _words(sentences):
    ours, theirs = sentences.get("H", {}), sentences.get("T", {})
    if not ours or set(ours) != set(theirs):
        return None
    return counts.count(
        TOKENISED, [ours[number] for number in sorted(ours)], [theirs[number] for number in sorted(ours)]
    )


def read_sentences(text: str) -> dict[str, dict[int, str]]:
    """Lines of fairseq-generate by letter (T reference, H, D hypothesis) and number; of several hypotheses the best.

    A carriage return within a sentence is one of its characters.
    """
    found: dict[str, dict] = {}
    for line in lines_of(text):
        head, _, rest = line.partition("\t")
        if match := _NUMBERED.fullmatch(head):
            letter, number = match[1], int(match[2])
            found.setdefault(letter, {}).setdefault(number, rest if letter == "T" else rest.partition("\t")[2])
    return found


def in_order(numbered: dict[int, str]) -> list[str] | None:
    """Sentences 0, 1, 2, ... as a list; None if there are none or one of them is missing."""
    if not numbered or sorted(numbered) != list(range(len(numbered))):
        return None
    return [numbered[number] for number in range(len(numbered))]


def paired_bootstrap(arms, baseline, tests: dict[str, Test]) -> list[Pair]:
    """sacreBLEU's paired bootstrap of every run against the baseline's run of the same seed; its random seed is in the signature.

    Runs without that, or with other references or another signature, are left out; ``remark_other_test_sets`` tells of the latter.
    """
    pairs = []
    for run in baseline.runs:
        ours = tests[run.name]
        others = [
            (arm.name, other)
            for arm in arms
            if arm is not baseline
            for other in arm.runs
            if other.seed == run.seed and tests[other.name].bleu is not None and not _apart(tests[other.name], ours)
        ]
        if ours.bleu is not None and others:
            pairs += _resample(ours, others, tests)
    order = [arm.name for arm in arms]
    return sorted(pairs, key=lambda pair: order.index(pair.arm))


def remark_other_test_sets(arms, baseline, tests: dict[str, Test]) -> None:
    """Adds a remark to the tests that ``paired_bootstrap`` leaves out for their references."""
    for base in baseline.runs:
        ours = tests[base.name]
        for run in (run for arm in arms for run in arm.runs if run.seed == base.seed):
            test = tests[run.name]
            if None not in (ours.bleu, test.bleu) and (other := _apart(test, ours)):
                test.remarks.append(f"{other} than {base.name}, so not in the bootstrap")


def _apart(test, ours):
    """What keeps two tests from being compared sentence by sentence; "" if nothing does."""
    if test.counts.references != ours.counts.references:
        return "other references"
    return "" if test.signature == ours.signature else f"another sacreBLEU ({test.signature})"


def _resample(ours, others, tests):
    from sacrebleu.metrics import BLEU
    from sacrebleu.significance import PairedTest

    class OfRows(BLEU):
        """BLEU where rows of counts are given for translations."""

        def __init__(self):
            super().__init__()
            self.num_refs = 1

        def _extract_corpus_statistics(self, hypotheses, references):
            return hypotheses

    systems = [
        ("baseline", ours.counts.by[SACREBLEU].rows),
        *((f"{n}", tests[o.name].counts.by[SACREBLEU].rows) for n, (_, o) in enumerate(others)),
    ]
    trial = PairedTest(systems, {"BLEU": OfRows()}, None, test_type="bs", n_samples=SAMPLES)
    signatures, scores = trial()
    results, signature = scores["BLEU"], str(signatures["BLEU"])
    pairs = []
    for (arm, other), result in zip(others, results[1:]):
        numbers = map(float, (result.score, results[0].score, result.ci, _p_value(result, results[0])))
        pairs.append(Pair(arm, other.seed, *numbers, signature, tests[other.name].source))
    return pairs


def _p_value(result, baseline):
    """sacreBLEU's, but 1 where the two are equal in every resample: it counts differences above the observed one, and none is above 0."""
    none_above = result.p_value == 1 / (SAMPLES + 1)
    return 1.0 if none_above and result.score == baseline.score else result.p_value
