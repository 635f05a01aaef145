"""The quickstart: its splits do not overlap, its errors are one line each, and it resumes after an interrupt."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from tests.support.scripts import run_script

ROOT = Path(__file__).resolve().parents[1]
HELPERS = ROOT / "examples" / "quickstart"
sys.path.insert(0, str(HELPERS))

from corpora import Paragraphs, homeassistant, is_prose, sentences  # noqa: E402
from pairs import fold, keep_good, read_pairs, split  # noqa: E402
from report import translations  # noqa: E402

words = st.lists(
    st.sampled_from(["Open", "open", "the", "door", "{name}", "Tür", "now!", " "]), min_size=1, max_size=5
).map(" ".join)
corpora = st.lists(st.tuples(words, words), min_size=40, max_size=120)


@given(corpora)
@settings(deadline=None, max_examples=50)
def test_no_source_is_in_two_parts(pairs):
    good = keep_good(pairs)
    assert len(good) == len(set(good))
    if len({fold(source) for source, _ in good}) < 3:
        return
    parts = split(good)
    sources = {name: [fold(source) for source, _ in part] for name, part in parts.items()}
    assert not set(sources["test"]) & set(sources["train"] + sources["valid"])
    assert not set(sources["valid"]) & set(sources["train"])
    assert set(sum(sources.values(), [])) == {fold(source) for source, _ in good}
    for name in ("valid", "test"):
        assert 0 < len(sources[name]) == len(set(sources[name]))


@given(corpora, st.randoms())
@settings(deadline=None, max_examples=25)
def test_the_split_depends_on_the_sentences_alone(pairs, random):
    good = keep_good(pairs)
    shuffled = random.sample(good, len(good))
    chosen, again = split(good), split(shuffled)
    for name in chosen:
        assert {fold(source) for source, _ in chosen[name]} == {fold(source) for source, _ in again[name]}
    assert split(good) == chosen


def test_fold_and_good_pairs():
    assert fold("  Open the DOOR! ") == fold("open the door") == "open the door"
    pairs = [
        ("Open  the {name} door", "Öffne die Tür {name}"),
        ("Open the {name} door", "Öffne die Tür {name}"),  # the same except for a space
        ("WLAN", "WLAN"),  # untranslated
        ("...", "…"),  # no words
        ("a b", "x" * 40),  # 40 > 3 * 3 + 10
        ("Stop", "Halt"),
    ]
    assert keep_good(pairs) == [("Open the {name} door", "Öffne die Tür {name}"), ("Stop", "Halt")]
    assert keep_good(pairs, min_words=2) == [("Open the {name} door", "Öffne die Tür {name}")]


def test_home_assistant_strings_are_paired_by_their_keys(tmp_path):
    strings = {
        "zwave/translations/en.json": {"config": {"error": "No device", "title": "Radio"}},
        "zwave/translations/de.json": {"config": {"error": "Kein Gerät"}, "other": "Nur hier"},
        "abode/translations/en.json": {"title": "Alarm"},
    }
    with zipfile.ZipFile(tmp_path / "homeassistant-1-py3-none-any.whl", "w") as wheel:
        for name, content in strings.items():
            wheel.writestr(name, json.dumps(content))
    assert homeassistant(tmp_path, "en", "de") == [("No device", "Kein Gerät")]
    with pytest.raises(SystemExit):
        homeassistant(tmp_path, "en", "xx")


def test_paragraphs_of_help_pages():
    page = '<h1 id="hd_id1">Sum</h1><p id="par_id2">Adds <b>all</b> &lt;n&gt;.\n It is fast.</p><p>not translated</p>'
    texts = Paragraphs(page).texts
    assert texts == {"hd_id1": "Sum", "par_id2": "Adds all <n>.\n It is fast."}
    assert sentences(texts["par_id2"]) == ["Adds all <n>.", "It is fast."]


def test_translations_are_read_by_number(tmp_path):
    generated = tmp_path / "generate-test.txt"
    generated.write_text("S-1\ta\nH-1\t-0.5\tx\nD-1\t-0.5\tein Satz\nD-0\t-1\t\nGenerate test\n", encoding="utf-8")
    assert translations(generated) == {0: "", 1: "ein Satz"}


@pytest.mark.parametrize(
    "source, target, message",
    [
        (b"a\nb\n", b"x\n", "c.en has 2 lines, but {folder}/c.de has 1: line i must translate line i"),
        (b"", b"x\n", "c.en is empty"),
        (b"a\n\n", b" \n\n", "c.de is empty"),
        (b"a\n\xff\n", b"x\ny\n", "c.en is not UTF-8: byte 0xff in line 2"),
        (None, b"x\n", "c.en does not exist"),
        (b"a\n", b"x\n", "c.en: 1 of 1 pairs are usable; at least 100 are needed"),
    ],
)
def test_corpus_errors(tmp_path, source, target, message):
    for name, content in (("c.en", source), ("c.de", target)):
        if content is not None:
            (tmp_path / name).write_bytes(content)
    output = tmp_path / "output"
    output.mkdir()
    result = run_script(HELPERS / "split.py", tmp_path / "c.en", tmp_path / "c.de", "1", output)
    assert result.returncode == 2
    assert result.stderr == f"quickstart: {tmp_path}/{message.format(folder=tmp_path)}\n"
    assert not list(output.iterdir())


def test_windows_line_ends_and_byte_order_mark(tmp_path):
    (tmp_path / "c.en").write_bytes(b"\xef\xbb\xbfa\r\nb\r\n")
    (tmp_path / "c.de").write_bytes(b"x\ny")
    assert read_pairs(tmp_path / "c.en", tmp_path / "c.de") == [("a", "x"), ("b", "y")]


def start(corpus, work):
    environment = {**os.environ, "CORPUS": str(corpus), "WORK": str(work), "MINI": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        ["bash", "examples/quickstart.sh"], cwd=ROOT, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip


def test_a_missing_corpus_is_named_before_anything_is_done(tmp_path):
    process = start(tmp_path / "none", tmp_path / "work")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert output.count("\n") == 1 and f"{tmp_path}/none.en does not exist" in output


@pytest.mark.parametrize(
    "words, status, text", [(["--help"], 0, "MAX_UPDATE="), (["30"], 2, "30: the only argument is --help")]
)
def test_help_and_other_arguments_start_nothing(words, status, text):
    ended = subprocess.run(
        ["bash", "examples/quickstart.sh", *words], cwd=ROOT, capture_output=True, text=True, timeout=20
    )
    assert ended.returncode == status and text in ended.stdout + ended.stderr


def test_another_corpus_does_not_take_the_place_of_the_first(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / ".corpus").write_text("/one/text-en-de\n")
    for language in ("en", "de"):
        (tmp_path / f"text.{language}").write_text("open\n")
    process = start(tmp_path / "text", tmp_path / "work")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "holds the run of another corpus, /one/text-en-de; name another folder" in output.splitlines()[-1]


@pytest.mark.parametrize(
    "setting, value, message",
    [
        ("WORK", "runs/a,b", "WORK=runs/a,b: fairseq would split it into several folders at a comma or colon"),
        ("WORK", "runs/a:b", "WORK=runs/a:b: fairseq would split it"),
        ("WORK", str(ROOT / "setup.py"), "setup.py: is not a folder"),
        ("MAX_UPDATE", "many", "MAX_UPDATE=many: must be a whole number"),
        ("SEED", "-w", "SEED=-w: must be a whole number"),
    ],
)
def test_odd_settings_are_refused_before_anything_is_done(setting, value, message):
    environment = {**os.environ, "MINI": "1", setting: value}
    ended = subprocess.run(
        ["bash", "examples/quickstart.sh"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 2 and ended.stderr.count("\n") == 1 and message in ended.stderr


@pytest.mark.parametrize("name", ["a&b", "q[x]", "a b", "*", "-w"])
def test_a_step_writes_into_a_folder_of_any_name(tmp_path, name):
    """The script's own lines up to its first step, without set-up, and then a step of the test."""
    lines = (ROOT / "examples" / "quickstart.sh").read_text().split("\nraw=")[0].splitlines()
    lines = [line.replace(". examples/", f". {shlex.quote(str(ROOT))}/examples/") for line in lines]
    script = "fairseq-reservoir() { :; }\n"
    script += "\n".join(line for line in lines if not line.startswith(("bash scripts/setup.sh", 'cd "$(dirname')))
    script += '\nstep one touch -- "$work/one/made"\n'
    environment = {**os.environ, "WORK": name}
    ended = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    assert sorted(path.name for path in (tmp_path / name).rglob("*")) == [".corpus", "key", "log", "made", "one"]


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".venv" / ".setup-stamp").exists(), reason="needs the .venv of scripts/setup.sh")
def test_interrupted_and_run_again(tmp_path):
    corpus, work = tmp_path / "tiny", tmp_path / "a&b[x]"
    numbers = [f"{i} {i * i % 7} {i * i % 11}" for i in range(400)]
    corpus.with_suffix(".en").write_text("".join(f"open door {n} now\n" for n in numbers))
    corpus.with_suffix(".de").write_text("".join(f"jetzt Tür {n} öffnen\n" for n in numbers))

    process = start(corpus, work)
    while not list(work.glob("model-*.part/checkpoint_last.pt")):
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does
    process.communicate(timeout=60)
    assert process.returncode != 0
    assert not list(work.glob("model-*[0-9]"))

    process = start(corpus, work)
    output, _ = process.communicate(timeout=400)
    assert process.returncode == 0, output
    (log,) = work.glob("model-*/log")
    assert re.search(r"Loaded checkpoint .*checkpoint_last.pt", log.read_text())
    for expected in (
        "data is there: kept",
        "BLEU = ",
        "|version:",
        "copying the source: BLEU",
        "frozen ",
        "fairseq-generate",
    ):
        assert expected in output
    assert output.count("  reference  ") == 5

    begin = time.monotonic()
    process = start(corpus, work)
    again, _ = process.communicate(timeout=100)
    assert again.count(": kept") == 5 and time.monotonic() - begin < 60
    assert (
        again[again.index("slot ") : again.index("done after")]
        == output[output.index("slot ") : output.index("done after")]
    )
    assert not list(work.glob("*.part"))


