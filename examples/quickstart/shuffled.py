"""A control: fairseq-generate, but every sentence of a batch is translated from its neighbour's encoder output.

A model that reads the source scores next to nothing so; one that has only learned what target sentences look like would
not notice. Takes the words of fairseq-generate:

  python examples/quickstart/shuffled.py DATA --user-dir fairseq_reservoir --path checkpoint_best.pt ...
"""

from fairseq.models.transformer import TransformerEncoderBase
from fairseq_cli.generate import cli_main

# dimension of the batch in what the encoder returns
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
