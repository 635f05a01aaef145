"""Definitions of the numbers in a report. They are part of index.html and report.md."""

_TEXT = """
Training time: the seconds inside training steps, without validation, saving and loading (fairseq's train_wall). The record at the end of an
epoch has the epoch's total. The records of --log-interval show how this total is distributed over the epoch. They are also used for the
time of an interrupted epoch. fairseq rounds these times to whole seconds.

Resumed runs: If a resumed run repeats updates, the report uses only the repetitions; the earlier updates are called lost. The training time
includes the seconds of lost updates that were logged. The numbers of updates, tokens and FLOPs do not include lost updates. The table of
runs has a column of lost minutes.

Minutes in all: the time including validation and saving (fairseq's wall), summed over the parts of a resumed run.

Tokens: wpb (the target tokens of an update) times the number of updates, from the same records as the training time.

FLOPs: the number of tokens times the MFLOP/token in the slot table, the table of layers that the plugin prints. The table counts matrix
products, forward and backward, for one target token and its source token. Frozen weights need no weight gradient. The savings of
--backskip, LayerDrop and --freeze-schedule are not subtracted. A run has no FLOPs if its log has no slot table, or if an older
version of the plugin printed the table without a line for the backward pass.

Arms: Runs form an arm if their configurations, as logged by fairseq-train, differ only in seeds and paths. ± is the standard deviation over
seeds (n − 1); a single seed has none. An interrupted run is not averaged if its arm has a finished run. In figures of curves, a cross marks
the end of an interrupted run, and the band is the mean ± one deviation, up to the last point that all seeds reach. In figures of
differences, a bar is the mean of an arm's seeds, and the whiskers are the 95 % interval from the table of differences.

Losses: in bits (base 2), as fairseq prints them. For a language model of characters these are bits per character.

Sizes of exports: the size of the file that fairseq-reservoir export writes. The size is read from export.log. Without this log, it is the
size of the *.safetensors file in the run's folder.
In the figure of file sizes, the dashed line connects the files that score better than all smaller files.

Sources: move the pointer over a number to see its log file. tables/*.csv contain the unrounded numbers.
"""

DEFINITIONS = [tuple(" ".join(paragraph.split()).split(": ", 1)) for paragraph in _TEXT.split("\n\n")]
