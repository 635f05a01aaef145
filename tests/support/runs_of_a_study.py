"""Twelve mini runs: three arms of three seeds, one with an odd name, a resumed and an interrupted one, and one by fairseq-train."""

from contextlib import redirect_stdout

from tests.support.commands import start_training
from tests.support.logs import Writer, generated, plain_run

COLOURS = "red blue green black white".split() * 4
REFERENCES = [f"the {n} small {colour} cat sat on the old mat number {n} ." for n, colour in enumerate(COLOURS)]
ODD = "odd & <b>name_50%"
# BLEU of the validations after 20, 40, ... updates, and seconds of each epoch, by arm and seed.
SCORES = {
    ("dense", 1): ([10.0, 22.0, 30.0, 33.0, 32.5], [8, 8, 8, 12, 8]),
    ("dense", 2): ([11.0, 21.0, 29.0, 32.0, 34.0], [8, 12, 8, 8, 8]),
    ("dense", 3): ([9.0, 20.0, 31.0, 33.5, 33.0], [8, 8, 8, 8, 16]),
    ("keep30", 1): ([5.0, 15.0, 22.0, 26.0, 28.0], [12, 12, 12, 12, 12]),
    ("keep30", 2): ([6.0, 14.0, 23.0, 25.0, 27.0], [12, 12, 16, 12, 12]),
    ("keep30", 3): ([4.0, 16.0, 21.0, 27.0, 29.0], [12, 12, 12, 12, 20]),
    ("keep70", 1): ([8.0, 19.0, 27.0, 30.0, 31.0], [12, 12, 12, 12, 12]),
    ("keep70", 2): ([8.5, 18.0, 26.0, 29.0, 30.0], [12, 12, 12, 12, 12]),
    ("keep70", 3): ([7.5, 20.0, 28.0, 31.0, 30.5], [12, 12, 12, 12, 12]),
}


def translations(quality):
    """20 sentences, of which ``quality`` equal the reference. The others have one changed word."""
    return [line if n < quality else line.replace("cat", "dog") for n, line in enumerate(REFERENCES)]


def write_runs(folder):
    """Write the eleven runs that need no training."""
    for (arm, seed), (scores, seconds) in SCORES.items():
        keep = {"dense": 1.0, "keep30": 0.3, "keep70": 0.7}[arm]
        options = dict(seed=seed, keep=keep, mflop="3.740" if arm == "dense" else "2.500", text=seed == 3)
        plain_run(folder / f"{arm}-{seed}", scores, seconds, **options).write()
        generated(folder / f"{arm}-{seed}", REFERENCES, translations(5 + seed + int(10 * keep)))
    (folder / "dense-1" / "checkpoint_best.pt").write_bytes(b"x" * 1234)
    (folder / "dense-1" / "model.safetensors").write_bytes(b"x" * 567)

    log = Writer(folder / f"{ODD}-1", layers=5, mflop=None).start()
    for update, wall in ((5, 2), (10, 4), (15, 6), (20, 8)):
        log.inner(update, 2, 100, wall)
    log.valid(20, loss=9, bleu=10).epoch(20, 8, 100, 9).inner(25, 2, 100, 12).inner(30, 2, 100, 14)
    log.start(restored=20, epoch=2)
    for update, wall in ((25, 3), (30, 6), (35, 9), (40, 12)):
        log.inner(update, 3, 100, wall)
    log.valid(40, loss=8, bleu=20).epoch(40, 12, 100, 13).done().write()
    Writer(folder / f"{ODD}-2", seed=2, layers=5, mflop=None).start().inner(5, 2, 100, 2).valid(
        20, loss=9.5, bleu=5
    ).write()


def train_a_run(folder, corpus, run_fairseq):
    """Run fairseq-train with BLEU at validations in a new process, and fairseq-generate. Takes seconds."""
    folder.mkdir()
    flags = (
        "--max-epoch 3 --log-format json --log-interval 5 --eval-bleu --eval-bleu-detok space --no-epoch-checkpoints"
    )
    best = "--best-checkpoint-metric bleu --maximize-best-checkpoint-metric --reservoir-encoder LF --decoder-layers 1"
    ended = start_training(corpus, *flags.split(), *best.split(), "--save-dir", folder)
    assert ended.returncode == 0, ended.stderr
    (folder / "train.log").write_text(ended.stdout)
    with open(folder / "generate.log", "w") as out, redirect_stdout(out):
        run_fairseq("generate", corpus, "--path", folder / "checkpoint_best.pt", "--cpu", "--beam", 1, "--max-len-b", 8)
