"""Definitions of the numbers of a report, as page and Markdown print them."""

_TEXT = """
Training time: fairseq's train_wall, the seconds inside training steps, without validation, saving and loading. An epoch's total
is its end-of-epoch record; within it, and in an epoch that was interrupted, the records of --log-interval divide it. fairseq
rounds both to whole seconds.

Resumed runs: What a resumed run repeats replaces what was logged before. The seconds of the updates that were lost stay on the
clock, as far as the records reach; their updates, tokens and FLOPs do not count. Lost minutes are in the table of runs.

Minutes in all: fairseq's wall, validation and saving included, which starts at 0 in each part of a resumed run; the parts are
added.

Tokens: wpb, the target tokens of an update, times updates, from the same records.

FLOPs: tokens times MFLOP/token of the slot table that the plugin prints: matrix products, forward and backward, for one target
token and the source token that comes with it; frozen weights take no gradient. What --backskip, LayerDrop and --freeze-schedule
leave out besides is not subtracted. A run without that table in its log, or with one that has no line on the
backward pass yet, has no such axis.

Arms: runs whose configurations, as fairseq-train logs them, differ only in seeds and paths; ± is the standard deviation over
seeds with n − 1. A single seed has none. A run that was interrupted is in no mean as long as its arm has another; a cross marks
where it ends. In figures of curves the band is ± one deviation about the mean, as far as every seed has validations; in those of
differences a bar is the mean of an arm's seeds, and the whiskers the 95 % interval of the table of differences.

Losses: as fairseq prints them, in bits (base 2). A language model of characters thus has bits per character.

Sizes of exports: of the file that `fairseq-reservoir export` writes, from its export.log or the *.safetensors in the run's folder. The
broken line of their figure leaves out the arms that a file of no more bytes scores as much as.

Checked by you: every cell of a number names the log it is from when you point at it; tables/*.csv hold the numbers unrounded.
"""

DEFINITIONS = [tuple(" ".join(paragraph.split()).split(": ", 1)) for paragraph in _TEXT.split("\n\n")]
