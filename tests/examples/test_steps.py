"""Steps of recipes: kept if nothing changed, repeated after a change, and named only when complete."""

import subprocess
from pathlib import Path

import pytest

import fairseq_reservoir

ROOT = Path(fairseq_reservoir.__file__).parents[1]
NAMES = ["a&b", "q[x]", "a b", "*", "./-w"]
BEGIN = f"""
set -euo pipefail
recipe=test dry=${{DRY_RUN:-}} root='{ROOT}'
say() {{ echo "test: $*"; }}
die() {{ say "$@" >&2; exit 2; }}
. "$root/examples/steps.sh"
"""
# Each step adds a line to "did" when it is executed.
RECIPE = """
cut() { run sh -c 'echo cut >>did; tr a-z A-Z <"$0/text" >"$1/cut"' "$1" "$2"; }
written "$W/raw/text" sh -c 'echo copied >>did; cat "$0"' "$W.txt"
folder "$W/cut" cut "$W/raw" "$W/cut"
trained "$W/model" ./train "$W/cut" "$W/model" --max-update ${UPDATES:-1} ${MORE:-}
shown "$W/model/score" sh -c 'echo scored >>did; cat "$0"' "$W/model/checkpoint"
"""
TRAIN = """#!/bin/sh
[ ! -e broken ] || exit 3
echo trained >>did
echo "$4 of $(cat "$1/cut")" >>"$2/checkpoint"
"""


