"""The oldest supported Python is 3.11.0: names that later 3.11 releases added are not used."""

import io
import re
import tarfile
from pathlib import Path

import pytest

from tests.support.unpacked import unpack

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("fairseq_reservoir", "scripts", "examples", "benchmarks", "tests")
# Added by a 3.11.N with N > 0. Type checkers and `vermin` do not detect these, because they treat 3.11 as one version.
LATER = r"\.extract(?:all)?\([^()]*(?:\([^()]*\)[^()]*)*filter=|tarfile\.\w*_filter|reparse_deferral"


def archive_of(name, kind=tarfile.REGTYPE, link=""):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for each in ("first/file", name):
            member = tarfile.TarInfo(each)
            member.type, member.linkname, member.size = kind if each == name else tarfile.REGTYPE, link, 4
            archive.addfile(member, io.BytesIO(b"text"))
    return tarfile.open(fileobj=io.BytesIO(content.getvalue()))


def test_files_are_unpacked(tmp_path):
    unpack(archive_of("a/b.txt"), tmp_path / "out")
    assert (tmp_path / "out/a/b.txt").read_text() == (tmp_path / "out/first/file").read_text() == "text"


@pytest.mark.parametrize("name, kind, link", [
    ("../out.txt", tarfile.REGTYPE, ""),
    ("a/../../out.txt", tarfile.REGTYPE, ""),
    ("/out.txt", tarfile.REGTYPE, ""),
    ("link", tarfile.SYMTYPE, "/"),
    ("link", tarfile.LNKTYPE, "first/file"),
    ("pipe", tarfile.FIFOTYPE, ""),
])  # fmt: skip
def test_a_member_that_leads_out_of_the_folder_is_refused_before_anything_is_written(tmp_path, name, kind, link):
    with pytest.raises(ValueError, match=re.escape(name)):
        unpack(archive_of(name, kind, link), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_no_name_of_a_later_release_is_used():
    assert re.search(LATER, 'archive.extractall(path / name("x"), filter="data")')
    sources = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if path != Path(__file__)]
    assert len(sources) > 100
    assert [path for path in sources if re.search(LATER, path.read_text(encoding="utf-8"))] == []
