"""Extract sentence pairs from two public packages.

homeassistant: the interface strings of Home Assistant (Apache-2.0), from its Python wheel.
libreoffice: the help pages of LibreOffice (MPL-2.0), from two Debian packages; paragraphs carry the same ids in every language.

Usage: corpora.py {homeassistant,libreoffice} FOLDER_OF_PACKAGES SRC TGT OUTPUT_FOLDER
"""

import json
import re
import subprocess
import sys
import tempfile
import zipfile
from html.parser import HTMLParser
from pathlib import Path

from pairs import fail, write_lines


def flatten(tree, path=()):
    """Map the path of keys of every string in nested dictionaries to the string."""
    found = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            found.update(flatten(value, path + (key,)))
        elif isinstance(value, str):
            found[path + (key,)] = value
    return found


def align(source, target):
    """Pairs of texts with the same key on both sides, in the order of the source."""
    return [(text, target[key]) for key, text in source.items() if key in target]


# Placeholders, code and addresses are the same in both languages: a test set full of them rewards copying.
MACHINE_TEXT = re.compile(r"[{}`\[\]<>|=_\\]|https?:")


def is_prose(pair):
    return not any(MACHINE_TEXT.search(text) for text in pair)


def homeassistant(folder, src, tgt):
    with zipfile.ZipFile(next(folder.glob("homeassistant-*.whl"))) as wheel:

        def strings(component, language):
            return flatten(json.loads(wheel.read(f"{component}/translations/{language}.json")))

        languages = {}
        for name in wheel.namelist():
            if match := re.fullmatch(r"(.+)/translations/([^/]+)\.json", name):
                languages.setdefault(match[1], set()).add(match[2])
        known = set().union(*languages.values())
        for language in (src, tgt):
            if language not in known:
                fail(f"Home Assistant has no language {language}; it has {' '.join(sorted(known))}")
        both = sorted(component for component, there in languages.items() if {src, tgt} <= there)
        return [pair for component in both for pair in align(strings(component, src), strings(component, tgt))]


class Paragraphs(HTMLParser):
    """Collect the text of each element with the id of a translated paragraph or heading."""

    def __init__(self, html):
        super().__init__()
        self.texts, self.tag, self.key = {}, None, None
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        key = dict(attrs).get("id") or ""
        if self.tag is None and re.match(r"(par|hd)_id\d", key) and key not in self.texts:
            self.tag, self.key, self.texts[key] = tag, key, ""

    def handle_endtag(self, tag):
        if tag == self.tag:
            self.tag = None

    def handle_data(self, data):
        if self.tag:
            self.texts[self.key] += data


def sentences(paragraph):
    return re.split(r"(?<=[.!?:]) +(?=\w)", " ".join(paragraph.split()))


def libreoffice(folder, src, tgt):
    with tempfile.TemporaryDirectory() as unpacked:
        for package in folder.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", package, unpacked], check=True)
        pages = Path(unpacked, "usr/share/libreoffice/help")
        codes = {code.name.lower(): code for code in pages.iterdir()}
        source, target = (codes.get({"en": "en-us"}.get(language, language.lower())) for language in (src, tgt))
        pairs = []
        for page in sorted(source.rglob("text/**/*.html")):
            other = target / page.relative_to(source)
            if not other.exists():
                continue
            texts = (Paragraphs(file.read_text(encoding="utf-8")).texts for file in (page, other))
            for left, right in align(*texts):
                left, right = sentences(left), sentences(right)
                # Paragraphs with different numbers of sentences cannot be paired sentence by sentence.
                pairs += zip(left, right) if len(left) == len(right) else [(" ".join(left), " ".join(right))]
        return pairs


def main():
    name, folder, src, tgt, output = sys.argv[1:]
    extract = {"homeassistant": homeassistant, "libreoffice": libreoffice}[name]
    everything = [tuple(" ".join(text.split()) for text in pair) for pair in extract(Path(folder), src, tgt)]
    pairs = [pair for pair in everything if is_prose(pair)]
    for side, language in enumerate((src, tgt)):
        write_lines(Path(output, f"raw.{language}"), (pair[side] for pair in pairs))
    print(f"{len(everything)} pairs of strings, {len(pairs)} without placeholders, code or addresses")


if __name__ == "__main__":
    main()
