"""Lets fairseq's own commands and functions read an export wherever they read a checkpoint, and no damaged checkpoint."""

import json
from argparse import Namespace
from functools import wraps

from fairseq import checkpoint_utils, utils
from fairseq.dataclass.utils import overwrite_args_by_name
from omegaconf import OmegaConf

from . import damage, dictionaries, packed_file, reader
from .own_kinds import refuse_unknown_kinds
from .pretrained_embeddings import building_for_a_checkpoint, tensors_follow


def install() -> None:
    """Wraps the functions through which everything in fairseq loads models and word vectors; a second call does nothing."""
    if not hasattr(checkpoint_utils.load_checkpoint_to_cpu, "reads_exports"):
        checkpoint_utils.load_checkpoint_to_cpu = _reading_exports(checkpoint_utils.load_checkpoint_to_cpu)
        checkpoint_utils.load_model_ensemble_and_task = _checking_dictionaries(checkpoint_utils.load_model_ensemble_and_task)
        utils.parse_embedding = _reading_no_vectors(utils.parse_embedding)


def _is_export(path):
    return str(path).endswith(packed_file.SUFFIX)


def _reading_exports(original):
    @wraps(original)
    def load_checkpoint_to_cpu(path, arg_overrides=None, load_on_all_ranks=False):
        if _is_export(path):
            state = _state(path, arg_overrides)
        else:
            with damage.reading(path):
                state = original(path, arg_overrides, load_on_all_ranks)
        refuse_unknown_kinds(path, state)
        return state

    load_checkpoint_to_cpu.reads_exports = True
    return load_checkpoint_to_cpu


def _checking_dictionaries(original):
    @wraps(original)
    def load_model_ensemble_and_task(filenames, *args, **kwargs):
        with building_for_a_checkpoint():
            models, config, task = original(filenames, *args, **kwargs)
        for path in filter(_is_export, filenames):
            dictionaries.check(path, packed_file.read_body(path)["dictionaries"], task)
        return models, config, task

    return load_model_ensemble_and_task


def _reading_no_vectors(original):
    """Every model of fairseq that was started from --encoder-embed-path would read the file again to translate."""

    @wraps(original)
    def parse_embedding(embed_path):
        return {} if tensors_follow.get() else original(embed_path)

    return parse_embedding


def _state(path, arg_overrides):
    """What fairseq would have read from the checkpoint, but for the optimizer and the place in the data."""
    body, tensors = packed_file.read(path)
    config = json.loads(json.dumps(body["config"]), object_hook=_namespace)
    config = OmegaConf.create(config, flags={"allow_objects": True})
    if arg_overrides:
        overwrite_args_by_name(config, arg_overrides)
    return {
        "args": None,
        "cfg": config,
        "model": reader.state_dict(path, body, tensors),
        "criterion": None,
        "optimizer_history": [{"num_updates": body["num_updates"]}],
        "task_state": {},
        "extra_state": None,
    }


def _namespace(entry):
    return Namespace(**entry["__namespace__"]) if "__namespace__" in entry else entry
