"""Control: fairseq-generate with each sentence translated from its neighbour's encoder output.

A model that uses the source scores almost zero here. A model that only learned the target language keeps its score. It takes the
arguments of fairseq-generate:

  python examples/quickstart/shuffled.py DATA --user-dir fairseq_reservoir --path checkpoint_best.pt ...
"""

from fairseq.models.transformer import TransformerEncoderBase
from fairseq_cli.generate import cli_main

# batch dimension of the encoder's outputs
BATCH_DIMENSION = {"encoder_out": 1, "encoder_padding_mask": 0, "encoder_embedding": 0, "src_lengths": 0}


def shuffle_encoder_output():
    forward = TransformerEncoderBase.forward

    def shuffled(self, *args, **kwargs):
        out = forward(self, *args, **kwargs)
        return out | {name: [t.roll(1, dim) for t in out[name]] for name, dim in BATCH_DIMENSION.items()}

    TransformerEncoderBase.forward = shuffled


if __name__ == "__main__":
    shuffle_encoder_output()
    cli_main()
