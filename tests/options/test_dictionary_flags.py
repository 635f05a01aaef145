"""Flags with a dictionary as value. Their text and their keys are checked before any other work."""

import re
from argparse import Namespace

import pytest

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.options.for_fairseq import dictionary_flags


@pytest.mark.parametrize(
    "text, message",
    [
        ("beam=4", "--eval-bleu-args 'beam=4': is not JSON"),
        ("[4]", "--eval-bleu-args '[4]': must be a dictionary"),
        ('{"bean": 4}', "--eval-bleu-args: 'bean': not an option of fairseq's generation; did you mean 'beam'?"),
        ('{"beam": "4"}', '--eval-bleu-args: beam "4": must be a whole number'),
        ('{"prefix_size": null}', "--eval-bleu-args: prefix_size null: must be a whole number"),
        ('{"diverse_beam_groups": null}', "--eval-bleu-args: diverse_beam_groups null: must be a whole number"),
        ('{"sampling": null}', "--eval-bleu-args: sampling null: must be true or false"),
        ('{"sampling": 1}', "--eval-bleu-args: sampling 1: must be true or false"),
        ('{"beam": 0}', "--beam 0: must be from 1 to 10000"),
        ('{"lenpen": NaN}', "--lenpen nan: must be from -10 to 10"),
        ('{"beam": 4, "diverse_beam_groups": 3}', "--diverse-beam-groups 3: must divide --beam, 4"),
        ('{"beam": 4, "diverse_beam_groups": 8}', "--diverse-beam-groups 8: must divide --beam, 4"),
        ('{"sampling_topk": 3}', "--sampling-topk 3: needs --sampling"),
        ('{"sampling": true, "diverse_beam_groups": 5}', "--sampling and --diverse-beam-groups: use only one of them"),
        ('{"max_len_b": 3, "min_len": 5}', "--min-len 5: must be at most --max-len-b, 3"),
    ],
)
def test_arguments_of_generation(text, message):
    with pytest.raises(InputError, match=re.escape(message)):
        dictionary_flags.check_task(Namespace(eval_bleu_args=text))


def test_arguments_that_fairseq_accepts():
    """The first one is fairseq's own example."""
    for text in (
        '{"replace_unk": null, "lm_path": null, "print_alignment": null}',
        '{"beam": 4, "lenpen": 0.6}',
        '{"max_len_a": 1.2, "max_len_b": 10}',
        "{}",
        '{"lenpen": 1}',
    ):
        dictionary_flags.check_task(Namespace(eval_bleu=True, eval_bleu_args=text, eval_bleu_detok="space"))
    detok = {"eval_bleu_detok": "moses", "eval_bleu_detok_args": '{"target_lang": "de"}'}
    dictionary_flags.check_task(Namespace(eval_bleu=True, **detok))
    dictionary_flags.check_task(Namespace(eval_bleu_args=None))
    dictionary_flags.check_task(None)


def test_arguments_of_a_tokenizer():
    def refusal(**task):
        with pytest.raises(InputError) as error:
            dictionary_flags.check_task(Namespace(eval_bleu=True, **task))
        return str(error.value)

    assert refusal(eval_bleu_detok="mosse") == "--eval-bleu-detok mosse: choose from moses, nltk, space"
    unknown_key = refusal(eval_bleu_detok="moses", eval_bleu_detok_args='{"target": "de"}')
    assert unknown_key.startswith("--eval-bleu-detok-args: 'target': not an option of --eval-bleu-detok moses")
    assert refusal(eval_bleu_detok_args="no") == (
        "--eval-bleu-detok-args 'no': is not JSON (Expecting value: line 1 column 1 (char 0)); an example is '{\"beam\": 4}'"
    )


@pytest.mark.parametrize("text", ["x", "[1]", "{1: 2}", "{[]: 1}", "{'a': true}", "", "{" * 3000])
def test_invalid_dictionaries_of_python(text):
    with pytest.raises(InputError, match=r"^--model-overrides .*: must be a Python dictionary"):
        dictionary_flags.read_python("--model-overrides", text)


def test_manual_rates():
    dictionary_flags.check_manual_rates(Namespace(epoch2lr="{'1-3': 0.1, '4': 0.05}", update2lr="{}"))
    for text in ("{'a': 1}", "{'1': -1}", "{'1': 1e999}", "1", "{1: 2}"):
        with pytest.raises(InputError, match="^--update2lr .*: must be a dictionary of rates"):
            dictionary_flags.check_manual_rates(Namespace(epoch2lr="{}", update2lr=text))
