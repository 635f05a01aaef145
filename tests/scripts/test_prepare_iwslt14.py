"""prepare_iwslt14.sh equals an independent reference, and gives the same files after repetition and interrupts."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from prepare import iwslt14
from prepare.console import InputError
from sacremoses import MosesTokenizer

from tests.support import miniature
from tests.support.miniature import ROOT
from tests.support.outcome import binary, lines, tree

pytest.importorskip("subword_nmt", reason="subword-nmt is not installed (pip install -e '.[data]')")
SCRIPT = ROOT / "scripts" / "prepare_iwslt14.sh"
# A short reference: tokens of a line, and whether a pair is kept.
MOSES = {language: MosesTokenizer(language) for language in ("de", "en")}


def tokens(language, line):
    return re.sub(r"([^ .])\.$", r"\1 .", MOSES[language].tokenize(line, return_str=True)).lower().split()


def stays(german, english):
    return (
        1 <= len(german) <= 175 and 1 <= len(english) <= 175 and len(german) <= 1.5 * len(english) <= 2.25 * len(german)
    )


def expected(train, test):
    """Pairs of each split, as lists of tokens."""
    tags = [
        line.replace("<title>", "").replace("</title>", "") for line in miniature.iwslt_tags([""] * 10).split("\n")[3:5]
    ]
    pairs = []
    for start in range(0, len(train[0]), 10):
        title, description = (re.sub("<[^>]*>", "", tag).replace("Talk 0", f"Talk {start}") for tag in tags)
        pairs += [(title, title), (description, description), *list(zip(*train))[start : start + 10]]
    pairs = [(tokens("de", german), tokens("en", english)) for german, english in pairs]
    kept = [pair for pair in pairs if stays(*pair)]
    return {
        "train": [pair for i, pair in enumerate(kept, 1) if i % 23],
        "valid": kept[22::23],
        "test": [(tokens("de", g.replace("’", "'")), tokens("en", e.replace("’", "'"))) for g, e in zip(*test)],
    }


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    train, test = ([miniature.sentences(language, count) for language in ("de", "en")] for count in (240, 20))
    return miniature.iwslt14(tmp_path_factory.mktemp("public") / "de-en.tgz", train, test)


def test_real_sentences_give_the_lines_of_the_reference(tmp_path, prepare):
    train = miniature.real("wmt-news/de-en/newstest2012", ("de", "en"), 200)
    test = miniature.real("wmt-news/de-en/newstest2013", ("de", "en"), 50)
    if train is None or test is None:
        pytest.skip("../shared/data/wmt-news is absent")
    train[0][7] = train[1][7] = ""  # an empty pair
    train[0][8] = "kurz"  # and a pair with a bad length ratio
    archive = miniature.iwslt14(tmp_path / "de-en.tgz", train, test)
    prepare(iwslt14, "--archive", archive, "--bpe-size", 150)

    work, data = Path("data/iwslt14"), Path("data-bin/iwslt14")
    wanted = expected(train, test)
    assert 7 < len(wanted["valid"]) < 12 and len(wanted["test"]) == 50
    for split, pairs in wanted.items():
        for side, language in enumerate(("de", "en")):
            whole = [" ".join(pair[side]) for pair in pairs]
            assert lines(work / "text" / f"{split}.{language}") == whole
            pieces = lines(work / "pieces" / f"{split}.{language}")
            assert [line.replace("@@ ", "") for line in pieces] == whole
            assert sum(line.count("@@ ") for line in pieces) > len(pieces)
            if split == "train":  # other splits have unknown pieces
                assert binary(data, f"{split}.de-en.{language}", language) == pieces
    assert len(lines(data / "codes")) == 151  # and the line of the version
    assert len(binary(data, "test.de-en.en", "en")) == 50


def test_again_everything_is_kept(archive, tmp_path, prepare):
    prepare(iwslt14, "--archive", archive, "--bpe-size", 40)
    before = tree(tmp_path)
    printed = prepare(iwslt14, "--archive", archive, "--bpe-size", 40)
    assert printed.count("kept") == 6 and "making" not in printed
    assert tree(tmp_path) == before
    printed = prepare(iwslt14, "--archive", archive, "--bpe-size", 30)
    assert (printed.count("kept"), printed.count("making")) == (3, 3)  # raw, tokens, text; bpe, pieces, data-bin
    assert len(lines(Path("data-bin/iwslt14/codes"))) == 31
    shutil.rmtree("data")
    prepare(iwslt14, "--archive", archive, "--bpe-size", 40)
    assert tree(tmp_path) == before


def test_interrupted_before_and_after_each_change_of_name(archive, tmp_path, prepare, monkeypatch):
    prepare(iwslt14, "--archive", archive, "--bpe-size", 40)
    whole = tree(tmp_path)
    for folder in ("data", "data-bin"):
        shutil.rmtree(folder)

    class Killed(BaseException):
        pass

    rename, left = Path.rename, 0

    def renames_until_killed(path, target):
        nonlocal left
        left -= 1
        if left == 0 and before:
            raise Killed
        renamed = rename(path, target)
        if left == 0:
            raise Killed
        return renamed

    monkeypatch.setattr(Path, "rename", renames_until_killed)
    interrupts = 0
    for before, size in ((True, 30), (False, 40)):  # the second run checks the files of the first
        for left in (1, 2, 1, 2, 1, 1, 2, 1, 2, 1):
            try:
                prepare(iwslt14, "--archive", archive, "--bpe-size", size)
            except Killed:
                interrupts += 1
    left = 0
    prepare(iwslt14, "--archive", archive, "--bpe-size", 40)
    assert interrupts > 10
    assert tree(tmp_path) == whole


@pytest.mark.slow
def test_the_script_resumes_after_it_was_killed(archive, tmp_path, prepare, monkeypatch):
    """SIGKILL as soon as the unfinished folder of a step appears, for each step. The last run finishes."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    command = ["bash", SCRIPT, "--archive", archive, "--bpe-size", "40", "--jobs", "2"]

    def start(folder):
        folder.mkdir(exist_ok=True)
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True, **output)

    for unfinished in ("data/iwslt14/.tokens.part", "data/iwslt14/.bpe.part", "data-bin/.iwslt14.part"):
        script = start(tmp_path / "a")
        while not (tmp_path / "a" / unfinished).exists():
            assert script.poll() is None, script.stdout.read()
            time.sleep(0.002)
        os.killpg(script.pid, signal.SIGKILL)
        script.wait()
        assert not (tmp_path / "a" / unfinished.replace("/.", "/")).with_suffix("").exists()
    printed, _ = (script := start(tmp_path / "a")).communicate()
    assert script.returncode == 0, printed
    assert "data-bin/iwslt14 is ready for fairseq-train" in printed and printed.count("kept") == 5
    (tmp_path / "b").mkdir()
    monkeypatch.chdir(tmp_path / "b")
    prepare(iwslt14, "--archive", archive, "--bpe-size", 40)
    assert tree(tmp_path / "a") == tree(tmp_path / "b")


