"""A ``--user-dir`` is imported only once, even by different paths to its folder."""

import importlib
import sys
from argparse import Namespace

import pytest
from fairseq import utils

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.fairseq_repairs.repair import hooks_of
from fairseq_reservoir.fairseq_repairs.user_dirs import is_imported

NAME = "plugin_of_this_test"


def import_user_dir(path, repaired=True):
    function = utils.import_user_module
    for _ in () if repaired else hooks_of(function):
        function = function.__wrapped__
    function(Namespace(user_dir=str(path)))


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Import a package by the path ``site/fairseq/..``, as fairseq does for packages next to its own folder."""
    folder = tmp_path / "site" / NAME
    folder.mkdir(parents=True)
    (tmp_path / "site" / "fairseq").mkdir()
    (folder / "__init__.py").write_text("count = 0")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site" / "fairseq" / ".."), *sys.path])
    monkeypatch.setattr(utils.import_user_module, "memo", set(), raising=False)  # like in a new process
    monkeypatch.chdir(tmp_path)
    yield importlib.import_module(NAME)
    del sys.modules[NAME]


@pytest.mark.parametrize("path", [f"site/{NAME}", f"site/fairseq/../{NAME}", f"links/{NAME}", NAME, f"./{NAME}/"])
def test_every_path_to_it_gives_the_imported_package(package, path, tmp_path):
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / NAME).symlink_to(tmp_path / "site" / NAME)
    before = set(sys.modules)
    assert is_imported(path)
    import_user_dir(path)
    assert sys.modules[NAME] is package and set(sys.modules) == before
    with pytest.raises((ImportError, FileNotFoundError)):  # not globally unique, or not found
        import_user_dir(path, repaired=False)


def test_a_clone_with_the_name_of_its_package(package, tmp_path):
    (tmp_path / NAME / NAME).mkdir(parents=True)
    (tmp_path / NAME / NAME / "__init__.py").touch()
    import_user_dir(tmp_path / NAME)
    with pytest.raises(ImportError, match="not globally unique"):
        import_user_dir(tmp_path / NAME, repaired=False)


def test_another_folder_with_the_name_of_a_package_is_not_that_package(tmp_path, monkeypatch):
    (tmp_path / "json").mkdir()
    monkeypatch.chdir(tmp_path)
    assert not is_imported("./json") and not is_imported(str(tmp_path / "json"))


def test_another_package_of_that_name_is_refused(package, tmp_path):
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME / "__init__.py").touch()
    with pytest.raises(InputError) as refused:
        import_user_dir(tmp_path / NAME)
    assert str(refused.value) == (
        f"--user-dir {tmp_path / NAME}: a package {NAME} is already imported from {tmp_path}/site/fairseq/../{NAME}; give this "
        f"folder as --user-dir, or rename {tmp_path / NAME}"
    )


def test_a_new_package_is_imported(tmp_path, monkeypatch):
    name = f"another_{NAME}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("count = 1")
    monkeypatch.setattr(sys, "path", [*sys.path])
    import_user_dir(tmp_path / name)
    assert sys.modules.pop(name).count == 1


@pytest.mark.parametrize("path, error", [(None, None), (f"{NAME}/nowhere", FileNotFoundError), ("", None)])
def test_other_paths_are_left_to_fairseq(path, error, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert not is_imported(path)
    if error:
        with pytest.raises(error):
            import_user_dir(path)
