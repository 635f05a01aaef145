"""Updates never change a bit of a frozen tensor, in any precision and with every optimizer that fairseq wraps."""

import pytest
import torch

from fairseq_reservoir.random_tensors import digest
from fairseq_reservoir.trainer.frozen_guard import frozen_tensors
from tests.support.commands import train
from tests.support.letters import WITH_EVERY_KIND

PRECISIONS = {
    "fp32": [],
    "fp16": ["--fp16"],
    "fp16, less memory": ["--memory-efficient-fp16"],
    "amp": ["--amp"],
    "bf16": ["--bf16"],
}
TYPES = {"fp16": torch.half, "fp16, less memory": torch.half, "bf16": torch.bfloat16}
MODELS = {
    "reservoirs": [f"--reservoir-{stack}={plan}" for stack, plan in WITH_EVERY_KIND.items()],
    "masks": "--arch supermask_one_layer_transformer --encoder-layers 2 --decoder-layers 1".split(),
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_bits_of_frozen_tensors(device, begin, toy_data, model, precision):
    if (device, precision) == ("cpu", "fp16"):
        pytest.skip("fairseq makes the flat buffer of --fp16 on a GPU")
    updates = 2 if device == "cpu" else 100
    flags = [*MODELS[model], *PRECISIONS[precision], "--max-update", updates, "--disable-validation", "--no-save"]
    run = train(toy_data, *flags, begin=begin)
    assert next(run.model.parameters()).device.type == device and len(run.losses) >= updates
    frozen = frozen_tensors(run.trainer)
    assert frozen
    for name, tensor in frozen.items():
        # Half precision rounds once, when the trainer converts the model.
        began = run.initial[name].to(TYPES.get(precision, run.initial[name].dtype))
        assert digest.of_tensor(tensor) == digest.of_tensor(began), name
    trained = dict(run.model.named_parameters())
    assert any(
        not p.detach().cpu().float().equal(run.initial[name].float()) for name, p in trained.items() if p.requires_grad
    )
