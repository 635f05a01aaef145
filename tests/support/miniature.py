"""Small archives with the internal format of the public ones."""

import gzip
import io
import json
import tarfile
import zipfile
from pathlib import Path

import fairseq_reservoir

ROOT = Path(fairseq_reservoir.__file__).parents[1]
REAL = ROOT.parent / "shared" / "data"
DAYS = {
    "en": ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"],
    "de": ["Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag"],
    "tr": ["Pazartesi", "Salı", "Çarşamba", "Perşembe", "Cuma"],
}
FORMS = {
    "en": ["On {day} he didn't see {n},{n} of them.", "Well-known in the U.S.", '"Mr. {day}," she said, "is here..."'],
    "de": ["Am {day} sah er {n}.{n} nicht.", "Wohlbekannt in den U.S.A.", "„Frau {day}“, sagte sie, „z. B. hier …“"],
    "tr": ["{day} günü {n}'den azını gördü.", "İyi bilinen A.B.D.", '"Bay {day}", dedi, ‘burada...’'],
}


def sentences(language, count):
    """Lines with various punctuation. Line i has the same meaning in all languages."""
    days, forms = DAYS[language], FORMS[language]
    return [forms[i % 3].format(day=days[i * i % 5], n=i * 7 % 31 + 1) for i in range(count)]


def real(name, languages, count):
    """The first ``count`` pairs of a real corpus, one list per language; None if it is absent."""
    files = [REAL / f"{name}.{language}.gz" for language in languages]
    if not all(file.is_file() for file in files):
        return None
    return [gzip.decompress(file.read_bytes()).decode("utf-8").split("\n")[:count] for file in files]


def tgz(path, files):
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            entry, data = tarfile.TarInfo(name), text.encode("utf-8")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return path


