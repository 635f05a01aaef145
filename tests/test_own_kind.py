"""docs/your-own-kind.md: its example is complete, every command of the page works with it, and no other file is imported."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from fairseq_reservoir import cli
from fairseq_reservoir.errors import InputError
from fairseq_reservoir.layers.own_kinds import NOTHING, WHOLE, FeedForward, Kind, register_kind
from fairseq_reservoir.plan import kinds
from tests.support.commands import error_of
from tests.support.warm_start import be_program, run_command, run_function

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "your-own-kind.md").read_text()
EXAMPLE, COMMANDS, REFUSAL = re.findall(r"^```(?:python|sh|text)\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)


def as_a_shell(lines):
    """Run the commands of a shell in this process."""
    for line in lines:
        print("$", line)
        be_program(shlex.split(line))


@pytest.fixture(scope="module")
def ran(tmp_path_factory, toy_data):
    """The folder of the page's commands, after training for 3 updates and then 3 more, and their output."""
    folder = tmp_path_factory.mktemp("own_kind")
    (folder / "mykinds").mkdir()
    (folder / "mykinds" / "__init__.py").write_text(EXAMPLE)
    (folder / "data-bin").symlink_to(toy_data)
    lines = COMMANDS.replace("\\\n", " ").splitlines()
    assert sum("--max-update 1500" in line for line in lines) == 1
    again = next(line for line in lines if line.startswith("fairseq-train")).replace(
        "--max-update 1500", "--max-update 6"
    )
    lines = [line.replace("--max-update 1500", "--max-update 3") for line in lines] + [again]
    lines = [line + " --cpu" * line.startswith(("fairseq-train", "fairseq-generate")) for line in lines]
    lines = [line + " --max-len-b 10" * line.startswith("fairseq-generate") for line in lines]
    done = run_function(as_a_shell, lines, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout, done.stderr


def test_the_example_has_about_forty_lines():
    assert len(EXAMPLE.splitlines()) <= 45


def test_every_command_accepts_the_kind(ran):
    _, out, log = ran
    sections = dict(
        zip(re.findall(r"^\$ (\S+ \S+)", out, flags=re.MULTILINE), re.split(r"^\$ .*\n", out, flags=re.MULTILINE)[1:])
    )
    assert re.search(
        r"^encoder\.layers\.1 +A gated linear unit +frozen ", sections["fairseq-reservoir plan"], flags=re.MULTILINE
    )
    # attention to the source in a decoder is trained
    assert re.search(
        r"^decoder\.layers\.1 +A gated linear unit +frozen: ", sections["fairseq-reservoir plan"], flags=re.MULTILINE
    )
    assert sum(line.startswith("H-") for line in sections["fairseq-generate data-bin"].splitlines()) == 8
    assert "inference: weights in memory" in sections["fairseq-reservoir size"]
    assert re.search(r"^model.safetensors: [\d,]+ bytes$", sections["fairseq-reservoir export"], flags=re.MULTILINE)


def test_the_run_resumes_with_its_frozen_bits(ran):
    import torch

    folder, *said = ran
    log = "".join(said)  # fairseq's log is on stdout or stderr, depending on the order of imports
    assert "Loaded checkpoint" in log and (folder / "checkpoints" / "checkpoint_1_6.pt").exists() | (
        "num_updates: 6" in log
    )
    state = torch.load(folder / "checkpoints" / "checkpoint_last.pt", weights_only=False)
    assert state["optimizer_history"][-1]["num_updates"] == 6
    weight = state["model"]["encoder.layers.1.unit.gate.weight"].double()
    assert (weight @ weight.T - torch.eye(64)).abs().max() < 1e-5  # still orthogonal, like a drawn frozen matrix


@pytest.mark.parametrize("file", ["checkpoints/checkpoint_last.pt", "model.safetensors"])
def test_without_user_dir_it_is_refused_by_name(ran, file):
    path = ran[0] / file
    with pytest.raises(SystemExit) as leaving:
        cli.main(["size", str(path)])
    expected = REFUSAL.strip().replace("checkpoints/checkpoint_last.pt", str(path))
    assert str(leaving.value) == f"fairseq-reservoir: error: {expected}"
    assert "mykinds" not in sys.modules


@pytest.mark.parametrize("file", ["checkpoints/checkpoint_last.pt", "model.safetensors"])
def test_with_another_kind_of_that_letter_it_is_refused_by_name(ran, file, registry):
    row = {
        "frozen_letter": "A",
        "trained_letter": "a",
        "name": "moving mean",
        "about": "the mean so far",
        "freezes": kinds.WHOLE,
    }
    kinds.register(kinds.Kind(**row, sees_source=True, own_norm=True))
    path = ran[0] / file
    with pytest.raises(SystemExit) as leaving:
        cli.main(["size", str(path)])
    assert str(leaving.value) == (
        f"fairseq-reservoir: error: {path}: the plan LAL of the encoder has the user-defined layer A (gated linear unit), which is "
        "registered as a different kind (moving mean); give the --user-dir that registers it "
        "(in Python, import that package)"
    )


def test_training_and_translating_without_it_are_refused(ran, toy_data, run_fairseq, tmp_path):
    path = ran[0] / "checkpoints" / "checkpoint_last.pt"
    with pytest.raises(
        InputError,
        match=r"has the user-defined layer A \(gated linear unit\), .* give the --user-dir that registers it",
    ):
        run_fairseq("generate", toy_data, "--path", path, "--cpu")
    line, status = error_of(toy_data, "--restore-file", path, "--max-update", 1, "--save-dir", tmp_path / "run")
    assert status != 0 and line.count("\n") == 1 and "the user-defined layer A (gated linear unit)" in line


@pytest.mark.parametrize("folder", ["none", "x" * 300])  # a name has at most 255 bytes
def test_a_folder_that_is_not_there(folder):
    with pytest.raises(SystemExit, match="--user-dir (none|x+...x+): is not a folder with a file __init__.py"):
        cli.main(["plan", "--arch", "reservoir_transformer_tiny", "--user-dir", folder])


def test_help_names_its_letters(ran):
    ended = run_command("fairseq-reservoir", "plan", "--user-dir", ran[0] / "mykinds", "--help")
    assert "plan: letters of your --user-dir (reservoir_*):\n  A/a  gated linear unit, of mykinds\n" in ended.stdout
    with pytest.raises(SystemExit, match="--user-dir none: is not a folder"):
        cli.main(["plan", "--user-dir", "none", "--help"])


def test_training_with_a_letter_that_is_taken(tmp_path):
    """fairseq-train imports the folder, and thereby the plugin, before it reads its flags."""
    (tmp_path / "takenkinds").mkdir()
    (tmp_path / "takenkinds" / "__init__.py").write_text(EXAMPLE.replace('frozen_letter="A"', 'frozen_letter="F"'))
    ended = run_command("fairseq-train", "data-bin", "--user-dir", "takenkinds", "--arch", "transformer", cwd=tmp_path)
    line = "fairseq-train: error: gated linear unit: the letter F is taken; free letters: A B D "
    assert ended.stderr.startswith(line) and ended.stderr.count("\n") == 1
    assert ended.returncode == 2


@pytest.fixture
def registry(monkeypatch):
    """Remove kinds that a test has registered."""
    from fairseq_reservoir.layers import BUILDERS

    monkeypatch.setattr(kinds, "_BY_LETTER", dict(kinds._BY_LETTER))
    for name in list(BUILDERS):
        monkeypatch.setitem(BUILDERS, name, BUILDERS[name])
    yield
    BUILDERS.pop("Q", None)


def own(**changes):
    row = {"frozen_letter": "Q", "trained_letter": "q", "name": "mine", "about": "a test's own", "freezes": WHOLE}
    return Kind(**row | {"sees_source": False, "own_norm": False} | changes)


def build(config, stack):
    return {"ffn": FeedForward(config)}


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"frozen_letter": "F"}, "mine: the letter F is taken; free letters: "),
        ({"trained_letter": "g"}, "mine: the letter g is taken; free letters: "),
        ({"frozen_letter": "R"}, "mine: the letter R stands for reservoirs of any kind; free letters: "),
        ({"name": "feed-forward"}, "feed-forward: another kind already has this name"),
        ({"reservoir_type": "ffn"}, "mine: another kind already has this name or this reservoir_type"),
        ({"frozen_letter": "2"}, "'2': the letter of a kind must be one of A to Z"),
        ({"trained_letter": "Q"}, "mine: give frozen_letter or trained_letter"),
        ({"freezes": "all"}, "mine: the value of freezes is 'all'; it must be 'whole' or a tuple of self_att.q"),
        ({"freezes": ("fc3",)}, "mine: the value of freezes"),
        (
            {"freezes": NOTHING},
            "mine: the value of freezes is () and the value of frozen_letter is Q; a kind needs both or neither",
        ),
        ({"refused": {"middle": "no"}}, "mine: refused is set for middle"),
        (
            {"refused": {"encoder": "no", "decoder": "no"}},
            "mine: refused is set for encoder, decoder; set it for encoder or decoder, not for both",
        ),
        (
            {"refused": {"decoder": "no"}, "sees_source": True},
            "mine: sees_source is set, but the kind is refused in a decoder; remove one of these fields",
        ),
        ({"name": "a, b"}, "'a, b': the name of a kind cannot be empty or contain commas"),
        (
            {"freezes": ("fc1",), "reservoir_type": "x"},
            "mine: reservoir_type is set, but the value of freezes is not 'whole'; remove reservoir_type",
        ),
        ({"fairseqs": True}, "mine: fairseqs is set, but a kind from a --user-dir cannot be fairseq's own layer"),
    ],
)
def test_rows_that_cannot_be(registry, changes, message):
    with pytest.raises(InputError) as refusal:
        register_kind(own(**changes), build)
    assert str(refusal.value).startswith(message)


