"""Registration of a ``freeze_skip`` wrapper of each fairseq optimizer, for the command line and for configurations."""

from argparse import Namespace

import pytest
import torch
from fairseq import optim, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.optim import OPTIMIZER_REGISTRY

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.freezing.freeze_skip import FreezeSkip, FreezeSkipOptions
from fairseq_reservoir.freezing.freeze_skip_flags import schedule_of
from tests.support.building import build, build_lm, build_roberta, build_supermask
from tests.support.schedules import schedule_of_flags

FAIRSEQS = {name for name, cls in OPTIMIZER_REGISTRY.items() if not issubclass(cls, FreezeSkip)}
# apex and DeepSpeed's kernels are not installed.
BUILT = sorted(FAIRSEQS - {"composite", "cpu_adam", "lamb"})


def config(*flags):
    parser = options.get_training_parser()
    return convert_namespace_to_omegaconf(
        options.parse_args_and_arch(parser, ["data", "--arch", "transformer_tiny", *flags])
    )


def test_every_optimizer_has_a_freeze_skip_wrapper():
    ours = {name for name, cls in OPTIMIZER_REGISTRY.items() if issubclass(cls, FreezeSkip)}
    assert ours == {"freeze_skip"} | {f"freeze_skip_{name}" for name in FAIRSEQS - {"composite"}}
    assert {"adam", "adafactor", "nag", "sgd", "adagrad", "adadelta", "adamax"} <= set(BUILT)


# adafactor, adam, nag and sgd are those of the documentation; the wrappers of all are made alike.
@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[] if name in ("adafactor", "adam", "nag", "sgd") else pytest.mark.slow) for name in BUILT
])  # fmt: skip
def test_a_step_equals_that_of_the_wrapped_optimizer(name):
    weights = []
    for optimizer in (name, f"freeze_skip_{name}"):
        flags = ["--optimizer", optimizer, "--lr", "0.1", "--weight-decay", "0.1"]
        flags += ["--freeze-schedule", "1:emb"] if optimizer != name else []
        weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
        built = optim.build_optimizer(config(*flags).optimizer, [weight])
        weight.grad = torch.tensor([0.5, 0.25])
        built.step()
        weights.append(weight.detach().clone())
    assert weights[0].equal(weights[1]) and not weights[0].equal(torch.tensor([1.0, -2.0]))


@pytest.mark.parametrize("name", ["freeze_skip", "freeze_skip_adafactor"])
def test_flags_reach_the_configuration(name):
    given = config(
        "--optimizer", name, "--lr", "0.1", "--freeze-schedule", "1:emb", "--freeze-update-every", "ffn:2"
    ).optimizer
    assert (given.freeze_schedule, given.freeze_update_every, given.freeze_rotate) == ("1:emb", "ffn:2", None)


def test_every_flag_has_help_and_a_metavar():
    for name, option in FreezeSkipOptions.__dataclass_fields__.items():
        switch = option.default is False
        assert name == "_name" or len(option.metadata["help"]) > 40 and switch != option.metadata["metavar"].isupper()


TIED = {
    "nothing tied": lambda **options: build("LT", "LL", **options),
    "the decoder's embeddings": lambda **options: build("LT", "LL", share_decoder_input_output_embed=True, **options),
    "all embeddings": lambda **options: build("LT", "LL", share_all_embeddings=True, **options),
    "a language model": lambda **options: build_lm(plan="LL", share_decoder_input_output_embed=True, **options),
    "a RoBERTa": lambda **options: build_roberta("reservoir_roberta", reservoir_encoder="LL", **options),
    "masked embeddings": lambda **options: build_supermask(mask_layernorm="affine", **options),
}


@pytest.fixture(scope="module")
def plain_models():
    return {name: make() for name, make in TIED.items()}


@pytest.mark.parametrize(
    "spec", ["emb", "out", "encoder", "decoder", "encoder.emb", "decoder.emb", "decoder.out", "ffn"]
)
@pytest.mark.parametrize("model", TIED)
def test_a_schedule_freezes_the_same_parameters_as_freeze(plain_models, model, spec):
    plain = plain_models[model]
    trained = {name for name, p in plain.named_parameters() if p.requires_grad}
    flags = Namespace(freeze_schedule=f"0:{spec}")
    try:
        frozen = {name for name, p in TIED[model](freeze=spec).named_parameters() if not p.requires_grad}
    except InputError:  # the spec matches no parameter, or all of them
        frozen = trained
    if frozen >= trained:  # possible with RoBERTa: its task adds a trained head after the model is built
        with pytest.raises(InputError):
            schedule_of(flags, plain, seed=1)
    else:
        assert schedule_of(flags, plain, seed=1).frozen(0) == frozen & trained


def test_nag_momentum_follows_the_learning_rate_in_skipped_updates():
    """NAG multiplies its momentum v by rate / last rate, also in skipped updates. A step then sets v = 0.5 v - rate g.

    ``b`` skips updates 1 and 2. Update 0 has rate 1 and g = 1: w = 0 - 1.5 and v = -1. Update 3 has rate 0.25 and g = 0: v is first
    rescaled to -0.25, then w = -1.5 + 0.5 * 0.5 * -0.25 = -1.5625 and v = -0.125.

    ``a`` has the same gradients at updates 0 and 3, and gradients of 0 between them. Each update multiplies its v by 0.5 times
    rate / last rate: v = -1, -0.25, -0.125 and -0.03125.
    """
    flags = ["--optimizer", "freeze_skip_nag", "--lr", "1", "--momentum", "0.5", "--freeze-update-every", "bias:3"]
    a, b = torch.nn.Parameter(torch.zeros(1)), torch.nn.Parameter(torch.zeros(1))
    built = optim.build_optimizer(config(*flags).optimizer, [a, b])
    built.bind(schedule_of_flags(["a.weight", "b.bias"], update_every="bias:3"), {"a.weight": a, "b.bias": b})
    momenta = []
    for update, (rate, gradient) in enumerate([(1.0, 1.0), (0.5, 0.0), (0.5, 0.0), (0.25, 0.0)]):
        built.apply_schedule(update)
        built.set_lr(rate)
        a.grad, b.grad = torch.full((1,), gradient), torch.full((1,), gradient) if b.requires_grad else None
        built.step()
        momenta.append([built.optimizer.state[p]["momentum_buffer"].item() for p in (a, b)])
    assert momenta == [[-1, -1], [-0.25, -0.5], [-0.125, -0.5], [-0.03125, -0.125]]
    assert b.item() == -1.5625
