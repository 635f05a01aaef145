"""Independent mistakes are reported together: three are named, the others are counted, and none is named twice."""

import pickle

import pytest
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from fairseq_reservoir.checkpoint.dry_build import build_arch
from fairseq_reservoir.errors import InputError
from fairseq_reservoir.options.number_rules import collect, refuse
from fairseq_reservoir.trainer import preflight

TRANSFORMER, LANGUAGE_MODEL, ROBERTA, SUPERMASK, FROZEN = ARCHITECTURES = (
    "reservoir_transformer_tiny",
    "reservoir_transformer_lm_tiny",
    "reservoir_roberta_tiny",
    "supermask_one_layer_transformer_tiny",
    "frozen_transformer_tiny",
)


def error_of(arch, flags):
    """The error of a command line with a model, before the model is built."""
    with pytest.raises(InputError) as caught:
        build_arch(arch, flags.split())
    return caught.value


def flags_of(error):
    """Flag and value of each message."""
    return [message.partition(": ")[0] for message in error.messages]


@pytest.mark.parametrize("arch", [TRANSFORMER, LANGUAGE_MODEL, ROBERTA])
def test_flags_of_two_dataclasses(arch):
    assert str(error_of(arch, "--frozen-adapter-rank 0 --backskip-warmup -1")) == (
        "--frozen-adapter-rank 0: must be at least 1; --backskip-warmup -1: must be at least 0"
    )


@pytest.mark.parametrize("arch", [TRANSFORMER, LANGUAGE_MODEL, ROBERTA])
def test_five_flags_of_a_model(arch):
    error = error_of(
        arch,
        "--reservoir-kernel-sizes 4 --freeze nonsense --frozen-adapter-rank 0 --backskip-warmup -1 --dropout 2",
    )
    assert flags_of(error) == [
        "--reservoir-kernel-sizes '4'",
        "--dropout 2",
        "--freeze 'nonsense'",
        "--frozen-adapter-rank 0",
        "--backskip-warmup -1",
    ]
    assert str(error).startswith("--reservoir-kernel-sizes '4': must be odd numbers up to 1023")
    assert "; --dropout 2: must be from 0 to below 1; --freeze 'nonsense': " in str(error)
    assert str(error).endswith("; and 2 more")


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_flag_of_the_model_and_three_of_the_training(arch):
    error = error_of(arch, "--lr -1 --dropout 2 --clip-norm nan --max-tokens -3")
    assert sorted(flags_of(error)) == ["--clip-norm nan", "--dropout 2", "--lr -1", "--max-tokens -3"]
    assert str(error).startswith(
        "--dropout 2: must be from 0 to below 1; --max-tokens -3: must be at least 1, because a training omits sentences longer than this "
        "limit; for no limit, give --batch-size instead; "
    )
    assert str(error).endswith("; and 1 more")


def test_masks():
    flags = "--mask-keep-ratio 2 --mask-coats x --mask-keep-schedule y --freeze nonsense --encoder-layers -1 --lr -1"
    error = error_of(SUPERMASK, flags)
    assert flags_of(error) == [
        "--mask-keep-ratio 2",
        "--mask-coats 'x'",
        "--mask-keep-schedule 'y'",
        "--freeze 'nonsense'",
        "--encoder-layers -1",
        "--lr -1",
    ]
    assert str(error).startswith("--mask-keep-ratio 2: must be greater than 0 and at most 1; --mask-coats 'x': ")
    assert str(error).endswith("; and 3 more")


@pytest.mark.parametrize(
    "arch, flags, expected",
    [
        # The schedule must end at the share, but the share itself is wrong.
        (SUPERMASK, "--mask-keep-ratio 0 --mask-keep-schedule 5:0.3", ["--mask-keep-ratio 0"]),
        (
            SUPERMASK,
            "--mask-coats 0.7 --mask-keep-schedule 5:0.3",
            ["--mask-coats '0.7'", "--mask-keep-schedule '5:0.3'"],
        ),
        (SUPERMASK, "--mask-random --mask-pin 2 --mask-seed x", ["--mask-seed 'x'", "--mask-pin 2"]),
        # Whether a layer to keep exists depends on the plan.
        (
            TRANSFORMER,
            "--reservoir-encoder LX --reservoir-decoder Q --encoder-layers-to-keep 9",
            ["--reservoir-encoder 'LX'", "--reservoir-decoder 'Q'"],
        ),
        (TRANSFORMER, "--reservoir-encoder LX --freeze nonsense", ["--reservoir-encoder 'LX'", "--freeze 'nonsense'"]),
        (
            TRANSFORMER,
            "--encoder-layers -1 --reservoir-type x --decoder-layers 0",
            ["--reservoir-type x", "--encoder-layers -1", "--decoder-layers 0"],
        ),
        # A width that is not a number cannot be divided by the number of heads.
        (
            TRANSFORMER,
            "--decoder-embed-dim 1x --decoder-attention-heads 3 --reservoir-seed x --freeze nonsense",
            ["--decoder-embed-dim '1x'", "--reservoir-seed 'x'", "--freeze 'nonsense'"],
        ),
        (
            TRANSFORMER,
            "--reservoir-encoder LG --encoder-embed-dim 15 --decoder-embed-dim 16 --decoder-attention-heads 3",
            ["--encoder-embed-dim 15", "--decoder-attention-heads 3"],
        ),
        (
            LANGUAGE_MODEL,
            "--reservoir-decoder LX --character-embeddings --adaptive-input",
            ["--reservoir-decoder 'LX'", "--character-embeddings", "--adaptive-input"],
        ),
        (
            FROZEN,
            "--freeze ${x} --encoder-layerdrop 2 --reservoir-seed x --update-freq 0",
            ["--reservoir-seed 'x'", "--freeze '${x}'", "--encoder-layerdrop 2", "--update-freq 0"],
        ),
    ],
)
def test_independent_mistakes(arch, flags, expected):
    assert flags_of(error_of(arch, flags)) == expected


