"""``--ignore-prefix-size``: each label-smoothed cross entropy of fairseq divides by the number of tokens after the prefix."""

import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from fairseq.criterions import CRITERION_REGISTRY, FairseqCriterion
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.logging import metrics

from tests.support.commands import train
from tests.support.several_processes import in_processes, train_as

PADDING = 1
CRITERIA = [
    "label_smoothed_cross_entropy",
    "label_smoothed_cross_entropy_with_alignment",
    "label_smoothed_cross_entropy_with_ctc",
    "label_smoothed_cross_entropy_with_rdrop",
    "fused_label_smoothed_cross_entropy",
]
OPTIONS = {
    "sentence_avg": False,
    "label_smoothing": 0.0,
    "report_accuracy": False,
    "ignore_prefix_size": 1,
    "ctc_weight": 0.0,
    "alignment_lambda": 0.0,
    "rdrop_alpha": 0.0,
}
# Loss in bits of each target token, one list per sentence. The first token of each is the prefix. 0 stands for padding.
BATCH = [[1, 2, 4], [3, 3, 0]]
SECOND_BATCH = [[1, 1]]


class Model(torch.nn.Module):
    """Stub model: the token 2 + i at position i has the probability 2^-bits. The other tokens share the rest equally."""

    def forward(self, bits):
        chances = torch.tensor(bits, dtype=torch.float64).neg().exp2()
        rows = torch.empty(*chances.shape, 8, dtype=torch.float64)
        rows[:] = ((1 - chances) / 7).unsqueeze(-1)
        rows.scatter_(-1, targets_of(bits).clamp(min=2).unsqueeze(-1), chances.unsqueeze(-1))
        return rows.log(), {}

    def get_normalized_probs(self, output, log_probs):
        return output[0] if log_probs else output[0].exp()

    def get_targets(self, sample, output):
        return sample["target"]


def targets_of(bits):
    positions = torch.arange(2, 2 + len(bits[0])).expand(len(bits), -1)
    return positions.masked_fill(torch.tensor(bits) == 0, PADDING)


def sample_of(bits):
    target = targets_of(bits)
    return {"net_input": {"bits": bits}, "target": target, "ntokens": int(target.ne(PADDING).sum())}


def make(name, plain=False, **options):
    task = SimpleNamespace(target_dictionary=SimpleNamespace(pad=lambda: PADDING))
    criterion_class = CRITERION_REGISTRY[name]
    build = (
        FairseqCriterion.build_criterion.__func__
        if plain
        else LabelSmoothedCrossEntropyCriterion.build_criterion.__func__
    )
    return build(criterion_class, SimpleNamespace(**{**OPTIONS, **options}), task)


def logged(criterion, *batches, **call):
    """Return the logged values and the sample sizes of an update with these batches, or of ranks with one batch each."""
    outputs = [criterion(Model(), sample_of(bits), **call) for bits in batches]
    with metrics.aggregate() as values:
        type(criterion).reduce_metrics([log for _, _, log in outputs])
    return values.get_smoothed_values(), [int(size) for _, size, _ in outputs]


@pytest.mark.parametrize("name", CRITERIA)
def test_every_criterion_divides_by_the_tokens_after_the_prefix(name):
    """After the prefix the first batch has 2 + 4 + 3 = 9 bits in 3 of 5 tokens. The second has 1 bit in 1 of 2 tokens."""
    values, sizes = logged(make(name), BATCH)
    assert (values["loss"], values["nll_loss"], sizes) == (3.0, 3.0, [3])
    values, sizes = logged(make(name), BATCH, SECOND_BATCH)
    assert (values["loss"], values["nll_loss"], values["ppl"], sizes) == (2.5, 2.5, 5.66, [3, 1])  # 2^2.5


