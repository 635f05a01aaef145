"""Output of ``fairseq-reservoir plan`` apart from the slot table: the freeze schedule, and the head of a classification task."""

import pytest

from fairseq_reservoir import cli

PLAN = "plan --arch reservoir_transformer_tiny --reservoir-encoder LFL --optimizer freeze_skip".split()


def test_freeze_schedule_is_printed(capsys):
    cli.main([*PLAN, "--freeze-schedule", "0:emb;50:-emb"])
    lines = capsys.readouterr().out.partition("freeze schedule:\n")[2].splitlines()
    assert lines[0].startswith("update 0: emb frozen; ") and lines[1].startswith("update 50: emb trained again; 0 of ")


@pytest.mark.parametrize(
    "flags, message",
    [
        ("--freeze-schedule garbage", "--freeze-schedule 'garbage': 'garbage' is not UPDATE:COMPONENTS"),
        ("--freeze-schedule 0:pos", "--freeze-schedule 'pos': 'pos' matches nothing in this model"),
        ("--freeze-auto-interval 5", "--freeze-auto-interval: was removed; give --freeze-schedule"),
    ],
)
def test_invalid_schedules_are_refused(flags, message):
    with pytest.raises(SystemExit, match=message):
        cli.main([*PLAN, *flags.split()])


def test_the_head_of_a_sentence_classifier_is_in_the_table(capsys):
    """Its dense matrix is 8 x 8, its output 2 x 8, with biases: 64 + 8 + 16 + 2 = 90 trained. The language model's head is unused."""
    size = "--encoder-layers 1 --encoder-embed-dim 8 --encoder-attention-heads 2 --encoder-ffn-embed-dim 8 --source-words 20"
    task = "--task sentence_prediction --criterion sentence_prediction --num-classes 2 --freeze encoder"
    cli.main(["plan", "--arch", "frozen_roberta", *size.split(), *task.split()])
    lines = capsys.readouterr().out.splitlines()
    (head,) = (line.split() for line in lines if line.startswith("classification_heads.sentence_classification_head"))
    assert head[-4:-1] == ["trained", "90", "90"]
    assert next(line for line in lines if line.startswith("total")).split()[2] == "90"


def test_the_head_of_a_ranking_is_counted(capsys):
    """One score for each sentence: a dense layer of 64 and an output of 1, 64 * 64 + 64 + 64 + 1 = 4,225."""
    cli.main("plan -a reservoir_roberta_tiny --task sentence_ranking --num-classes 2".split())
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("classification_heads.")]
    assert row.split()[-3:-1] == ["4,225", "4,225"]
