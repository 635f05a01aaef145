"""With --fast an update on a GPU makes the host wait at most twice, by the count of torch's synchronisation debug mode."""

import warnings
from unittest.mock import patch

import pytest
import torch

from fairseq_reservoir.trainer.reservoir_trainer import ReservoirTrainer
from tests.support.commands import RUN, train

_ENCODER = "--encoder-embed-dim 16 --encoder-ffn-embed-dim 24 --encoder-attention-heads 2"
_DECODER = "--decoder-embed-dim 16 --decoder-ffn-embed-dim 24 --decoder-attention-heads 2"
_MASKED = (
    "--arch supermask_one_layer_transformer --encoder-layers 2 --decoder-layers 2 --share-decoder-input-output-embed"
)
MODELS = {
    "reservoirs": f"--arch reservoir_transformer {_ENCODER} {_DECODER} --reservoir-encoder LTL --reservoir-decoder LT",
    "masks": f"{_MASKED} {_ENCODER} {_DECODER}",
    "language model": f"--task language_modeling --tokens-per-sample 8 --arch reservoir_transformer_lm {_DECODER}",
    "RoBERTa": f"--task masked_lm --criterion masked_lm --tokens-per-sample 8 --arch reservoir_roberta {_ENCODER}"
    " --reservoir-encoder LT --mask-prob 0.5",
}
PRECISIONS = {"fp32": "", "fp16": "--fp16 --fp16-init-scale 4", "bf16": "--bf16"}
# The first epoch has 6 batches, so that later no table of positions or mask has to grow.
WARM_UP, UPDATES = 7, 10


class Waits:
    """Records the lines at which the host waits for the GPU, for each update after the first ones."""

    def __init__(self):
        self.found = []

    def counted(self, train_step):
        def step(trainer, samples, *args, **options):
            if not torch.cuda.is_available() or trainer.get_num_updates() < WARM_UP:
                return train_step(trainer, samples, *args, **options)
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                torch.cuda.set_sync_debug_mode("warn")
                try:
                    result = train_step(trainer, samples, *args, **options)
                finally:
                    torch.cuda.set_sync_debug_mode("default")
            lines = [f"{w.filename}:{w.lineno}" for w in seen if "called a synchronizing" in str(w.message)]
            self.found.append(lines)
            return result

        return step


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("model", MODELS)
def test_at_most_two_waits(device, toy_data, model, precision):
    waits, begin = Waits(), [word for word in RUN if device == "cpu" or word != "--cpu"]
    if device == "cpu" and precision != "bf16":
        pytest.skip("one precision suffices on a CPU, where nothing is counted")
    flags = f"{MODELS[model]} {PRECISIONS[precision]} --fast --clip-norm 1 --disable-validation --no-save"
    with patch.object(ReservoirTrainer, "train_step", waits.counted(ReservoirTrainer.train_step)):
        run = train(toy_data, *flags.split(), "--max-update", UPDATES, "--log-interval", 100, begin=begin)
    assert len(run.losses) == UPDATES and all(loss > 0 for loss in run.losses)
    if device == "cuda":
        assert len(waits.found) == UPDATES - WARM_UP
        assert max(map(len, waits.found)) <= 2, "\n".join(waits.found[-1])
        assert min(map(len, waits.found)) >= 1, "the norm is read, so a count of 0 means that counting fails"
