"""Training logs in the format of fairseq-train with numbers chosen by a test."""

import json
from dataclasses import dataclass, field

_CONFIGURATION = (
    "{{'_name': None, 'common': {{'_name': None, 'seed': {seed}, 'log_format': 'json', 'log_interval': {interval}}},"
    " 'dataset': {{'valid_subset': 'valid'}}, 'optimization': {{'lr': [0.002], 'max_update': {max_update}}},"
    " 'checkpoint': {{'save_dir': {save_dir!r}, 'best_checkpoint_metric': 'loss', 'maximize_best_checkpoint_metric': False}},"
    " 'model': Namespace(activation_fn=relu, encoder_layers={layers}, mask_keep_ratio={keep}, arch={arch!r}),"
    " 'task': {{'_name': 'translation', 'choice': <Choices.a: 1>}}, 'criterion': {{'_name': 'cross_entropy'}}}}"
)
TABLE = """\
slot                       kind               state    parameters    trained  MFLOP/token
encoder.layers.0           L Transformer      trained     198,272    198,272        0.393
total                                                   1,879,680  1,417,344        {mflop}
trained 75.40% of the parameters, 75.47% of those in matrices; frozen 24.60%
backward {mflop} MFLOP/token, 24.60% less than with everything trained"""


@dataclass
class Writer:
    """One training log. Epochs have ``per_epoch`` updates, and an inner record comes every ``interval`` updates."""

    folder: object
    seed: int = 1
    arch: str = "tiny"
    layers: int = 3
    keep: float = 0.5
    per_epoch: int = 20
    interval: int = 5
    max_update: int = 100
    mflop: str | None = "3.740"
    text: bool = False
    lines: list = field(default_factory=list)

    def start(self, restored=0, epoch=1):
        """Write the start of a process. ``restored`` is the update of its checkpoint."""
        values = vars(self) | {"save_dir": str(self.folder)}
        self._say("fairseq_cli.train", _CONFIGURATION.format(**values))
        self._say("fairseq_cli.train", "num. shared model params: 1,879,680 (num. trained: 1,417,344)")
        if self.mflop:
            self._say("fairseq_reservoir.trainer.model_log", "what is trained and what is frozen:")
            self.lines.append(TABLE.format(mflop=self.mflop))
        if restored:
            self._say(
                "fairseq.trainer", f"Loaded checkpoint /a/checkpoint_last.pt (epoch {epoch} @ {restored} updates)"
            )
        else:
            self._say("fairseq.trainer", "No existing checkpoint found /a/checkpoint_last.pt")
        return self

    def inner(self, update, seconds, wpb, wall):
        values = {"loss": "9.5", "wpb": f"{wpb:.1f}", "train_wall": f"{seconds}", "wall": f"{wall}"}
        epoch = (update - 1) // self.per_epoch + 1
        if self.text:
            pairs = ", ".join(f"{k}={v}" for k, v in ({"loss": "9.5", "num_updates": update} | values).items())
            self._say("train_inner", f"epoch {epoch:03d}:     {update:d} / {self.per_epoch} {pairs}")
        else:
            self._say("train_inner", json.dumps({"epoch": epoch, "update": 0.5, **values, "num_updates": f"{update}"}))
        return self

    def valid(self, update, **scores):
        self._summary("valid", update, {**{k: f"{v}" for k, v in scores.items()}, "wps": "3000", "wpb": "100"})
        return self

    def epoch(self, update, seconds, wpb, wall):
        self._summary(
            "train", update, {"loss": "8", "wpb": f"{wpb:.1f}", "train_wall": f"{seconds}", "wall": f"{wall}"}
        )
        return self

    def done(self):
        self._say("fairseq_cli.train", "done training in 12.3 seconds")
        return self

    def write(self, name="train.log"):
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text("\n".join(self.lines) + "\n", encoding="utf-8")
        return self.folder

    def _summary(self, subset, update, values):
        epoch = (update - 1) // self.per_epoch + 1
        values = values | {"num_updates": f"{update}"}
        if self.text:
            where = f"valid on '{subset}' subset | " if subset == "valid" else ""
            self._say(subset, f"epoch {epoch:03d} | {where}" + " | ".join(f"{k} {v}" for k, v in values.items()))
        else:
            self._say(subset, json.dumps({"epoch": epoch} | {f"{subset}_{k}": v for k, v in values.items()}))

    def _say(self, logger, message):
        self.lines.append(f"2026-11-21 15:42:11 | INFO | {logger} | {message}")


def plain_run(folder, scores, seconds, wpb=100.0, **options):
    """A finished run of ``len(scores)`` epochs. Each has a validation (BLEU, loss = 10 - BLEU / 10) and took ``seconds[i]``."""
    writer = Writer(folder, **options).start()
    wall = 0
    for epoch, (score, time) in enumerate(zip(scores, seconds)):
        first, last = epoch * writer.per_epoch, (epoch + 1) * writer.per_epoch
        for update in range(first + writer.interval, last + 1, writer.interval):
            wall += time / 4
            writer.inner(update, round(time / 4), wpb + epoch, round(wall))
        wall += 3
        writer.valid(last, loss=round(10 - score / 10, 3), bleu=score).epoch(last, time, wpb + epoch, round(wall))
    return writer.done()


def generated(folder, references, hypotheses, words=None):
    """Output of fairseq-generate, in shuffled order. ``words`` are the hypotheses before detokenization."""
    words = words or hypotheses
    lines = []
    for number in sorted(range(len(references)), key=lambda n: (n * 7) % len(references)):
        lines += [f"S-{number}\ta source", f"T-{number}\t{references[number]}", f"H-{number}\t-0.5\t{words[number]}"]
        lines += [f"D-{number}\t-0.5\t{hypotheses[number]}", f"P-{number}\t-0.1 -0.2"]
    lines.append("Generate test with beam=5: BLEU4 = 12.34, 61.2/41.3/28.4/19.5 (BP=0.976, ratio=0.976, syslen=9)")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "generate.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
