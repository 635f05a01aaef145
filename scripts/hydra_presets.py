"""Write fairseq_reservoir/config/model: a YAML file for fairseq-hydra-train for every preset of our models.

``default.yaml`` of a model has all its options. The file of a preset has the options that differ. Run this script after a change
of a preset or an option. A test compares its output with the files.
"""

import dataclasses
from argparse import ArgumentParser, Namespace
from pathlib import Path

import yaml
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_INV_REGISTRY, MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY

import fairseq_reservoir
from fairseq_reservoir.options.for_fairseq.namespaces import as_namespace

FOLDER = Path(fairseq_reservoir.__file__).parent / "config" / "model"
MODELS = [
    f"{family}_{kind}"
    for family in ("reservoir", "supermask_one_layer")
    for kind in ("transformer", "transformer_lm", "roberta")
]


def files():
    """Yield the relative path and text of every file."""
    for model in MODELS:
        defaults = _defaults(model)
        yield f"{model}/default.yaml", f"# --arch {model}: all its options\n" + _text({"_name": model, **defaults})
        for arch in sorted(ARCH_MODEL_INV_REGISTRY[model]):
            if arch != model:
                head = f"# --arch {arch}\ndefaults:\n  - {model}/default@_here_\n  - _self_\n"
                changes = _changes(options_of(arch), defaults)
                yield (
                    f"{model}/{arch.removeprefix(model + '_')}.yaml",
                    head + ("\n" + _text(changes) if changes else ""),
                )


def options_of(arch) -> dict:
    """Options that an architecture function sets without any flag."""
    args = Namespace()
    ARCH_CONFIG_REGISTRY[arch](args)
    return vars(args)


def _defaults(model):
    """Default options of a model, from its dataclass or, if fairseq has none for it, from its command-line flags."""
    dataclass = MODEL_DATACLASS_REGISTRY.get(model)
    if dataclass:
        options = {field.name: field.default for field in dataclasses.fields(dataclass) if field.name != "_name"}
        depths = {
            name: value for name, value in _without_depths(options_of(model)).items() if name.endswith("coder_layers")
        }
        return options | depths
    parser = ArgumentParser()
    MODEL_REGISTRY[model].add_args(parser)
    names = {action.dest for action in parser._actions} - {"help"}
    seeds = dict.fromkeys(("reservoir_seed", "mask_seed"), "${common.seed}")
    options = seeds | {"max_positions": "${oc.select:task.tokens_per_sample,null}", "encoder_layers": None}
    options |= {name: value for name, value in _without_depths(options_of(model)).items() if name not in seeds}
    options["reservoir_encoder"] = None
    return {name: value for name, value in options.items() if name in names}


def _without_depths(options):
    """Remove depths that a plan determines. Otherwise users who override one of them would have to override both."""
    plans = [name.removeprefix("reservoir_") for name in ("reservoir_encoder", "reservoir_decoder") if name in options]
    return {name: value for name, value in options.items() if name not in {f"{stack}_layers" for stack in plans}}


def _changes(options, defaults):
    """Options that differ from the defaults, except options that follow from another option."""
    changes = {}
    for name, value in _without_depths(options).items():
        # fairseq's function for language models sets base_shuffle unlike its dataclass, which has no effect.
        if (
            name in defaults
            and name != "base_shuffle"
            and value != getattr(as_namespace(Namespace(**defaults | changes)), name)
        ):
            changes[name] = value
    return {name: changes[name] for name in defaults if name in changes}


def _text(values):
    return yaml.safe_dump(values, sort_keys=False, width=1000)


def write(folder):
    for path, text in files():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


if __name__ == "__main__":
    write(FOLDER)
