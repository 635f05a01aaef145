"""The validation score that a report is about, and whether more or less of it is better."""

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
_LABELS = {
    "loss": "loss (bits)",
    "nll_loss": "negative log-likelihood (bits)",
    "ppl": "perplexity",
    "bleu": "BLEU (validation)",
    "accuracy": "accuracy (%)",
}


@dataclass(frozen=True)
class Metric:
    """``name`` is as in the log, without the subset; ``start`` is y(0) of the curve, None if an untrained model has none."""

    name: str
    higher: bool
    label: str

    @property
    def start(self) -> float | None:
        return 0.0 if self.higher else None

    @property
    def arrow(self) -> str:
        return "higher is better" if self.higher else "lower is better"

    def far_worse(self, score: float, other: float) -> bool:
        """Whether a score is below half of another, or above twice where lower is better; of a loss, whether the perplexity is."""
        if self.higher:
            return score < other / 2
        return score > other + 1 if self.name in _BITS else score > 2 * other


def is_higher(name: str) -> bool:
    """Whether a score of this name is known as one of which more is better, whatever a training was told."""
    return name in _HIGHER or name.endswith(("bleu", "accuracy"))


def scores_of(records) -> set[str]:
    """The names of the scores in validation records."""
    names = {key for record in records for key in record.values}
    return {name for name in names if name not in _NO_SCORE and not name.startswith("best_")}


def choose(asked: str | None, runs) -> Metric:
    """The metric of a report.

    Args:
        asked: ``--metric``, or None: ``bleu`` where all runs have it, else the ``best_checkpoint_metric`` that all were
            trained with, else ``loss``.
        runs: those with a finished validation.

    Raises:
        InputError: no run has it.
    """
    have = [scores_of(run.validations) for run in runs]
    configured = {run.configuration.get("checkpoint.best_checkpoint_metric", "loss") for run in runs}
    defaults = ["bleu", *(configured if len(configured) == 1 else ()), "loss"]
    name = (asked or next((name for name in defaults if all(name in names for names in have)), "loss")).removeprefix(
        "valid_"
    )
    if not any(name in names for names in have):
        raise InputError(f"--metric {name}: the validations of these runs have {', '.join(sorted(set().union(*have)))}")
    flags = {
        run.configuration["checkpoint.maximize_best_checkpoint_metric"]
        for run in runs
        if run.configuration.get("checkpoint.best_checkpoint_metric") == name
        and "checkpoint.maximize_best_checkpoint_metric" in run.configuration
    }
    higher = is_higher(name) or (len(flags) == 1 and bool(flags.pop()))
    characters = name == "loss" and all(run.configuration.get("task._name") == "language_modeling" for run in runs)
    return Metric(name, higher, "bits per token" if characters else _LABELS.get(name, printable(name)))
