"""fairseq-hydra-train: its YAML files equal the command line's presets, and the complete example trains."""

import copy
import importlib.util
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from fairseq import options
from fairseq.dataclass.initialize import add_defaults, hydra_init
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils
from fairseq.models import ARCH_CONFIG_REGISTRY, MODEL_REGISTRY
from fairseq_cli import hydra_train
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

import fairseq_reservoir
from fairseq_reservoir import hydra_start
from fairseq_reservoir.checkpoint import dry_build
from fairseq_reservoir.options.for_fairseq.namespaces import as_namespace
from fairseq_reservoir.options.plans import resolve
from tests.support import hydra_memory
from tests.support.warm_start import run_command

ROOT = Path(__file__).parents[1]
CONFIG = Path(fairseq_reservoir.__file__).parent / "config"
_spec = importlib.util.spec_from_file_location("hydra_presets", ROOT / "scripts" / "hydra_presets.py")
hydra_presets = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(hydra_presets)
PRESETS = sorted(str(path.relative_to(CONFIG / "model").with_suffix("")) for path in (CONFIG / "model").rglob("*.yaml"))
TASKS = {"transformer": "translation", "transformer_lm": "language_modeling", "roberta": "masked_lm"}


def test_the_files_are_up_to_date():
    expected = dict(hydra_presets.files())
    assert {str(path.relative_to(CONFIG / "model")) for path in (CONFIG / "model").rglob("*.yaml")} == set(expected)
    stale = [name for name, text in expected.items() if (CONFIG / "model" / name).read_text() != text]
    assert stale == [], "python scripts/hydra_presets.py"


def composed(preset, *overrides):
    """The configuration that fairseq-hydra-train passes to training."""
    task = TASKS[
        next(kind for kind in ("transformer_lm", "transformer", "roberta") if preset.split("/")[0].endswith(kind))
    ]
    GlobalHydra.instance().clear()
    hydra_init("translation")
    with initialize_config_dir(str(CONFIG), version_base="1.1"):
        config = compose(
            "translation", [f"model={preset}", "task.data=none", f"task._name={task}", "common.seed=3", *overrides]
        )
    add_defaults(config)
    return OmegaConf.create(OmegaConf.to_container(config, resolve=True, enum_to_str=True))


def _presets():
    """All presets. By default two of each model: test_the_files_are_up_to_date compares all files with the text of one script."""
    for preset in PRESETS:
        few = preset.endswith(("/default", "/study"))
        yield pytest.param(preset, marks=[] if few else [pytest.mark.slow])


@pytest.mark.parametrize("preset", _presets())
def test_a_file_is_the_preset_of_the_command_line(preset):
    model, name = preset.split("/")
    arch = model if name == "default" else f"{model}_{name}"
    config, line = composed(preset).model, Namespace(arch=arch, seed=3)
    if model.endswith("roberta"):
        line.max_positions = config.max_positions  # the task's, in both
    ARCH_CONFIG_REGISTRY[arch](line)
    hydra = as_namespace(config)
    if model.startswith("reservoir"):
        resolve(hydra, sys.modules[MODEL_REGISTRY[model].__module__].DEPTHS)
    shared = [option for option in vars(line) if option in vars(hydra) and not option.startswith("_")]
    different = {option for option in shared if getattr(line, option) != getattr(hydra, option)}
    # As in fairseq: dataclass and architecture function of language models differ here, without effect.
    assert different <= {"base_shuffle"} and len(shared) > 30
    assert dry_build.build_config(config, 50, 50).slot_table == dry_build.build_config(line, 50, 50).slot_table


def test_a_plan_on_the_command_line_sets_the_depth():
    config = composed("reservoir_transformer/study", "model.reservoir_encoder=LTTFL", "model.freeze=emb").model
    table = dry_build.build_config(config, 50, 50).slot_table
    kinds = {row.place: row.kind[0] for row in table.rows if row.place.startswith("encoder.layers")}
    assert "".join(kinds.values()) == "LTTFL"
    assert next(row for row in table.rows if row.place == "encoder.embed_tokens").state == "frozen"


def test_a_configuration_elsewhere_finds_the_presets(tmp_path):
    text = "defaults:\n  - _self_\n  - model: reservoir_transformer/tiny\nhydra:\n  searchpath:\n    - pkg://fairseq_reservoir.config\n"
    (tmp_path / "mine.yaml").write_text(text)
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(tmp_path), version_base="1.1"):
        assert compose("mine").model.encoder_embed_dim == 64