@pytest.mark.parametrize(
    "arch, flags, message",
    [
        # Two dataclasses have this flag.
        (TRANSFORMER, "--frozen-adapter-rank 0", "--frozen-adapter-rank 0: must be at least 1"),
        # The plan and the ranges refuse a depth. fairseq copies widths to the decoder.
        (TRANSFORMER, "--encoder-layers -1", "--encoder-layers -1: must be at least 1 and at most 1000"),
        (SUPERMASK, "--encoder-layers -1", "--encoder-layers -1: must be from 0 to 1000"),
        (SUPERMASK, "--encoder-embed-dim 0", "--encoder-embed-dim 0: must be from 1 to 1000000"),
        (SUPERMASK, "--quant-noise-pq 2", "--quant-noise-pq 2: must be from 0 to 1"),
        (SUPERMASK, "--mask-keep-ratio -1", "--mask-keep-ratio -1: must be greater than 0 and at most 1"),
    ],
)
def test_one_mistake_is_named_once(arch, flags, message):
    assert str(error_of(arch, flags)) == message


def configuration(tmp_path, flags):
    """fairseq's configuration of a training."""
    line = ["no-data", "--arch", TRANSFORMER, "--cpu", "--save-dir", str(tmp_path), *flags.split()]
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), line))


@pytest.mark.parametrize(
    "flags, expected",
    [
        ("--optimizer adam --max-tokens -3", ["--max-tokens -3"]),
        ("--optimizer adam --batch-size -3", ["--batch-size -3"]),
        ("--optimizer adam --max-tokens 9 --max-tokens-valid -3", ["--max-tokens-valid -3"]),
        ("--lr -1", ["--optimizer", "--max-tokens", "--lr -1"]),
        (
            "--optimizer adam --max-tokens -3 --clip-norm nan --lr 1,2 --lr-scheduler inverse_sqrt --adam-betas foo --fp16"
            " --log-file nowhere/file",
            [
                "--log-file nowhere/file",
                "--max-tokens -3",
                "--clip-norm nan",
                "--lr 1,2",
                "--adam-betas foo",
                "--fp16",
            ],
        ),
        # The stages of the schedule depend on the number of updates.
        (
            "--optimizer adam --batch-size 4 --max-update -1 --lr-scheduler tri_stage --phase-ratio (0.5,0.25,0.25)",
            ["--max-update -1"],
        ),
        (
            "--optimizer freeze_skip --batch-size 4 --freeze-schedule x --adam-eps -1 --best-checkpoint-metric bleu",
            ["--adam-eps -1", "--best-checkpoint-metric bleu", "--freeze-schedule 'x'"],
        ),
    ],
)
def test_flags_of_a_training(tmp_path, flags, expected):
    with pytest.raises(InputError) as caught:
        preflight.check_training(configuration(tmp_path, flags))
    assert flags_of(caught.value) == expected


def test_the_count_includes_errors_of_several_messages():
    found = ["--a 1: wrong", "--b: missing"]
    with collect(found):
        refuse(["--c: 1", "--c: 2", "--a '1': also wrong", "--d: 1", "--e: 1"])
    with collect(found):
        raise InputError("one message; with a semicolon")
    with collect(found):
        refuse([])
    with pytest.raises(InputError) as caught:
        refuse(found)
    assert str(caught.value) == "--a 1: wrong; --b: missing; --c: 1; and 4 more"
    copy = pickle.loads(pickle.dumps(caught.value))  # as sent by a process of a training
    assert str(copy) == str(caught.value) and copy.messages == caught.value.messages == tuple(found)


def test_other_exceptions_are_not_collected():
    with pytest.raises(KeyError), collect([]):
        raise KeyError