def test_a_truncated_archive_is_refused_by_name(archive, tmp_path, prepare):
    whole = archive.read_bytes()
    broken = tmp_path / "broken.tgz"
    for length in (0, 7, len(whole) // 2, len(whole) - 3):
        broken.write_bytes(whole[:length])
        with pytest.raises(InputError, match=rf"{re.escape(str(broken))} is truncated or damaged"):
            prepare(iwslt14, "--archive", broken)
        assert not Path("data/iwslt14/raw").exists()
    with pytest.raises(
        InputError, match="has no de-en/train.tags.de-en.de .nor 11 other files.: is it the right archive"
    ):
        prepare(iwslt14, "--archive", miniature.tgz(tmp_path / "other.tgz", {"de-en/README": "x"}))


def test_a_folder_of_somebody_else_is_left_alone(archive, tmp_path, prepare):
    other = tmp_path / "data-bin" / "iwslt14" / "train.de-en.de.bin"
    other.parent.mkdir(parents=True)
    other.write_text("precious")
    with pytest.raises(InputError, match="data-bin/iwslt14 exists and was not made by this script: move it away"):
        prepare(iwslt14, "--archive", archive, "--bpe-size", 40)
    assert other.read_text() == "precious"


def test_refusals_of_the_script_are_one_line(tmp_path):
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = ["bash", SCRIPT, "--archive", "nowhere.tgz"]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (
        2,
        "prepare_iwslt14: --archive nowhere.tgz: there is no such file or folder\n",
    )