def start(folder, *overrides):
    words = [
        "--config-path",
        "pkg://fairseq_reservoir.config",
        "--config-name",
        "translation",
        "common.cpu=true",
        *overrides,
    ]
    return run_command("fairseq-hydra-train", *words, cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"})


SMALL = [
    "model=reservoir_transformer/tiny",
    "model.reservoir_encoder=LF",
    "dataset.max_tokens=400",
    "dataset.num_workers=0",
]


def test_the_example_trains(toy_data, tmp_path):
    """The whole command. The YAML file loads the plugin and sets its plan and its optimizer."""
    ended = start(
        tmp_path, *SMALL, f"task.data={toy_data}", "optimization.max_update=4", 'optimizer.freeze_schedule="2:emb"',
        "checkpoint.save_interval_updates=2",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    files = [tmp_path / "checkpoints" / name for name in ("checkpoint_1_2.pt", "checkpoint_last.pt")]
    before, after = (torch.load(file) for file in files)
    assert [state["optimizer_history"][-1]["num_updates"] for state in (before, after)] == [2, 4]
    same = {
        name
        for name, tensor in after["model"].items()
        if torch.equal(tensor, before["model"][name]) and "version" not in name
    }
    assert same == {name for name in after["model"] if name.startswith("encoder.layers.1.") or "embed_tokens" in name}


@pytest.mark.parametrize(
    "given, expected",
    [
        (None, CONFIG.parent),
        ("fairseq_reservoir", CONFIG.parent),
        ("/else/where/fairseq_reservoir", CONFIG.parent),
        ("mine/plugin", "mine/plugin"),
    ],
)
def test_a_plugin_of_the_users_is_kept(monkeypatch, given, expected):
    monkeypatch.setattr(distributed_utils, "call_main", lambda cfg, main: cfg.common.user_dir)
    hydra_start.LoadPlugin().on_job_start(None)
    assert distributed_utils.call_main(OmegaConf.create({"common": {"user_dir": given}}), None) == str(expected)


def test_beside_a_clone_the_bare_name_is_the_plugin(monkeypatch, tmp_path):
    """``git clone`` gives the folder around the package the same name."""
    (tmp_path / "fairseq_reservoir").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(distributed_utils, "call_main", lambda cfg, main: cfg.common.user_dir)
    hydra_start.LoadPlugin().on_job_start(None)
    config = OmegaConf.create({"common": {"user_dir": "fairseq_reservoir"}})
    assert distributed_utils.call_main(config, None) == str(CONFIG.parent)


def test_a_folder_that_only_has_the_plugins_name_is_refused(monkeypatch, tmp_path, capsys):
    (tmp_path / "fairseq_reservoir").mkdir()
    (tmp_path / "fairseq_reservoir" / "__init__.py").touch()
    monkeypatch.setattr(distributed_utils, "call_main", lambda cfg, main: cfg.common.user_dir)
    hydra_start.LoadPlugin().on_job_start(None)
    config = OmegaConf.create({"common": {"user_dir": str(tmp_path / "fairseq_reservoir")}})
    with pytest.raises(SystemExit):
        distributed_utils.call_main(config, None)
    assert "has the name of the plugin, but is not the plugin" in capsys.readouterr().err


@pytest.mark.slow
def test_jobs_of_a_multirun_are_independent(toy_data, tmp_path):
    """The second job learns less than the first. Still, its own best checkpoint is saved, and its patience is not used up."""
    ended = start(
        tmp_path, *SMALL, f"task.data={toy_data}", "optimization.lr=[0.005],[0.00001]", "checkpoint.patience=2",
        "optimization.max_epoch=4", "optimization.max_update=0", "checkpoint.save_dir=checkpoints",
        f"hydra.sweep.dir={tmp_path}/sweep", "hydra.sweep.subdir=${hydra.job.num}",
        "--multirun",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    bests = [torch.load(path)["extra_state"] for path in sorted(tmp_path.rglob("checkpoint_best.pt"))]
    assert len(bests) == 2 and bests[0]["best"] < bests[1]["best"], sorted(tmp_path.rglob("*"))
    assert {state["train_iterator"]["epoch"] for state in bests} <= {4, 5}


@pytest.mark.slow
def test_two_processes(toy_data, tmp_path):
    ended = start(
        tmp_path,
        *SMALL,
        f"task.data={toy_data}",
        "distributed_training.distributed_world_size=2",
        "optimization.max_update=2",
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    flags = torch.load(tmp_path / "checkpoints" / "checkpoint_last.pt")["cfg"]["distributed_training"]
    assert (flags["distributed_world_size"], flags["distributed_backend"]) == (2, "gloo")


@pytest.fixture
def run_hydra(toy_data, tmp_path, monkeypatch, capsys):
    """Run fairseq-hydra-train with the translation example and these overrides, in this process. Return its errors on stderr."""

    def run(*overrides):
        words = [
            "--config-dir",
            str(CONFIG),
            "--config-name",
            "translation",
            "common.cpu=true",
            *SMALL,
            f"task.data={toy_data}",
        ]
        monkeypatch.setattr(sys, "argv", ["fairseq-hydra-train", *words, *overrides])
        monkeypatch.setattr(distributed_utils, "call_main", distributed_utils.call_main)  # hydra's callback wraps it
        monkeypatch.chdir(tmp_path)
        GlobalHydra.instance().clear()
        try:
            hydra_train.cli_main()
        except SystemExit as leaving:
            assert leaving.code in (1, 2)
        return [line for line in capsys.readouterr().err.splitlines() if "rror" in line]

    return run


@pytest.mark.parametrize(
    "override, message",
    [
        ("task.data=/no/such", "DATA: /no/such is not a folder"),
        ("model.reservoir_encoder=LR", "--reservoir-encoder"),
        ("optimizer.freeze_schedule=emb", "--freeze-schedule"),
    ],
)
def test_a_mistake_is_one_line(run_hydra, tmp_path, override, message):
    (line,) = run_hydra(override)
    assert line.startswith(f"fairseq-hydra-train: error: {message}")
    assert list(tmp_path.rglob("*.pt")) == []


def test_a_relative_path_in_a_folder_of_hydra(run_hydra, tmp_path, monkeypatch):
    """Without `hydra.run.dir: .`, hydra starts the training in a new folder, where the relative path names nothing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data-bin").mkdir()
    (line,) = run_hydra("task.data=data-bin", f"hydra.run.dir={tmp_path}/of-hydra")
    started = f"the training starts in hydra's {tmp_path}/of-hydra"
    assert (
        line
        == f"fairseq-hydra-train: error: task.data=data-bin: {started}; give the full path, task.data={tmp_path}/data-bin"
    )


def test_one_of_several_jobs_does_not_end_the_others(run_hydra, tmp_path):
    """Two jobs; the first has an invalid letter."""
    save = "checkpoint.save_dir=" + str(tmp_path / "${model.reservoir_encoder}")
    line, *_ = run_hydra("hydra.mode=MULTIRUN", "model.reservoir_encoder=QQ,LL", "optimization.max_update=1", save)
    assert line.startswith("fairseq-hydra-train: error: --reservoir-encoder 'QQ'")
    assert (tmp_path / "LL" / "checkpoint_last.pt").exists()


def test_so_is_one_that_the_checkpoint_shows(run_hydra, tmp_path):
    """fairseq has wrapped it in its own exception by then."""
    save = f"checkpoint.save_dir={tmp_path}/saved"
    assert run_hydra(save, "optimization.max_update=1") == []
    (line,) = run_hydra(save, "optimization.max_update=2", "model.reservoir_seed=7")
    assert line.startswith(
        "fairseq-hydra-train: error: --reservoir-seed 7 (default: --seed): the checkpoint was trained with "
    )


def test_the_files_are_installed_with_the_package(tmp_path):
    """The folder is a package, for which hydra.searchpath has the form pkg://fairseq_reservoir.config."""
    command = [
        sys.executable,
        "setup.py",
        "-q",
        "build",
        "--build-base",
        tmp_path / "build",
        "build_py",
        "--build-lib",
        tmp_path / "lib",
    ]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    installed = tmp_path / "lib" / "fairseq_reservoir" / "config"
    assert {path.relative_to(CONFIG) for path in CONFIG.rglob("*.yaml")} == {
        path.relative_to(installed) for path in installed.rglob("*.yaml")
    }
    assert (installed / "__init__.py").exists() and len(PRESETS) > 25


def test_caches_of_hydra_do_not_change_configurations():
    """``tests.support.hydra_memory``: new flags, other flags, the same flags again, and the original implementation agree."""
    model = "--arch reservoir_transformer_tiny --optimizer adam"
    lines = [
        f"data {model} --reservoir-encoder LTL --adam-betas (0.9,0.98) --lr 0.1,0.2 --fp16 --user-dir {CONFIG.parent}",
        f"other {model} --restore-file a=b.pt --encoder-layers 2 --lr 0.1 --no-save",
        "data --arch transformer --optimizer sgd --momentum 0.9 --lr-scheduler inverse_sqrt --criterion label_smoothed_cross_entropy",
        f"data --task language_modeling --arch reservoir_transformer_lm --optimizer freeze_skip --user-dir {CONFIG.parent}",
    ]
    found = [options.parse_args_and_arch(options.get_training_parser(), line.split()) for line in lines * 2]
    hydra_memory.remember()
    remembered = [convert_namespace_to_omegaconf(found[0])]
    remembered[0].model.dropout = 0.5  # changes by one run do not affect the next
    remembered += [convert_namespace_to_omegaconf(args) for args in found[1:]]
    hydra_memory.forget()
    try:
        anew = [convert_namespace_to_omegaconf(args) for args in found[: len(lines)]]
        merged_anew = [with_defaults(config) for config in anew]
    finally:
        hydra_memory.remember()
    assert remembered[1:] == (anew * 2)[1:] and remembered[0] != anew[0] != anew[1]
    assert [with_defaults(config) for config in remembered[1:]] == (merged_anew * 2)[1:]


def with_defaults(config):
    """Merge the configuration with the defaults of dataclasses, as fairseq-train does, and return all values as text."""
    add_defaults(config := copy.deepcopy(config))
    return repr(config)


@pytest.mark.parametrize("model", ["reservoir_roberta", "supermask_one_layer_roberta"])
def test_a_roberta_for_a_task_without_a_length_of_samples(model):
    """Like sentence_prediction, where the maximum sentence length is the number of positions."""
    sentences = [
        "task._name=sentence_prediction",
        "+task.num_classes=2",
        "criterion._name=sentence_prediction",
        "~criterion.label_smoothing",
    ]
    config = composed(f"{model}/tiny", *sentences).model
    assert config.max_positions is None and dry_build.build_config(config, 50, 50).slot_table.parameters > 0