@pytest.fixture
def recipe(tmp_path):
    """Return a function that runs the recipe and returns (executed steps, output)."""
    (tmp_path / "train").write_text(TRAIN)
    (tmp_path / "train").chmod(0o755)

    def start(name, script=RECIPE, status=0, **environment):
        did = tmp_path / "did"
        did.write_text("")
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "W": name, **environment}
        ended = subprocess.run(
            ["bash", "-c", BEGIN + script], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert ended.returncode == status, ended.stdout + ended.stderr
        return did.read_text().split(), ended.stdout + ended.stderr

    return start


@pytest.mark.parametrize("name", NAMES)
def test_kept_until_a_command_or_an_input_changes(recipe, tmp_path, name):
    (tmp_path / f"{name}.txt").write_text("hello\n")
    everything = ["copied", "cut", "trained", "scored"]
    assert recipe(name)[0] == everything
    assert (tmp_path / name / "model" / "score").read_text() == "1 of HELLO\n"
    assert not list(tmp_path.rglob("*.part"))

    again, said = recipe(name)
    assert again == [] and f"test: {name}/cut is there: kept" in said
    (tmp_path / f"{name}.txt").touch()  # a new date is not a change
    assert recipe(name)[0] == []

    # With more updates, training resumes, and the score is computed again.
    assert recipe(name, UPDATES="2")[0] == ["trained", "scored"]
    assert (tmp_path / name / "model" / "score").read_text() == "1 of HELLO\n2 of HELLO\n"

    (tmp_path / f"{name}.txt").write_text("good bye\n")
    (tmp_path / name / "model").rename(tmp_path / "of hello")
    assert recipe(name, UPDATES="2")[0] == everything
    assert (tmp_path / name / "cut" / "cut").read_text() == "GOOD BYE\n"


def test_a_training_is_not_taken_for_one_with_other_flags_or_data(recipe, tmp_path):
    (tmp_path / "w.txt").write_text("hello\n")
    recipe("w")
    refusal = (
        "test: w/model was started with other flags or data: move it away or name another RUNS folder, or, to continue it"
        " anyway, rm w/model/.begun\n"
    )
    # In another folder, or with more checkpoints, it is the same training. It has ended and need not resume.
    for where_it_runs in ("--cpu", "--update-freq 2 --distributed-world-size=4", "--keep-last-epochs=1 --log-file a/b"):
        assert recipe("w", MORE=where_it_runs)[0] == []
    assert recipe("w", UPDATES="2", MORE="--patience=3 --cpu")[0] == ["trained", "scored"]
    for other in ("--lr 1", "--keep-last-epochs=1 --lr"):
        assert recipe("w", MORE=other, status=2) == ([], f"test: w/cut is there: kept\n{refusal}")
    (tmp_path / "w.txt").write_text("good bye\n")
    did, said = recipe("w", status=2)
    assert did == ["copied", "cut"] and said == refusal
    (tmp_path / "w" / "model" / ".begun").unlink()
    assert recipe("w")[0] == ["trained", "scored"]


def test_a_training_without_updates_restarts_with_other_flags(recipe, tmp_path):
    (tmp_path / "w.txt").write_text("hello\n")
    (tmp_path / "broken").touch()
    recipe("w", MORE="--lr mistyped", status=3)
    (tmp_path / "broken").unlink()
    assert recipe("w", MORE="--lr 1")[0] == ["trained", "scored"]


def test_a_model_with_another_start_is_another_model(recipe, tmp_path):
    """A fine-tuning. If a changed step produces the same data, they count as the same."""
    script = """
    folder "$W/bin" sh -c "$MAKE" "$W/bin"
    trained "$W/first" ./train "$W/bin" "$W/first" --max-update ${UPDATES:-1} ${MORE:-}
    trained "$W/second" ./train "$W/bin" "$W/second" --max-update 3 "$W/first/checkpoint" ${MORE:-}
    """
    make = 'mkdir -p "$0"; echo A >"$0/cut"'
    assert recipe("w", script, MAKE=make)[0] == ["trained", "trained"]
    assert recipe("w", script, MAKE=make, MORE="--cpu")[0] == []
    assert recipe("w", script, MAKE=f"{make} # in other words")[0] == []
    did, said = recipe("w", script, MAKE=make, UPDATES="2", status=2)
    assert did == ["trained"] and "w/second was started with other flags or data" in said


def test_other_files_in_a_folder_that_no_step_made_are_seen(recipe, tmp_path):
    """An earlier version identified such a folder by its name only, and so all folders below one with a user's file named key."""
    script = 'written "$W/copy" sh -c \'echo copied >>did; cat "$0"/t*\' ./mine'
    (tmp_path / "mine").mkdir()
    (tmp_path / "key").write_text("of my bicycle")
    (tmp_path / "mine" / "text").write_text("one\n")
    assert recipe("w", script)[0] == ["copied"] and recipe("w", script)[0] == []
    (tmp_path / "mine" / "text").write_text("two\n")
    assert recipe("w", script)[0] == ["copied"] and (tmp_path / "w" / "copy").read_text() == "two\n"
    for nothing in ("run.log", ".DS_Store", "__pycache__/a"):
        (tmp_path / "mine" / nothing).parent.mkdir(exist_ok=True)
        (tmp_path / "mine" / nothing).touch()
    assert recipe("w", script)[0] == []
    (tmp_path / "mine" / "text").rename(tmp_path / "text")
    (tmp_path / "mine" / "text").symlink_to("../text")
    assert recipe("w", script)[0] == []
    (tmp_path / "text").write_text("three\n")
    assert recipe("w", script)[0] == ["copied"]


def test_it_does_not_count_where_files_lie(recipe, tmp_path):
    (tmp_path / "here.txt").write_text("hello\n")
    recipe("here")
    (tmp_path / "here").rename(tmp_path / "there")
    (tmp_path / "here.txt").rename(tmp_path / "there.txt")
    assert recipe("there")[0] == [] and recipe(str(tmp_path / "there"))[0] == []


@pytest.mark.parametrize(
    "step",
    [
        'folder "$W/out" sh -c \'echo half >"$0/half"; exit 3\' "$W/out"',
        "written \"$W/out\" sh -c 'echo half; exit 3'",
        "shown \"$W/out\" sh -c 'echo half; exit 3'",
        "trained \"$W/out\" sh -c 'echo half; exit 3'",
        'half() { false; echo half; }\nfolder "$W/out" half',
    ],
)
def test_a_step_that_fails_ends_the_recipe_and_is_done_again(recipe, tmp_path, step):
    script = f"{step}\necho later >>did"
    for _ in range(2):
        did, said = recipe("w", script, status=1 if step.startswith("half") else 3)
        assert did == [] and "kept" not in said
    assert not (tmp_path / "w" / "out").exists() or step.startswith("trained")
    assert not (tmp_path / "w" / "out" / "key").exists()


def test_outputs_of_an_older_model_are_removed_when_training_resumes(recipe, tmp_path):
    (tmp_path / "w.txt").write_text("hello\n")
    recipe("w")
    (tmp_path / "w" / "model" / "mine").write_text("of the user")
    (tmp_path / "broken").touch()
    recipe("w", UPDATES="2", status=3)
    left = {file.name for file in (tmp_path / "w" / "model").iterdir()}
    assert left == {"checkpoint", "train.log", ".begun", ".words", "mine"}


def test_other_data_and_a_folder_of_the_users_are_refused(recipe, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cut").touch()
        (tmp_path / name / "dict.txt").write_text(f"{name} 1\n")
    recipe("w", "trained model ./train ./one model 1")
    _, said = recipe("w", "trained model ./train ./two model 1", status=2)
    assert said == "test: model was trained on other data with other dictionaries than ./two: move it away\n"
    _, said = recipe("w", "folder ./two touch ./two/mine", status=2)
    assert said == "test: ./two exists and was not made by a recipe: move it away\n"
    assert sorted(file.name for file in (tmp_path / "two").iterdir()) == ["cut", "dict.txt"]


def test_a_dry_run_prints_every_command_and_writes_nothing(recipe, tmp_path):
    did, said = recipe("w", DRY_RUN="1")
    assert did == [] and not (tmp_path / "w").exists()
    assert "test:" not in said and "tr" in said
    for line in (
        "mv w/cut.part w/cut",
        "./train w/cut w/model --max-update 1 2>&1 | tee -a w/model/train.log",
        "mv w/model/score.part w/model/score",
    ):
        assert line in said.replace(" \n", "\n").splitlines()


@pytest.mark.parametrize(
    "own, wait", [({}, "passive"), ({"OMP_WAIT_POLICY": "active"}, "active"), ({"OMP_WAIT_POLICY": ""}, "")]
)
def test_threads_sleep_while_they_wait_unless_the_user_has_chosen(recipe, own, wait):
    assert recipe("any", 'printf "wait=%s\\n" "$(sh -c \'echo $OMP_WAIT_POLICY\')"', **own)[1] == f"wait={wait}\n"


@pytest.mark.parametrize(
    "arguments, name",
    [
        ("", ""),
        ("--max-update 20 --cpu --threads=2", ""),  # neither the model nor its training
        ("--reservoir-encoder LTLTL", "-reservoir-encoder-LTLTL"),
        ("--reservoir-encoder=LTLTL --fp16", "-reservoir-encoder-LTLTL-fp16"),
        ("--freeze encoder.layers.0-2,emb --lr 1e-3", "-freeze-encoder.layers.0-2,emb-lr-1e-3"),
        # cksum of "--adam-betas\n(0.9, 0.98)\n"
        ("--adam-betas '(0.9, 0.98)'", "-flags-2366534592"),
    ],
)
def test_arguments_become_a_part_of_a_runs_name(recipe, arguments, name):
    assert recipe("w", f"tag {arguments}")[1] == (f"{name}\n" if name else "")
