"""The backskipping recipe: its commands parse, and its table of cosines equals the log."""

import pytest
from fairseq import options

from examples.backskip.cosines import cosines, table
from tests.examples.test_multi30k import EXAMPLES, bash, commands_in

RUN = EXAMPLES / "backskip" / "run.sh"


@pytest.mark.parametrize("kind, warmup", [("none", None), ("synthetic", 7), ("reinforce", 7), ("identity", 7)])
def test_arms(kind, warmup, data):
    given = [] if kind == "none" else ["--backskip-warmup", str(warmup)]
    ended = bash(RUN, *given, KIND=kind, DATA=str(data), RUNS=str(data / "runs"), DRY_RUN="1", UPDATES="9")
    assert ended.returncode == 0, ended.stderr
    train = options.parse_args_and_arch(options.get_training_parser(), commands_in(ended.stdout)["fairseq-train"])
    expected = ("LTLTL", 9, None, 100) if kind == "none" else ("LTLTL", 9, kind, warmup)
    assert (train.reservoir_encoder, train.max_update, train.backskip, train.backskip_warmup) == expected
    further = "" if kind == "none" else f"-backskip-warmup-{warmup}"
    assert train.save_dir.endswith(f"/backskip-{kind}-LTLTL{further}-9-4e-3-1")


def test_an_unknown_kind_is_named(data):
    ended = bash(RUN, KIND="guess", DATA=str(data), DRY_RUN="1")
    assert (
        ended.returncode == 2
        and ended.stderr == "backskip: KIND='guess': choose none, synthetic, reinforce or identity\n"
    )


def test_the_table_of_cosines():
    log = [
        "2026 | INFO | fairseq_cli.train | {'_name': None, 'backskip': 'synthetic'}",
        '2026 | INFO | train_inner | {"epoch": 1, "num_updates": "20", "backskip_cosine_encoder.layers.1": "0.5"}',
        '2026 | INFO | train_inner | {"num_updates": "40", "backskip_cosine_encoder.layers.1": "0.75", '
        '"backskip_cosine_encoder.layers.3": "-0.25"}',
        '2026 | INFO | train_inner | {"num_updates": "60", "loss": "3", "backskip_cosine_encoder.layers.1": null}',
    ]
    found = cosines(log)
    assert found == {"encoder.layers.1": {20: 0.5, 40: 0.75}, "encoder.layers.3": {40: -0.25}}
    assert table(found).splitlines() == [
        "update  encoder.layers.1  encoder.layers.3",
        "    20             0.500                  ",
        "    40             0.750            -0.250",
    ]
