"""The metric of a report: the validation score by which runs are compared, and whether higher is better."""

from dataclasses import dataclass

from ...errors import InputError, printable

_HIGHER = (
    "bleu",
    "accuracy",
    "acc",
    "f1",
    "acc_and_f1",
    "mcc",
    "chrf",
    "pearson",
    "spearman",
    "pearson_and_spearman",
    "precision",
    "recall",
)
_NO_SCORE = ("wps", "wpb", "bsz", "ups", "wall", "train_wall", "lr", "gnorm")
_BITS = ("loss", "nll_loss")
# Name and unit of each score.
_NAMES = {
    "loss": ("loss", "bits"),
    "nll_loss": ("negative log-likelihood", "bits"),
    "ppl": ("perplexity", ""),
    "bleu": ("BLEU", ""),
    "accuracy": ("accuracy", "%"),
}


@dataclass(frozen=True)
class Metric:
    """A validation score.

    Attributes:
        name: name in the log, without the prefix of the subset ("valid_").
        higher: whether higher is better.
        label: name in tables and figures, with the unit.
        noun: name in sentences.
        unit: unit of the score; "" if it has no unit.
    """

    name: str
    higher: bool
    label: str
    noun: str = ""
    unit: str = ""

    @property
    def digits(self) -> int:
        """Number of decimals in tables."""
        return 2 if self.higher else 3

    @property
    def start(self) -> float | None:
        """Score of an untrained model; None if lower is better, because an untrained model then has no useful score."""
        return 0.0 if self.higher else None

    @property
    def arrow(self) -> str:
        return "higher is better" if self.higher else "lower is better"

    def far_worse(self, score: float, other: float) -> bool:
        """Return whether ``score`` is worse than ``other`` by more than a factor of 2. Losses in bits are compared by perplexity."""
        if self.higher:
            return score < other / 2
        return score > other + 1 if self.name in _BITS else score > 2 * other


def is_higher(name: str) -> bool:
    """Return whether higher is always better for scores of this name."""
    return name in _HIGHER or name.endswith(("bleu", "accuracy"))


def scores_of(records) -> set[str]:
    """Return the names of the scores in validation records."""
    names = {key for record in records for key in record.values}
    return {name for name in names if name not in _NO_SCORE and not name.startswith("best_")}


def choose(given: str | None, runs) -> Metric:
    """Choose the metric of a report.

    Args:
        given: name from ``--metric``. If it is None, the first of these scores that all runs have is chosen: ``bleu``,
            ``best_checkpoint_metric`` (if it is the same for all runs), ``loss``.
        runs: runs with a finished validation.

    Raises:
        InputError: no run has the metric.
    """
    available = [scores_of(run.validations) for run in runs]
    configured = {run.configuration.get("checkpoint.best_checkpoint_metric", "loss") for run in runs}
    defaults = ["bleu", *(configured if len(configured) == 1 else ()), "loss"]
    name = (
        given or next((name for name in defaults if all(name in names for names in available)), "loss")
    ).removeprefix("valid_")
    if not any(name in names for names in available):
        raise InputError(
            f"--metric {name}: no validation of these runs has it; choose from {', '.join(sorted(set().union(*available)))}"
        )
    flags = {
        run.configuration["checkpoint.maximize_best_checkpoint_metric"]
        for run in runs
        if run.configuration.get("checkpoint.best_checkpoint_metric") == name
        and "checkpoint.maximize_best_checkpoint_metric" in run.configuration
    }
    higher = is_higher(name) or (len(flags) == 1 and bool(flags.pop()))
    noun, unit = _NAMES.get(name, (printable(name), ""))
    if name == "loss" and all(run.configuration.get("task._name") == "language_modeling" for run in runs):
        return Metric(name, higher, "bits per token", "validation loss", "bits per token")
    label = f"{noun} (validation)" if name == "bleu" else f"{noun} ({unit})" if unit else noun
    return Metric(name, higher, label, f"validation {noun}", unit)
