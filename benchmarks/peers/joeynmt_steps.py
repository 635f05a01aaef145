"""Joey NMT: its Transformer, trained by its TrainManager.

Differences from fairseq: there is also dropout on attention weights and inside the feed-forward block, because one number sets all;
attention does not use torch's fused kernel; the loss is a Kullback-Leibler divergence from an explicit smoothed distribution; in every
step sentences are sorted by length and correctly predicted tokens are counted.
"""

import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import torch
from joeynmt.batch import Batch
from joeynmt.config import parse_train_args
from joeynmt.model import build_model
from joeynmt.training import TrainManager
from joeynmt.vocabulary import Vocabulary
from steps import Job

SPECIALS = ("unk", "pad", "bos", "eos")  # joeynmt's ids 0 to 3


def vocabulary_of(job):
    specials = {
        f"{name}_{what}": value
        for i, name in enumerate(SPECIALS)
        for what, value in (("token", f"<{name}>"), ("id", i))
    }
    names = SimpleNamespace(**specials, sep_token=None, sep_id=None, lang_tags=[])
    return Vocabulary([f"word{number}" for number in range(job.words - len(SPECIALS))], names)


def build(job, words):
    def half(layers):
        return {
            "type": "transformer",
            "num_layers": layers,
            "num_heads": job.heads,
            "embeddings": {"embedding_dim": job.width, "scale": True, "dropout": job.dropout},
            "hidden_size": job.width,
            "ff_size": job.ffn,
            "dropout": job.dropout,
            "layer_norm": "post",
            "activation": "relu",
        }

    model = build_model(
        {
            "encoder": half(job.encoder_layers),
            "decoder": half(job.decoder_layers),
            "tied_embeddings": True,
            "tied_softmax": True,
        },
        words,
        words,
    )
    model.loss_function = ("crossentropy", job.smoothing)
    return model


class Handed:
    """Replacement of joeynmt's data set and data loader that returns the job's batches as Batch objects."""

    def __init__(self, job, model):
        self.job, self.model, self.seed = job, model, job.seed
        self.batch_sampler = SimpleNamespace(set_seed=lambda seed: None)

    def make_iter(self, **_):
        return self

    def batches(self):
        ids = torch.arange(self.job.words)
        ids[[self.job.UNK, self.job.PAD, self.job.BOS, self.job.EOS]] = torch.arange(len(SPECIALS))
        for source, target in self.job.rectangles():
            source, target = ids[source], ids[target]
            target = torch.cat([target.new_full((len(target), 1), SPECIALS.index("bos")), target], dim=1)
            lengths = source.ne(SPECIALS.index("pad")).sum(1)
            yield Batch(
                src=source,
                src_length=lengths,
                src_prompt_mask=None,
                trg=target,
                trg_prompt_mask=None,
                indices=torch.arange(len(source)),
                device=torch.device("cpu"),
                pad_index=SPECIALS.index("pad"),
                eos_index=SPECIALS.index("eos"),
            )

    def __iter__(self):
        return self.job.hand_out(self.batches(), self.model, "joeynmt")


def main(job):
    words = vocabulary_of(job)
    model = build(job, words)
    with tempfile.TemporaryDirectory() as folder:
        arguments = parse_train_args(
            {
                "loss": "crossentropy",
                "normalization": "tokens",
                "label_smoothing": job.smoothing,
                "optimizer": "adam",
                "adam_betas": job.betas,
                "learning_rate": job.rate,
                "learning_rate_min": 0.0,
                "scheduling": "warmupinversesquareroot",
                "learning_rate_warmup": job.warm_up,
                "clip_grad_norm": job.clip,
                "logging_freq": 100,
                "validation_freq": 10**8,
                "batch_size": 1,
                "epochs": 1,
            }
        )
        manager = TrainManager(
            rank=0,
            model=model,
            model_dir=Path(folder),
            device=torch.device("cpu"),
            autocast={"device_type": "cpu", "enabled": job.precision == "bf16", "dtype": torch.bfloat16},
            seed=job.seed,
            train_args=arguments,
        )
        data = Handed(job, model)
        manager.train_and_validate(train_data=data, valid_data=data)


if __name__ == "__main__":
    main(Job(sys.argv[1]))
