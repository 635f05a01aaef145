"""frozen_A with fairseq's commands: frozen tensors do not change, checkpoints have the spec, and another spec is refused."""

from argparse import Namespace
from functools import partial

import pytest
import torch
from fairseq import hub_utils, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import build_model
from fairseq.tasks.language_modeling import LanguageModelingTask
from omegaconf import OmegaConf

from fairseq_reservoir import cli
from fairseq_reservoir.freezing.description import BUFFER, read_description
from fairseq_reservoir.plan.freeze_spec import atom
from tests.support import commands
from tests.support.commands import USER_DIR, load

train, error_of = partial(commands.train, begin=commands.RUN), partial(commands.error_of, begin=commands.RUN)
SIZES = "--encoder-embed-dim 16 --encoder-ffn-embed-dim 24 --encoder-layers 2 --encoder-attention-heads 2".split()
ARCH = ["--arch", "frozen_transformer_tiny", *SIZES, "--decoder-layers", "1"]
SPEC = "--freeze att,decoder.ffn --frozen-init signed_constant".split()


@pytest.fixture(scope="module")
def trained(toy_data, tmp_path_factory):
    """A run of 6 updates with ``SPEC``, and the folder of its checkpoint."""
    folder = tmp_path_factory.mktemp("frozen")
    return train(toy_data, *ARCH, *SPEC, "--max-update", 6, "--save-dir", folder, "--no-epoch-checkpoints"), folder


def test_components_of_the_spec_do_not_change_and_the_rest_does(trained):
    run, _ = trained
    still = {name for name, p in run.model.named_parameters() if torch.equal(p, run.initial[name])}
    named = {
        name
        for name in dict(run.model.named_parameters())
        if "_att." in atom(name) or name.startswith("decoder") and "fc" in atom(name)
    }
    assert still == named == {e.name for e in run.model.slot_table.entries if not e.trained}


def test_a_model_with_a_plan_does_not_start_from_it(trained, toy_data, tmp_path):
    _, folder = trained
    flags = [
        "--arch",
        "reservoir_transformer",
        "--finetune-from-model",
        folder / "checkpoint_last.pt",
        "--save-dir",
        tmp_path,
    ]
    line, status = error_of(toy_data, *ARCH[2:], *flags)
    assert (
        status == 2
        and "the checkpoint is of a model without a layer plan, such as --arch frozen_...; give a checkpoint of ReservoirTransformer"
        in line
    )


def test_the_checkpoint_carries_the_spec(trained, toy_data):
    run, folder = trained
    stored = load(folder)
    assert (stored["cfg"].model.freeze, stored["cfg"].model.frozen_init) == ("att,decoder.ffn", "signed_constant")
    description = read_description(stored["model"][BUFFER])
    assert description == {
        "freeze": "att,decoder.ffn",
        "freeze_except": None,
        "frozen_init": "signed_constant",
        "frozen_seed": 3,
    }
    (model,) = hub_utils.from_pretrained(str(folder), "checkpoint_last.pt", str(toy_data), user_dir=USER_DIR)["models"]
    assert model.slot_table == run.model.slot_table
    assert all(torch.equal(tensor, run.weights[name]) for name, tensor in model.state_dict().items())


OTHERS = {
    "another spec": (
        ["--freeze", "att"],
        "--freeze att: the checkpoint was trained with att,decoder.ffn; give att,decoder.ffn, add --reset-optimizer",
    ),
    "other values": (
        ["--frozen-init", "zero"],
        "--frozen-init zero: the checkpoint was trained with signed_constant; give signed_constant, or start a new training",
    ),
    "another seed": (
        ["--reservoir-seed", 4],
        "--reservoir-seed 4 (default: --seed): the checkpoint was trained with 3; give 3, or start a new training",
    ),
    "fewer still": (
        ["--freeze-except", "k"],
        "--freeze-except k: the checkpoint was trained without this flag; remove it, add --reset-optimizer",
    ),
}


