"""``--arch fpt``: the blocks of a causal language model between a new input layer and a new output layer.

With the plugin, ``--arch frozen_fpt --freeze-except ln,pos,emb,out`` is the Frozen Pretrained Transformer of Lu et al. (2021):
only LayerNorms, positions, the input layer and the output layer are trained.
"""

from dataclasses import dataclass, field
from typing import Optional

import torch
from fairseq import utils
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models import BaseFairseqModel, FairseqDecoder, register_model
from fairseq.models.transformer import TransformerConfig
from fairseq.modules import LayerNorm
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase
from torch import nn

INPUT_GAIN = 1.41  # of the orthogonal input layer, as in the paper's code
GPT2_WIDTH, GPT2_STD = 768, 0.02


@dataclass
class BlocksConfig(FairseqDataclass):
    """Sizes of a model, by default those of GPT-2. ``--from-gpt2`` and ``--from-lm`` replace them by the sizes of the given model."""

    from_gpt2: Optional[str] = field(
        default=None, metadata={"help": "folder with a GPT-2 in Hugging Face's format: config.json and .safetensors"}
    )
    from_lm: Optional[str] = field(
        default=None, metadata={"help": "checkpoint of a language model of fairseq, such as reservoir_transformer_lm"}
    )
    decoder_layers: int = field(default=12, metadata={"help": "number of blocks"})
    decoder_embed_dim: int = field(default=GPT2_WIDTH, metadata={"help": "width"})
    decoder_ffn_embed_dim: int = field(default=3072, metadata={"help": "width of the feed-forward blocks"})
    decoder_attention_heads: int = field(default=12, metadata={"help": "number of attention heads"})
    activation_fn: ChoiceEnum(utils.get_available_activation_fns()) = field(
        default="gelu_accurate", metadata={"help": "activation function of the feed-forward blocks"}
    )
    dropout: float = field(default=0.1, metadata={"help": "dropout after the input and after each block"})
    attention_dropout: float = field(default=0.1, metadata={"help": "dropout of the attention weights"})


@register_model("fpt", dataclass=BlocksConfig)
class FPT(BaseFairseqModel):
    """A model with ``Blocks`` of a task's shape as its decoder. Maps inputs (batch, time[, width]) to logits (batch, answers, classes)."""

    def __init__(self, decoder):
        super().__init__()
        self.decoder = decoder

    @classmethod
    def build_model(cls, cfg, task):
        return cls(Blocks(cfg, task.shape))

    def forward(self, inputs, lengths):
        return self.decoder(inputs, lengths)

    def max_positions(self):
        return self.decoder.max_positions()


class Blocks(FairseqDecoder):
    """Input layer, positions, blocks, final LayerNorm and output layer. Names of the tensors are those of fairseq's decoder.

    Args:
        cfg: a ``BlocksConfig``.
        shape: a ``problems.Shape``.
    """

    def __init__(self, cfg, shape):
        super().__init__(dictionary=None)
        self.shape, width = shape, cfg.decoder_embed_dim
        self.embed_tokens = nn.Embedding(shape.width, width) if shape.symbols else nn.Linear(shape.width, width)
        self.embed_positions = nn.Embedding(shape.length, width)
        config = TransformerConfig()
        config.decoder.embed_dim, config.decoder.ffn_embed_dim = width, cfg.decoder_ffn_embed_dim
        config.decoder.attention_heads, config.decoder.normalize_before = cfg.decoder_attention_heads, True
        config.activation_fn, config.dropout = str(cfg.activation_fn), cfg.dropout
        config.attention_dropout = cfg.attention_dropout
        self.layers = nn.ModuleList(
            TransformerDecoderLayerBase(config, no_encoder_attn=True) for _ in range(cfg.decoder_layers)
        )
        self.layer_norm = LayerNorm(width)
        self.output_projection = nn.Linear(width, shape.groups * shape.classes)
        self.dropout = nn.Dropout(cfg.dropout)
        self._initialise()

    def _initialise(self):
        """Draw GPT-2's initial values: N(0, 0.02^2), scaled by sqrt(768 / width). The last matrix of each sublayer gets smaller values."""
        std = GPT2_STD * (GPT2_WIDTH / self.embed_positions.embedding_dim) ** 0.5
        for name, parameter in self.layers.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif "layer_norm" not in name:
                last = name.endswith(("out_proj.weight", "fc2.weight"))
                nn.init.normal_(parameter, std=std / (2 * len(self.layers)) ** 0.5 if last else std)
        nn.init.normal_(self.embed_positions.weight, std=std)
        if not self.shape.symbols:
            nn.init.orthogonal_(self.embed_tokens.weight, gain=INPUT_GAIN)
            nn.init.zeros_(self.embed_tokens.bias)

    def start_from(self, tensors):
        """Copy pretrained tensors. Positions without a pretrained vector keep their initial values.

        Returns:
            number of copied positions
        """
        known = min(self.shape.length, len(tensors["embed_positions.weight"]))
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if name == "embed_positions.weight":
                    parameter[:known] = tensors[name][:known]
                elif name.startswith(("layers.", "layer_norm.")):
                    parameter.copy_(tensors[name])
        return known

    def forward(self, inputs, lengths):
        """Logits of the answers.

        Args:
            inputs: symbols (batch, time) or vectors (batch, time, width), padded at the end with zeros. Real
                tokens cannot attend to padding, because padding follows them.
            lengths: lengths without padding, (batch,).

        Returns:
            a tuple of logits (batch, answers, classes) and None. The output layer reads the last ``shape.positions`` tokens.
        """
        batch, time = inputs.shape[:2]
        x = self.dropout(self.embed_tokens(inputs) + self.embed_positions.weight[:time]).transpose(0, 1)
        later = torch.full((time, time), float("-inf"), device=x.device, dtype=x.dtype).triu(1)
        for layer in self.layers:
            x, *_ = layer(x, self_attn_mask=later)
        x = self.layer_norm(x).transpose(0, 1)
        read = lengths[:, None] - torch.arange(self.shape.positions, 0, -1, device=lengths.device)
        x = x.gather(1, read[:, :, None].expand(-1, -1, x.shape[2]))
        return self.output_projection(x).view(batch, -1, self.shape.classes), None

    def max_positions(self):
        return self.shape.length
