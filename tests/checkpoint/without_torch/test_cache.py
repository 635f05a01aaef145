"""The cache of CTranslate2 models: an entry belongs to one export, one converter and one version, and damage is repaired."""

import logging
import pwd
import shutil

import pytest

from fairseq_reservoir.checkpoint import export_file
from fairseq_reservoir.checkpoint.without_torch import cache
from fairseq_reservoir.errors import InputError

ctranslate2 = pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: pip install ctranslate2")


@pytest.fixture
def folder(with_text, tmp_path, monkeypatch):
    """Return a function that opens the cache for an export and returns the model's folder."""
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))

    def get(path=with_text):
        with cache.model_folder(str(path), export_file.read_text(path)) as found:
            assert ctranslate2.contains_model(str(found))
            return found

    return get


def test_the_second_run_converts_nothing(folder, tmp_path, monkeypatch):
    first = folder()
    assert list((tmp_path / "cache").iterdir()) == [first] and first.name.startswith("model-")
    monkeypatch.setattr(cache, "convert", None)
    assert folder() == first


def test_an_entry_belongs_to_a_file_and_to_versions(folder, with_text, tmp_path, monkeypatch):
    found = {folder()}
    shutil.copy(with_text, tmp_path / "model.safetensors")
    assert folder(tmp_path / "model.safetensors") in found  # the same bytes at another place
    monkeypatch.setattr(cache, "CONVERTER_VERSION", 0)
    found.add(folder())
    monkeypatch.setattr(ctranslate2, "__version__", "1.0")
    found.add(folder())
    with open(tmp_path / "model.safetensors", "ab") as file:
        file.write(b"\0")
    assert cache._key(str(tmp_path / "model.safetensors")) not in {each.name.split("-")[-1] for each in found}
    assert len(found) == 3


@pytest.mark.parametrize("name, content", [
    ("model.bin", b"cut"), ("config.json", b"{}"), ("complete", b"\xff"), ("complete", b""),
])  # fmt: skip
def test_a_damaged_entry_is_written_again(folder, name, content):
    first = folder()
    whole = {file.name: file.read_bytes() for file in first.iterdir()}
    (first / name).write_bytes(content)
    assert folder() == first
    assert {file.name: file.read_bytes() for file in first.iterdir()} == whole


def test_no_home_folder(folder, tmp_path, monkeypatch, caplog):
    """Without HOME and an entry for the user in /etc/passwd, the model is converted at each run, and no folder "~" is made."""

    def no_entry(uid):
        raise KeyError(uid)

    for name in (cache.VARIABLE, "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", no_entry)
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.INFO)
    assert not folder().exists() and list(tmp_path.iterdir()) == []
    assert "not kept, because there is no home folder; set FAIRSEQ_RESERVOIR_CACHE" in caplog.text


def test_an_entry_of_another_process_stays(folder, monkeypatch):
    """Another process writes the entry during our conversion. It may be reading it, so the folder is not replaced."""
    first = folder()
    number, found = first.stat().st_ino, cache._is_valid
    answers = iter([False])
    monkeypatch.setattr(cache, "_is_valid", lambda entry: next(answers, None) is None and found(entry))
    assert folder() == first and first.stat().st_ino == number


def test_a_full_disk_is_one_line(folder, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "_hash_of_files", full)
    with pytest.raises(InputError, match="^temporary folder .*: cannot be written .No space left on device.$"):
        folder()


def test_a_cache_that_cannot_be_written(folder, tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "file" / "cache"))
    with caplog.at_level(logging.INFO, logger=cache.__name__):
        found = folder()
    assert not found.exists()
    assert "is not kept for later runs" in caplog.text


@pytest.mark.parametrize("variables, expected", [
    ({"XDG_CACHE_HOME": "/x"}, "/x/fairseq_reservoir/ctranslate2"),
    ({"HOME": "/h"}, "/h/.cache/fairseq_reservoir/ctranslate2"),
    ({cache.VARIABLE: "/own", "XDG_CACHE_HOME": "/x"}, "/own"),
])  # fmt: skip
def test_the_users_cache_folder(variables, expected, monkeypatch):
    for name in (cache.VARIABLE, "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert str(cache._cache()) == expected
