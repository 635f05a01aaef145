"""Definitions of the numbers of a report, printed in the page and in report.md."""

_TEXT = """
Training time: fairseq's train_wall, the seconds inside training steps, without validation, saving and loading. The end-of-epoch record
has the total of an epoch. The records of --log-interval divide it, and give the time of an interrupted epoch. fairseq rounds both to
whole seconds.

Resumed runs: Updates that a resumed run repeats replace the earlier ones. The seconds of lost updates stay on the clock as far as they
were logged; their updates, tokens and FLOPs do not count. The table of runs has the lost minutes.

Minutes in all: fairseq's wall, including validation and saving, summed over the parts of a resumed run.

Tokens: wpb, the target tokens of an update, times updates, from the same records.

FLOPs: tokens times MFLOP/token of the slot table, which the plugin prints: matrix products, forward and backward, for one target
token and its source token; frozen weights need no weight gradient. Savings of --backskip, LayerDrop and --freeze-schedule are not
subtracted. A run without a slot table in its log, or with an older one without a line on the backward pass, has no FLOPs.

Arms: runs whose configurations, as fairseq-train logs them, differ only in seeds and paths; ± is the standard deviation over
seeds with n − 1. A single seed has none. An interrupted run does not count in means if its arm has a finished run; a cross marks
its end. In figures of curves the band is ± one deviation about the mean, as far as every seed has validations. In figures of
differences a bar is the mean of an arm's seeds, and the whiskers are the 95 % interval of the table of differences.

Losses: as fairseq prints them, in bits (base 2). A language model of characters has bits per character.

Sizes of exports: size of the file that `fairseq-reservoir export` writes, from its export.log or the *.safetensors in the run's folder.
The broken line of their figure connects the arms that no smaller file equals in score.

Sources: every cell of a number names its log when you point at it; tables/*.csv have the numbers unrounded.
"""

DEFINITIONS = [tuple(" ".join(paragraph.split()).split(": ", 1)) for paragraph in _TEXT.split("\n\n")]