@pytest.mark.parametrize("change", OTHERS)
def test_resuming_with_another_is_refused_by_name(trained, toy_data, tmp_path, change):
    flags, message = OTHERS[change]
    start = ["--restore-file", trained[1] / "checkpoint_last.pt", "--save-dir", tmp_path]
    line, status = error_of(toy_data, *ARCH, *SPEC, *flags, *start)
    assert status != 0 and message in line and line.count("\n") == 1


def test_resumes_with_its_own_and_with_reset_optimizer_with_another(trained, toy_data, tmp_path):
    start = ["--restore-file", trained[1] / "checkpoint_last.pt", "--max-update", 8]
    own = train(toy_data, *ARCH, *SPEC, *start, "--save-dir", tmp_path / "own")
    assert own.trainer.get_num_updates() == 8
    other = train(toy_data, *ARCH, "--freeze", "emb", "--reset-optimizer", *start, "--save-dir", tmp_path / "other")
    before = load(trained[1])["model"]
    assert torch.equal(other.weights["encoder.embed_tokens.weight"], before["encoder.embed_tokens.weight"])
    assert not torch.equal(other.weights["encoder.layers.0.fc1.weight"], before["encoder.layers.0.fc1.weight"])
    # The new checkpoint has the new spec: the run resumes with it, but not with the old one.
    flags = [*ARCH, "--max-update", 9, "--save-dir", tmp_path / "other"]
    assert train(toy_data, *flags, "--freeze", "emb").trainer.get_num_updates() == 9
    assert "--freeze att,decoder.ffn: the checkpoint was trained with emb" in error_of(toy_data, *flags, *SPEC)[0]


def test_exports_omit_exactly_drawn_tensors(trained, tmp_path):
    run, folder = trained
    out = tmp_path / "model.safetensors"
    cli.main(["export", str(folder / "checkpoint_last.pt"), str(out)])
    loaded = commands.load(tmp_path, "model.safetensors")["model"]
    assert all(torch.equal(loaded[name], tensor) for name, tensor in run.weights.items())
    left_out = sum(e.size for e in run.model.slot_table.entries if e.random_name)
    assert 0 < out.stat().st_size - 4 * (run.model.slot_table.parameters - left_out) < 40_000


def test_materializes_to_fairseqs_transformer(trained, tmp_path):
    run, folder = trained
    cli.main(["materialize", str(folder / "checkpoint_last.pt"), str(tmp_path / "plain.pt")])
    plain = commands.load(tmp_path, "plain.pt")
    assert plain["cfg"].model.arch == "transformer" and BUFFER not in plain["model"]
    assert plain["model"].keys() <= run.weights.keys()
    assert all(torch.equal(tensor, run.weights[name]) for name, tensor in plain["model"].items())


@pytest.mark.parametrize("arch", ["frozen_transformer_lm", "frozen_transformer_lm_gpt"])
def test_hydra_and_checkpoints_agree_where_there_is_a_dataclass(arch, toy_data):
    task = LanguageModelingTask.setup_task(Namespace(data=str(toy_data), output_dictionary_size=-1))
    sizes = "--task language_modeling --tokens-per-sample 20 --decoder-layers 2 --decoder-embed-dim 16 --decoder-attention-heads 2"
    flags = ["--freeze", "layers.0.ffn,emb", "--frozen-init", "glorot", "--seed", "3"]
    args = options.parse_args_and_arch(
        options.get_training_parser(), [str(toy_data), "--arch", arch, *sizes.split(), *flags]
    )
    composed = convert_namespace_to_omegaconf(args).model
    stored = OmegaConf.create(OmegaConf.to_container(composed))
    with torch.device("meta"):
        tables = [
            build_model(config, task, from_checkpoint=config is stored).slot_table for config in (composed, stored)
        ]
    assert tables[0] == tables[1] and tables[0].seed == 3
    assert {e.atom for e in tables[0].entries if e.frozen_init == "glorot"} == {"fc1", "fc2", "emb"}
