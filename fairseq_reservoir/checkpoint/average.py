"""The mean of several checkpoints of one training run."""

from pathlib import Path
from typing import NamedTuple

from omegaconf import OmegaConf

from ..errors import InputError
from ..fairseq_repairs import archive
from ..files import check_out, replacing
from ..freezing.description import BUFFER, NOT_COMPARED, read_description
from . import packed_file
from .opened import Checkpoint, open_checkpoint
from .origin import origin, without_run


def average(checkpoints: list[str], out: str, force: bool = False) -> str:
    """Writes a checkpoint whose trained tensors are the means of those of ``checkpoints``.

    Mask scores are averaged too, and the mask is what the mean scores select. The mean of the masks themselves would have
    entries between 0 and 1, which neither an export of single bits nor the model that is to be used can hold. What all have
    in common, as random tensors, keeps its bits; integers that differ, and the configuration, are those of the checkpoint
    with most updates. There is no state of the optimizer and no place in the data, so that training from it is a new one
    (--finetune-from-model).

    Args:
        checkpoints: two or more.
        out: file to write, ending in .pt.
        force: replace ``out`` if it exists.

    Returns:
        What was written, in a line.

    Raises:
        InputError: a file is not usable, or they are not checkpoints of one run: of one model, with the same random and frozen
            tensors, and with the same mark of a run (see ``origin``), or where one has none with the same ``--seed``.
    """
    check_out(out, force, ".pt", *checkpoints)
    if len(checkpoints) < 2:
        raise InputError(f"CHECKPOINT {' '.join(checkpoints)}: an average needs two or more")
    latest = first = _open(checkpoints[0])
    constant = {item.name: item.role for item in first.ledger.of("random", "frozen")}
    sums = {name: tensor.double() for name, tensor in first.tensors.items() if tensor.is_floating_point()}
    equal = set(first.tensors)
    earlier = [_Run.of(first)]
    for path in checkpoints[1:]:
        other = _open(path)
        _check_description(first, other)
        run = _Run.of(other)
        for before in earlier:
            _check_run(before, run)
        earlier.append(run)
        for name, tensor in other.tensors.items():
            if tensor.equal(first.tensors[name]):
                pass
            elif name in constant:
                raise InputError(f"CHECKPOINT {path}: its {constant[name]} tensor {name} is not that of {first.path}")
            else:
                equal.discard(name)
            if name in sums:
                sums[name] += tensor
        latest = max(latest, other, key=lambda checkpoint: checkpoint.num_updates)
    averaged = {name for name in sums if name not in equal}
    model = {
        name: (sums[name] / len(checkpoints)).to(tensor.dtype) if name in averaged else tensor
        for name, tensor in latest.tensors.items()
    }
    model |= {item.name: model[item.owner] for item in first.ledger.of("tied") if item.owner is not None}
    state = {key: value for key, value in latest.state.items() if key != "last_optimizer_state"}
    config = OmegaConf.to_container(latest.config, resolve=True, enum_to_str=True)
    state |= {
        "cfg": config,
        "model": model,
        "extra_state": {"train_iterator": {"epoch": 1}, **without_run(latest.state)},
    }
    # torch's own file would not say that the disk is full.
    with replacing(out) as temporary, temporary.open("wb") as file:
        archive.save(state, file)
    size = Path(out).stat().st_size
    found = f"{len(averaged)} tensors averaged, {len(equal)} the same in all"
    return f"{out}: {size:,} bytes, the mean of {len(checkpoints)} checkpoints; {found}"


def _open(path: str) -> Checkpoint:
    if str(path).endswith(packed_file.SUFFIX):
        raise InputError(
            f"CHECKPOINT {path}: an export; average the checkpoints, which have the scores behind the masks"
        )
    checkpoint = open_checkpoint(path)
    for name, tensor in checkpoint.tensors.items():
        if tensor.is_floating_point() and tensor.isnan().any():
            raise InputError(f"CHECKPOINT {path}: {name} holds NaN")
    return checkpoint


def _check_description(first: Checkpoint, other: Checkpoint) -> None:
    """Plan, seed and options of both must agree, and so must names and shapes."""
    ours, theirs = ({name: tuple(t.shape) for name, t in c.tensors.items() if name != BUFFER} for c in (first, other))
    descriptions = [read_description(c.tensors[BUFFER]) if BUFFER in c.tensors else {} for c in (first, other)]
    for field in sorted(descriptions[0].keys() | descriptions[1].keys()):
        values = [description.get(field) for description in descriptions]
        if values[0] != values[1] and field not in NOT_COMPARED:
            raise InputError(
                f"CHECKPOINT {other.path}: trained with {field} {values[1]}, {first.path} with {values[0]}; average"
                " checkpoints of one run"
            )
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            raise InputError(f"CHECKPOINT {other.path}: {name} is {theirs.get(name)}, in {first.path} {ours.get(name)}")


class _Run(NamedTuple):
    """The training run of a checkpoint: its mark, None without one, and ``--seed``."""

    path: str
    mark: str | None
    seed: int

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> "_Run":
        return cls(checkpoint.path, origin(checkpoint.state).get("run"), checkpoint.config.common.seed)


def _check_run(run: _Run, other: _Run) -> None:
    """A run that is resumed may go on with another ``--seed``; without marks nothing else tells runs of equal models apart.

    Asked of every pair: behind a mean, which has no mark, there may be two runs.
    """
    if run.mark and other.mark and run.mark != other.mark:
        raise InputError(
            f"CHECKPOINT {other.path}: of another training run than {run.path}; average checkpoints of one run"
        )
    if not (run.mark and other.mark) and run.seed != other.seed:
        raise InputError(
            f"CHECKPOINT {other.path}: trained with --seed {other.seed}, {run.path} with {run.seed}; average checkpoints of one run"
        )