def test_plain_fairseq_divides_by_all_tokens():
    values, sizes = logged(make("label_smoothed_cross_entropy", plain=True), BATCH)
    assert (values["nll_loss"], sizes) == (1.8, [5])  # 9 / 5
    # This criterion accepts the flag, but ignores it: 13 bits in 5 tokens.
    values, sizes = logged(make("label_smoothed_cross_entropy_with_alignment", plain=True), BATCH)
    assert (values["nll_loss"], sizes) == (2.6, [5])


def test_a_mean_over_sentences():
    values, sizes = logged(make("label_smoothed_cross_entropy", sentence_avg=True), BATCH)
    assert (values["loss"], values["nll_loss"], sizes) == (4.5, 3.0, [2])  # 9 bits in 2 sentences, or in 3 tokens


def test_the_accuracy_keeps_its_count():
    values, _ = logged(make("label_smoothed_cross_entropy", report_accuracy=True), [[4, 0.5], [0.5, 4]])
    assert (values["total"], values["accuracy"]) == (2, 50.0)


def test_without_the_flag_nothing_is_changed():
    criterion = make("label_smoothed_cross_entropy", ignore_prefix_size=0)
    assert not criterion._forward_hooks
    values, sizes = logged(criterion, BATCH)
    assert (values["nll_loss"], sizes) == (2.6, [5])


def test_rdrop_compares_the_tokens_after_the_prefix():
    """Both copies are equal after the prefix, so their divergence is 0. In plain fairseq mask and logits differ in length."""

    class Twice(Model):
        def forward(self, bits):
            rows, extra = super().forward(bits)
            rows = torch.cat([rows, rows])
            rows[:2, 0] = rows[:2, 0].flip(-1)  # other logits in the prefix of the first copy
            return rows, extra

    criterion = make("label_smoothed_cross_entropy_with_rdrop", rdrop_alpha=1.0)
    sample = sample_of(BATCH)
    loss, size, log = criterion(Twice(), sample, net_output=Twice()(BATCH))
    assert loss.item() == pytest.approx(2 * 9 * math.log(2))  # fairseq sums over both copies
    assert (int(size), log["rdrop_kl_loss"]) == (3, pytest.approx(0.0))


MODEL = "--encoder-layers 1 --decoder-layers 1 --dropout 0 --optimizer sgd --lr 0.5 --max-epoch 1 --batch-size 40 --no-save".split()
PREFIX = "--criterion label_smoothed_cross_entropy --ignore-prefix-size 2 --disable-validation --update-freq 4".split()


def weights_by_hand(run):
    """Return the weights after one update with all sentences, and the expected weights.

    Expected is w - 0.5 * gradient of the mean loss. The mean leaves out the first two tokens of each sentence.
    """
    model = run.model
    after = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.load_state_dict(run.initial)
    model.eval().zero_grad()
    sums, count = 0.0, 0
    data = run.trainer.task.dataset("train")
    for start in range(0, len(data), 40):
        batch = data.collater([data[i] for i in range(start, start + 40)])
        logits, target = model(**batch["net_input"])[0][:, 2:], batch["target"][:, 2:]
        is_scored = target.ne(PADDING)
        sums = sums + F.cross_entropy(logits[is_scored], target[is_scored], reduction="sum")
        count += int(is_scored.sum())
    (sums / count).backward()
    expected = {
        name: (weight - 0.5 * weight.grad).detach() for name, weight in model.named_parameters() if weight.requires_grad
    }
    return after, expected


def check_weights(after, expected):
    assert all(torch.allclose(after[name], weight, atol=1e-5) for name, weight in expected.items())


@pytest.mark.parametrize("fast", [[], ["--fast"]])
def test_an_update_of_four_batches(toy_data, fast):
    check_weights(*weights_by_hand(train(toy_data, *MODEL, *PREFIX, *fast)))


def weights_on_rank(rank, folder, data):
    return weights_by_hand(train_as(rank, 2, folder / "meeting", data, *MODEL, *PREFIX, "--update-freq", 2))


@pytest.mark.slow
def test_an_update_of_two_ranks(toy_data, tmp_path):
    for found in in_processes(2, weights_on_rank, tmp_path, toy_data):
        check_weights(*found)
