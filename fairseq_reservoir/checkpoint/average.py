"""Average several checkpoints of one training run."""

from pathlib import Path
from typing import NamedTuple

from omegaconf import OmegaConf

from ..errors import InputError
from ..fairseq_repairs import archive
from ..files import check_out, replacing
from ..freezing.description import BUFFER, NOT_COMPARED, read_description
from . import export_file
from .meta_checkpoint import Checkpoint, Tensors, open_checkpoint
from .origin import origin, without_run

_ONE_RUN = "average checkpoints of one run"


def average(checkpoints: list[str], out: str, force: bool = False) -> str:
    """Write a checkpoint with the mean of each trained tensor of ``checkpoints``.

    Mask scores are averaged, and the masks are selected from the mean scores. Masks themselves are not averaged, because models and exports
    cannot represent entries between 0 and 1. Tensors that are equal in all checkpoints, such as random tensors, are copied unchanged. The
    configuration is taken from the checkpoint with the most updates. Integer tensors that differ between checkpoints are also taken from
    this checkpoint. The written file has no optimizer state and no position in the data. Training cannot be resumed from this file, but
    --finetune-from-model can start a new training from it.

    Args:
        checkpoints: paths of two or more checkpoints.
        out: file to write, ending in .pt.
        force: replace ``out`` if it exists.

    Returns:
        A line about the written file.

    Raises:
        InputError: a file is not usable, or the checkpoints are from different runs. Checkpoints of one run have the same model, random
            tensors, frozen tensors and run id (see ``origin``). If a run id is missing, ``--seed`` is compared instead.
    """
    check_out(out, force, ".pt", *checkpoints)
    if len(checkpoints) < 2:
        raise InputError(f"CHECKPOINT {' '.join(checkpoints)}: an average needs two or more checkpoints")
    latest = first = _open(checkpoints[0])
    constant = {item.name: item.role for item in first.ledger.with_roles("random", "frozen")}
    sums = {name: tensor.double() for name, tensor in first.tensors.items() if tensor.is_floating_point()}
    equal = set(first.tensors)
    earlier = [_Run.from_checkpoint(first)]
    for path in checkpoints[1:]:
        other = _open(path)
        _check_description(first, other)
        run = _Run.from_checkpoint(other)
        for before in earlier:
            _check_run(before, run)
        earlier.append(run)
        for name, tensor in other.tensors.items():
            if not tensor.equal(first.tensors[name]):
                if name in constant:
                    raise InputError(
                        f"CHECKPOINT {path}: its {constant[name]} tensor {name} differs from that of {first.path}; {_ONE_RUN}"
                    )
                equal.discard(name)
            if name in sums:
                sums[name] += tensor
        latest = max(latest, other, key=lambda checkpoint: checkpoint.num_updates)
    averaged = sums.keys() - equal
    tensors = {
        name: (sums[name] / len(checkpoints)).to(tensor.dtype) if name in averaged else tensor
        for name, tensor in latest.tensors.items()
    }
    tensors |= {item.name: tensors[item.owner] for item in first.ledger.with_roles("tied") if item.owner is not None}
    _write(out, latest, tensors)
    size = Path(out).stat().st_size
    found = f"{len(averaged)} tensors averaged, {len(equal)} equal in all checkpoints"
    return f"{out}: the mean of {len(checkpoints)} checkpoints, {size:,} bytes; {found}"


def _write(out: str, latest: Checkpoint, tensors: Tensors) -> None:
    """Write a checkpoint with ``tensors`` and the configuration of ``latest``."""
    state = {key: value for key, value in latest.state.items() if key != "last_optimizer_state"}
    config = OmegaConf.to_container(latest.config, resolve=True, enum_to_str=True)
    state |= {
        "cfg": config,
        "model": tensors,
        "extra_state": {"train_iterator": {"epoch": 1}, **without_run(latest.state)},
    }
    # torch does not report a full disk for files that it opens itself.
    with replacing(out) as temporary, temporary.open("wb") as file:
        archive.save(state, file)


def _open(path: str) -> Checkpoint:
    if export_file.is_export(path):
        raise InputError(
            f"CHECKPOINT {path}: is an export, which has no mask scores; average the original checkpoints instead"
        )
    checkpoint = open_checkpoint(path)
    for name, tensor in checkpoint.tensors.items():
        if tensor.is_floating_point() and tensor.isnan().any():
            raise InputError(f"CHECKPOINT {path}: {name} contains NaN; leave this checkpoint out")
    return checkpoint


def _check_description(first: Checkpoint, other: Checkpoint) -> None:
    """Refuse checkpoints that differ in plan, seed, options, names or shapes."""
    ours, theirs = ({name: tuple(t.shape) for name, t in c.tensors.items() if name != BUFFER} for c in (first, other))
    descriptions = [read_description(c.tensors[BUFFER]) if BUFFER in c.tensors else {} for c in (first, other)]
    for field in sorted(descriptions[0].keys() | descriptions[1].keys()):
        values = [description.get(field) for description in descriptions]
        if values[0] != values[1] and field not in NOT_COMPARED:
            raise InputError(
                f"CHECKPOINT {other.path}: trained with {field} {values[1]}, but {first.path} was trained with {values[0]}; {_ONE_RUN}"
            )
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            shapes = f"{theirs.get(name, 'missing')}, but in {first.path} it is {ours.get(name, 'missing')}"
            raise InputError(f"CHECKPOINT {other.path}: the shape of {name} is {shapes}; {_ONE_RUN}")


class _Run(NamedTuple):
    """The training run of a checkpoint: its run id, if it has one, and ``--seed``."""

    path: str
    run_id: str | None
    seed: int

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint) -> "_Run":
        return cls(checkpoint.path, origin(checkpoint.state).get("run"), checkpoint.config.common.seed)


def _check_run(run: _Run, other: _Run) -> None:
    """Refuse two checkpoints from different runs.

    A run may be resumed with a new ``--seed``, so seeds are compared only if a run id is missing.

    ``average`` calls this function for every pair of checkpoints. Comparing each checkpoint with the first one is not enough, because the
    first one may lack a run id.
    """
    if run.run_id and other.run_id and run.run_id != other.run_id:
        raise InputError(f"CHECKPOINT {other.path}: from a different training run than {run.path}; {_ONE_RUN}")
    if not (run.run_id and other.run_id) and run.seed != other.seed:
        raise InputError(
            f"CHECKPOINT {other.path}: trained with --seed {other.seed}, but {run.path} was trained with {run.seed}; {_ONE_RUN}"
        )
