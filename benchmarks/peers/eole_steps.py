"""eole: its Transformer, trained by its Trainer.

Differences from fairseq: LayerNorms come before attention and feed-forward blocks instead of after them, with a final LayerNorm; there is
also dropout inside the feed-forward block; the loss is torch's cross-entropy; correctly predicted tokens are counted in every step.
"""

import sys

import torch
from eole.config.run import TrainConfig
from eole.inputters.inputter import dict_to_vocabs
from eole.models.model import get_model_class
from eole.trainer import build_trainer
from eole.utils.optimizers import Optimizer
from steps import Job

SPECIALS = {"bos_token": "<s>", "pad_token": "<blank>", "eos_token": "</s>", "unk_token": "<unk>"}  # in fairseq's order


def configure(job):
    layer = {"heads": job.heads, "hidden_size": job.width, "transformer_ff": job.ffn, "mlp_activation_fn": "relu"}
    layer |= {"add_qkvbias": True, "add_final_linear_bias": True, "add_ffnbias": True}
    return TrainConfig(
        data={},
        src_vocab="none",
        share_vocab=True,
        seed=job.seed,
        report_every=100,
        model={
            "architecture": "transformer",
            "hidden_size": job.width,
            "word_vec_size": job.width,
            "transformer_ff": job.ffn,
            "heads": job.heads,
            "embeddings": {
                "word_vec_size": job.width,
                "position_encoding": True,
                "position_encoding_type": "SinusoidalInterleaved",
            },
            "encoder": {"encoder_type": "transformer", "layers": job.encoder_layers, **layer},
            "decoder": {"decoder_type": "transformer", "layers": job.decoder_layers, **layer},
            "share_embeddings": True,
            "share_decoder_embeddings": True,
            "generator_bias": False,
        },
        training={
            "compute_dtype": job.precision,
            "world_size": 0,
            "gpu_ranks": [],
            "dropout": [job.dropout],
            "attention_dropout": [0.0],
            "param_init_method": "xavier_uniform",
            "optim": "adam",
            "adam_beta1": job.betas[0],
            "adam_beta2": job.betas[1],
            "learning_rate": job.rate * job.warm_up**0.5,
            "decay_method": "rsqrt",
            "warmup_steps": job.warm_up,
            "max_grad_norm": job.clip,
            "label_smoothing": job.smoothing,
            "normalization": "tokens",
            "log_attention_entropy": False,
        },
    )


def batches_of(job):
    """Yield batches in the format of eole's data iterator."""
    for number, (source, target) in enumerate(job.rectangles()):
        target = torch.cat([target.new_full((len(target), 1), job.BOS), target], dim=1)
        yield (
            {
                "src": source,
                "srclen": source.ne(job.PAD).sum(1),
                "tgt": target,
                "tgtlen": target.ne(job.PAD).sum(1),
                "cid": ["corpus"] * len(source),
                "cid_line_number": list(range(len(source))),
                "images": None,
                "prefix_len": None,
            },
            number,
        )


def main(job):
    config = configure(job)
    words = [*SPECIALS.values(), *(f"word{number}" for number in range(job.words - len(SPECIALS)))]
    vocabularies = dict_to_vocabs({"src": words, "tgt": words, "specials": SPECIALS, "decoder_start_token": "<s>"})
    if vocabularies["src"].ids_to_tokens != words:
        sys.exit("eole_steps: eole has changed the order of the dictionary")
    model = get_model_class(config.model).for_training(config.model, vocabularies, config.training, device_id=-1)
    trainer = build_trainer(config, -1, model, vocabularies, Optimizer.from_config(model, config))
    trainer.train(job.hand_out(batches_of(job), model, "eole"), len(job.batches) + 1, save_checkpoint_steps=0)


if __name__ == "__main__":
    main(Job(sys.argv[1]))
