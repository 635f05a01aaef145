"""``--encoder-layers-to-keep`` and ``--decoder-layers-to-keep`` of fairseq's own models: each stack is pruned once."""

import inspect
from argparse import Namespace

import pytest
import torch
from fairseq import checkpoint_utils, options

from fairseq_reservoir.errors import InputError
from tests.support.commands import RUN, load, train

ENCODER = [f"encoder.layers.{i}.fc1.weight" for i in range(3)]
DECODER = [f"decoder.layers.{i}.fc1.weight" for i in range(2)]
OTHERS = ["encoder.embed_tokens.weight", "heads.layers.7.weight"]
ROBERTA = [f"encoder.sentence_encoder.layers.{i}.fc1.weight" for i in range(3)]


def pruned_names(names, encoder=None, decoder=None):
    """Return a dictionary from new parameter names to old ones."""
    flags = Namespace(arch="transformer", encoder_layers_to_keep=encoder, decoder_layers_to_keep=decoder)
    return checkpoint_utils.prune_state_dict({name: name for name in names}, flags)


def test_both_stacks_are_pruned():
    assert pruned_names([*ENCODER, *DECODER, *OTHERS], "0,2", "1") == {
        **{ENCODER[0]: ENCODER[0], ENCODER[1]: ENCODER[2], DECODER[0]: DECODER[1]},
        **{name: name for name in OTHERS},
    }


def test_pruning_one_stack_keeps_the_other():
    assert set(pruned_names([*ENCODER, *DECODER], "0,2")) == {*ENCODER[:2], *DECODER}
    assert pruned_names([*ENCODER, *DECODER], None, "1") == {**{n: n for n in ENCODER}, DECODER[0]: DECODER[1]}


def test_a_pruned_stack_is_not_pruned_again():
    state = [*ENCODER[:2], *DECODER[:1]]
    assert pruned_names(state, "0,2", "1") == {name: name for name in state}
    # Only the encoder was pruned before, in training. The decoder is pruned now.
    assert pruned_names([*ENCODER[:2], *DECODER], "0,2", "1") == {
        ENCODER[0]: ENCODER[0],
        ENCODER[1]: ENCODER[1],
        DECODER[0]: DECODER[1],
    }
    assert pruned_names(ROBERTA[:2], "0,2") == {name: name for name in ROBERTA[:2]}
    assert pruned_names(ROBERTA, "0,2") == {ROBERTA[0]: ROBERTA[0], ROBERTA[1]: ROBERTA[2]}
    assert pruned_names(DECODER, "0,2", "1") == {DECODER[0]: DECODER[1]}  # a language model has no encoder


def test_plain_fairseq_prunes_again():
    flags = Namespace(arch="transformer", encoder_layers_to_keep="0,2", decoder_layers_to_keep="1")
    state = checkpoint_utils.prune_state_dict.__wrapped__({name: name for name in ENCODER[:2]}, flags)
    assert state == {ENCODER[0]: ENCODER[0]}


@pytest.mark.parametrize("keep", ["0,3", "0,0", "0,x", "0,-1"])
def test_invalid_layers_are_refused(keep):
    with pytest.raises(
        InputError, match=f"^--encoder-layers-to-keep '{keep}': give layer numbers between 0 and 2 without repeats"
    ):
        pruned_names(ENCODER, keep)


def test_the_model_gets_the_flag_as_a_string():
    """fairseq parses the flag to a list of numbers, but its models split a string."""
    flags = "data --arch transformer_tiny --encoder-layers 3 --decoder-layers 2 --encoder-layers-to-keep".split()
    parsed = options.parse_args_and_arch(options.get_training_parser(), [*flags, "0,2"])
    assert (parsed.encoder_layers_to_keep, parsed.decoder_layers_to_keep) == ("0,2", None)
    plain = inspect.unwrap(options.parse_args_and_arch)(options.get_training_parser(), [*flags, "0,2"])
    assert plain.encoder_layers_to_keep == [0, 2]
    with pytest.raises(
        InputError, match="^--encoder-layers-to-keep '0,3': give layer numbers between 0 and 2 without repeats"
    ):
        options.parse_args_and_arch(options.get_training_parser(), [*flags, "0,3"])


def test_a_plain_model_resumes_and_translates(toy_data, run_fairseq, tmp_path):
    model = "--arch transformer_tiny --encoder-layers 3 --decoder-layers 2 --encoder-layers-to-keep 0,2 --decoder-layers-to-keep 1"
    flags = [
        *RUN,
        *model.split(),
        "--batch-size",
        40,
        "--disable-validation",
        "--no-epoch-checkpoints",
        "--save-dir",
        tmp_path,
    ]
    run = train(toy_data, *flags, "--max-update", 2, begin=[])
    last = tmp_path / "checkpoint_last.pt"
    assert {name for name in load(tmp_path)["model"] if "layers.1." in name} == {
        name for name in run.weights if name.startswith("encoder.layers.1.")
    }
    (model,), _ = checkpoint_utils.load_model_ensemble([str(last)])
    assert all(torch.equal(tensor, run.weights[name]) for name, tensor in model.state_dict().items())
    assert train(toy_data, *flags, "--max-update", 3, begin=[]).trainer.get_num_updates() == 3
    run_fairseq("generate", toy_data, "--path", last, "--results-path", tmp_path, "--cpu")
    assert "BLEU4" in (tmp_path / "generate-test.txt").read_text()
