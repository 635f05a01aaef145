"""An export from a device has the device's bits, and a model loaded from it on another device has them too."""

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_reservoir.checkpoint import export_file, read_state_dict
from fairseq_reservoir.checkpoint.export import export
from fairseq_reservoir.masks.masked_weight import masked_modules
from fairseq_reservoir.random_tensors import digest
from tests.gpu.test_frozen_tensors import MODELS
from tests.support.building import pad, sentences, shift
from tests.support.commands import TINY, train

RUN = "--max-update 2 --disable-validation --no-epoch-checkpoints".split()


def selected(model):
    """Masks that the model selects on its device."""
    modules = masked_modules(model)
    return {
        f"{name}.scores" if name else "scores": digest.of_tensor(module.mask.float())
        for name, module in modules.items()
    }


def digests(tensors):
    return {name: digest.of_tensor(tensor) for name, tensor in tensors.items()}


@torch.no_grad()
def answers(model, device):
    """Logits of a padded batch."""
    source, target = pad(sentences(3, 6), "left") % 12, pad(sentences(4, 5, seed=2)) % 12
    lengths = torch.tensor([3, 6])
    said = model.to(device).eval()(source.to(device), lengths.to(device), shift(target).to(device))
    return said[0].cpu()


@pytest.mark.parametrize("written", ["there", "here"])
@pytest.mark.parametrize("model", MODELS)
def test_trained_on_one_device_and_read_on_another(device, begin, same_sums, toy_data, tmp_path, model, written):
    """Written from a checkpoint of the device and read on the CPU, and the reverse."""
    if (device, written) == ("cpu", "here"):
        pytest.skip("on the CPU it is the test before")
    flags = [*MODELS[model], *RUN, "--save-dir", tmp_path]
    run = train(toy_data, *flags, begin=begin if written == "there" else TINY)
    trained_on = next(run.model.parameters()).device.type
    read_on = "cpu" if written == "there" else device
    assert trained_on == (device if written == "there" else "cpu")
    export(tmp_path / "checkpoint_last.pt", tmp_path / "model.safetensors")

    state, masks = read_state_dict(tmp_path / "model.safetensors"), selected(run.model.eval())
    assert (model == "masks") == bool(masks)
    kept = digests({name: tensor for name, tensor in run.weights.items() if name not in masks})
    assert digests(state) == kept | masks

    (loaded,), _ = checkpoint_utils.load_model_ensemble(
        [str(tmp_path / "model.safetensors")], arg_overrides={"data": str(toy_data)}
    )
    found = answers(loaded, read_on)
    assert next(loaded.parameters()).device.type == read_on
    assert selected(loaded) == masks and digests(loaded.state_dict()) == digests(state)
    torch.testing.assert_close(found, answers(run.model, trained_on), rtol=0, atol=1e-4)


@pytest.mark.parametrize("model", MODELS)
def test_the_same_bytes(device, toy_data, tmp_path, model):
    """From a checkpoint with tensors on the device, as saved by ``torch.save``, and the same checkpoint on the CPU."""
    if device == "cpu":
        pytest.skip("on the CPU it is one checkpoint twice")
    flags = [*MODELS[model], *RUN, "--save-dir", tmp_path]
    train(toy_data, *flags)
    state = torch.load(tmp_path / "checkpoint_last.pt", weights_only=False)
    state["model"] = {name: tensor.to(device) for name, tensor in state["model"].items()}
    torch.save(state, tmp_path / "there.pt")
    files = []
    for name in ("checkpoint_last", "there"):
        export(tmp_path / f"{name}.pt", tmp_path / f"{name}.safetensors")
        files.append((tmp_path / f"{name}.safetensors").read_bytes())
    assert files[0] == files[1] and export_file.read_body(tmp_path / "there.safetensors")["num_updates"] == 2