def zipped(path, files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def sgml(lines, kind="srcset"):
    segments = "".join(f'<seg id="{number}">{line}</seg>\n' for number, line in enumerate(lines, 1))
    return (
        f'<{kind} setid="test" srclang="any">\n<doc docid="a" genre="news">\n<p>\n{segments}</p>\n</doc>\n</{kind}>\n'
    )


def iwslt_xml(lines):
    segments = "".join(f'<seg id="{number}"> {line} </seg>\n' for number, line in enumerate(lines, 1))
    return f'<?xml version="1.0"?>\n<mteval>\n<doc docid="1">\n<title>Talk</title>\n{segments}</doc>\n</mteval>\n'


def iwslt_tags(lines):
    """Talks of ten lines, with the tags of the public file."""
    text = []
    for start in range(0, len(lines), 10):
        text += [
            f"<url>http://www.ted.com/{start}</url>",
            "<keywords>talks, ideas</keywords>",
            f"<talkid>{start}</talkid>",
        ]
        text += [f"<title>Talk {start}: one</title>", "<description>TED Talk Subtitles: A talk.</description>"]
        text += [f" {line} " for line in lines[start : start + 10]]
    return "\n".join(text) + "\n"


def iwslt14(path, train, test):
    """Archive with lines ``train`` and ``test`` (a list each for German and English). Test lines are distributed over the five sets."""
    names = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
    files = {"de-en/README": "talks\n", "de-en/IWSLT14.TEDX.other.de-en.de.xml": iwslt_xml(["not used"])}
    for language, lines, tested in zip(("de", "en"), train, test, strict=True):
        files[f"de-en/train.tags.de-en.{language}"] = iwslt_tags(lines)
        share = len(tested) // len(names)
        for number, name in enumerate(names):
            part = tested[number * share : (number + 1) * share]
            files[f"de-en/IWSLT14.{name}.de-en.{language}.xml"] = iwslt_xml(part)
    return tgz(path, files)


def wmt14(folder, count=100):
    """The five archives. Each corpus has ``count`` pairs."""
    pairs = {language: sentences(language, 3 * count) for language in ("en", "de")}

    def both(name, start):
        return {
            f"{name}.{language}": "\n".join(lines[start : start + count]) + "\n" for language, lines in pairs.items()
        }

    tgz(
        folder / "training-parallel-europarl-v7.tgz",
        both("./training/europarl-v7.de-en", 0) | {"training/x.cs-en.cs": "x\n"},
    )
    tgz(folder / "training-parallel-commoncrawl.tgz", both("commoncrawl.de-en", count))
    tgz(folder / "training-parallel-nc-v12.tgz", both("training/news-commentary-v12.de-en", 2 * count))
    tgz(folder / "dev.tgz", both("dev/newstest2013", 0))
    names = {"en": "newstest2014-deen-src.en.sgm", "de": "newstest2014-deen-ref.de.sgm"}
    tgz(
        folder / "test-full.tgz", {f"test-full/{names[language]}": sgml(lines[:9]) for language, lines in pairs.items()}
    )


def wmt18(folder, count=200):
    pairs = {language: sentences(language, count) for language in ("tr", "en")}
    files = {f"SETIMES.en-tr.{language}": "\n".join(lines) + "\n" for language, lines in pairs.items()}
    zipped(folder / "en-tr.txt.zip", files | {"README": "", "SETIMES.en-tr.ids": "1\t1\n"})

    def test_set(year, start):
        parts = {language: sgml(lines[start : start + 10]) for language, lines in pairs.items()}
        return {f"{year}-tren-src.tr.sgm": parts["tr"], f"{year}-tren-ref.en.sgm": parts["en"]}

    dev = {
        f"dev/{name}": text for year in (2016, 2017) for name, text in test_set(f"newstest{year}", year - 2016).items()
    }
    tgz(folder / "dev.tgz", dev)
    tgz(folder / "test.tgz", {f"test/{name}": text for name, text in test_set("newstest2018", 5).items()})


def table(header, rows):
    return "\n".join("\t".join(row) for row in [header, *rows]) + "\n"


def glue(folder):
    """The three tasks, with one broken row in QQP, and GPT-2 pieces that only have bytes and `` the``."""
    lines = sentences("en", 12)
    single = [(line, str(i % 2)) for i, line in enumerate(lines)]
    test = table(["index", "sentence"], [(str(i), line) for i, line in enumerate(lines[:4])])
    parts = {
        "train": table(["sentence", "label"], single),
        "dev": table(["sentence", "label"], single[:6]),
        "test": test,
    }
    zipped(folder / "SST-2.zip", {f"SST-2/{name}.tsv": text for name, text in parts.items()})

    header = ["id", "qid1", "qid2", "question1", "question2", "is_duplicate"]
    rows = [(str(i), "1", "2", line, lines[-1 - i], str(i % 2)) for i, line in enumerate(lines)]
    test = table(["id", "question1", "question2"], [(str(i), line, line) for i, line in enumerate(lines[:4])])
    parts = {
        "train": table(header, [*rows[:5], ("5", "broken row"), *rows[5:]]),
        "dev": table(header, rows[:6]),
        "test": test,
    }
    zipped(folder / "QQP-clean.zip", {f"QQP/{name}.tsv": text for name, text in parts.items()})

    front = "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse".split()
    front += ["sentence1", "sentence2"]
    labels = ["entailment", "neutral", "contradiction"]
    body = [("0",) * 8 + (line, lines[-1 - i]) for i, line in enumerate(lines)]
    train = table([*front, "label1", "gold_label"], [(*row, "neutral", labels[i % 3]) for i, row in enumerate(body)])
    header = [*front, *(f"label{i}" for i in range(1, 6)), "gold_label"]
    dev = table(header, [(*row, *"12345", labels[i % 3]) for i, row in enumerate(body)])
    test = table(front, body[:3])
    parts = {"train": train, "dev_matched": dev, "dev_mismatched": dev, "test_matched": test, "test_mismatched": test}
    zipped(folder / "MNLI.zip", {f"MNLI/{name}.tsv": text for name, text in parts.items()})

    from fairseq.data.encoders.gpt2_bpe_utils import bytes_to_unicode

    alphabet = [*bytes_to_unicode().values(), "Ġt", "he", "Ġthe"]
    (folder / "encoder.json").write_text(json.dumps({piece: number for number, piece in enumerate(alphabet)}))
    (folder / "vocab.bpe").write_text("#version: 0.2\nĠ t\nh e\nĠt he\n", encoding="utf-8")
    (folder / "dict.txt").write_text("".join(f"{number} 1\n" for number in range(len(alphabet))))