@pytest.mark.parametrize(
    "pair, prose",
    [
        (("Open the door.", "Öffne die Tür."), True),
        (("50 % (of all) & more: yes!", "50 % (von allen) & mehr: ja!"), True),
        (("Open {name}.", "Öffne {name}."), False),
        (("Open the door.", "Öffne `tür`."), False),
        (("See https://example.org", "Siehe unten"), False),
        (("See [the page](url)", "Siehe die Seite"), False),
    ],
)
def test_placeholders_code_and_addresses_are_no_prose(pair, prose):
    assert is_prose(pair) == prose


def test_the_control_gives_each_sentence_its_neighbours_encoder_output(monkeypatch):
    import shuffled
    import torch
    from fairseq.models.transformer import TransformerEncoderBase

    from tests.support.building import build, pad

    model = build().eval()
    source = pad([torch.tensor([5, 6, 7, 2]), torch.tensor([8, 9, 2])])
    before = model.encoder(source)
    monkeypatch.setattr(TransformerEncoderBase, "forward", TransformerEncoderBase.forward)
    shuffled.shuffle_encoder_output()
    after = model.encoder(source)
    assert torch.equal(after["encoder_out"][0], before["encoder_out"][0][:, [1, 0]])
    assert torch.equal(after["encoder_padding_mask"][0], before["encoder_padding_mask"][0][[1, 0]])
