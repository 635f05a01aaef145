"""Check of commit subjects: which ones are refused, as a hook of git and over the new commits of a clone."""

import subprocess
from pathlib import Path

import pytest
import yaml
from commit_subject import complaint, main, new_subjects, subject_of

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "subject",
    ["Refuse exports of other dictionaries", "Embed a table", "X" * 72, 'Revert "adding ..."', "Merge branch 'x'"],
)
def test_accepted(subject):
    assert complaint(subject) is None


@pytest.mark.parametrize(
    "subject, rule",
    [
        ("X" * 73, "73 characters; use at most 72"),
        ("refuse exports", "capital letter"),
        ("", "capital letter"),
        ("Refused exports", '"Refused": begin with an imperative'),
        ("Adding a check", '"Adding": begin with an imperative'),
        ("Add a check.", "full stop"),
    ],
)
def test_refused(subject, rule):
    assert rule in complaint(subject)


def test_comments_of_git_are_no_subject():
    assert subject_of("\n# Please enter a message\n  Add a check \n\nBecause.\n") == "Add a check"
    assert subject_of("# only comments\n") == ""


@pytest.mark.parametrize("subject, status", [("Add a check", 0), ("Added a check", 1)])
def test_as_a_hook(subject, status, tmp_path, capsys):
    (tmp_path / "COMMIT_EDITMSG").write_text(f"{subject}\n\nBecause.\n")
    assert main([str(tmp_path / "COMMIT_EDITMSG")], tmp_path) == status
    assert (f"commit subject '{subject}': " in capsys.readouterr().err) == bool(status)


def test_new_commits_only(tmp_path, capsys):
    def git(*words):
        name = ("-c", "user.name=n", "-c", "user.email=n@example.com")
        subprocess.run(["git", "-C", tmp_path, *name, *words], check=True, capture_output=True)

    git("init", "-q")
    assert new_subjects(tmp_path) == []
    git("commit", "-q", "--allow-empty", "-m", "written before the check.")
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "commit_subject.py").touch()
    git("add", "scripts")
    git("commit", "-q", "-m", "Add the check")
    git("commit", "-q", "--allow-empty", "-m", "Train a model")
    assert new_subjects(tmp_path) == ["Train a model"] and main([], tmp_path) == 0
    git("commit", "-q", "--allow-empty", "-m", "Trained a model")
    assert main([], tmp_path) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_pre_commit_and_ci_run_it():
    settings = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    hooks = {hook["id"]: hook for repo in settings["repos"] for hook in repo["hooks"]}
    assert (
        hooks["commit-subject"]["stages"] == ["commit-msg"] and "commit-msg" in settings["default_install_hook_types"]
    )
    assert hooks["commit-subject"]["entry"].endswith("scripts/commit_subject.py")
    assert "scripts/commit_subject.py\n" in (ROOT / ".ci" / "run").read_text()
