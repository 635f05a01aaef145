"""LayerDrop of all that is trained: refused in a line before the first update, which torch would otherwise refuse in the middle."""

import pytest

from tests.support.commands import error_of, train

SMALL = "--no-save --disable-validation --max-epoch 1 --batch-size 16".split()
# Nothing outside the layers: frozen embeddings, and no norm after the last layer.
LAYERS_ONLY = [
    "--reservoir-encoder",
    "LL",
    "--decoder-layers",
    "2",
    "--share-decoder-input-output-embed",
    "--freeze",
    "emb",
]
DROP = ["--encoder-layerdrop", "0.5"]
ROTATE = ["--optimizer", "freeze_skip", "--freeze-rotate", "1:2"]


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--freeze", "emb,decoder"], "--encoder-layerdrop 0.5: an update that leaves out all trained layers"),
        (ROTATE, "--encoder-layerdrop 0.5 with --freeze-rotate: an update that leaves out all trained layers"),
        (
            ["--optimizer", "freeze_skip", "--freeze-schedule", "3:decoder"],
            "--encoder-layerdrop 0.5: an update that leaves out all trained layers",
        ),
    ],
)
def test_what_may_have_nothing_to_train_is_refused(toy_data, flags, line):
    said, status = error_of(toy_data, *LAYERS_ONLY, *DROP, *SMALL, *flags)
    assert line in said and said.count("\n") == 1 and status == 2


@pytest.mark.parametrize(
    "flags",
    [
        DROP,  # the decoder's layers are always there
        [*DROP, "--freeze", "decoder"],  # the encoder's embeddings are trained
        [*DROP, *ROTATE, "--freeze", "decoder"],
        ROTATE,
    ],
)
def test_what_always_has_something_to_train_is_not(toy_data, flags):
    begin = LAYERS_ONLY if flags in (DROP, ROTATE) else LAYERS_ONLY[:4]
    assert len(train(toy_data, *begin, *SMALL, *flags).losses) > 7