def test_a_checkpoint_names_the_kind_and_refuses_another(registry):
    from fairseq_reservoir.freezing.description import read_description
    from tests.support import building

    register_kind(own(), build)
    register_kind(own(), build)  # as when the folder is imported under two names
    model = building.build("LQ")
    assert read_description(model.reservoir_version)["kinds"] == "Q mine"
    assert "kinds" not in read_description(building.build("LF").reservoir_version)
    state = model.state_dict()
    kinds._BY_LETTER.pop("Q"), kinds._BY_LETTER.pop("q")
    register_kind(own(name="another"), build)
    with pytest.raises(
        InputError, match="the kind of layer Q another: the checkpoint was trained with Q mine; give Q mine"
    ):
        building.build("LQ").load_state_dict(
            model.upgrade_state_dict_named(state, "") and building.build("LQ").upgrade_state_dict_named(state, "")
        )


@pytest.mark.parametrize("has_weight", [False, True], ids=["no weight", "a vector as weight"])
def test_a_frozen_tensor_without_an_initialiser(registry, has_weight):
    import torch

    class Scaled(FeedForward):
        def __init__(self, config):
            super().__init__(config)
            self.bias = torch.nn.Parameter(torch.ones(config.embed_dim))  # without a matrix next to it
            if has_weight:
                self.weight = torch.nn.Parameter(torch.ones(config.embed_dim))

    register_kind(own(), lambda config, stack: {"scaled": Scaled(config)})
    from tests.support import building

    assert building.build("q").encoder.layers[0].scaled.bias.requires_grad
    with pytest.raises(
        InputError, match=r"scaled.bias: cannot draw this bias .* no matrix encoder.layers.0.scaled.weight"
    ):
        building.build("Q")
