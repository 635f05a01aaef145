"""C: dynamic convolution (Wu et al., 2019, "Pay Less Attention with Lightweight and Dynamic Convolutions")."""

from fairseq.modules import DynamicConv1dTBC
from torch import Tensor, nn
from torch.nn import functional

from .base import Context, SlotConfig, Sublayer, register
from .cross_attention import cross_attention
from .feed_forward import FeedForward


class DynamicConvolution(Sublayer):
    """Dynamic convolution f(x) = W2 conv(GLU(W1 x)): each token predicts its depthwise kernel, normalised by a softmax.

    Shapes: W1 (2 embed_dim, embed_dim), W2 (embed_dim, embed_dim), kernel predictor (heads * kernel_size, embed_dim). The
    kernel is centred in an encoder and causal in a decoder. Padding is set to 0, so it has no effect on the outputs of tokens.
    """

    def __init__(self, config: SlotConfig, causal: bool) -> None:
        super().__init__(config)
        kernel_size = config.kernel_sizes[min(config.depth, len(config.kernel_sizes) - 1)]
        self.linear1 = nn.Linear(config.embed_dim, 2 * config.embed_dim)
        self.conv = DynamicConv1dTBC(
            config.embed_dim,
            kernel_size,
            padding_l=kernel_size - 1 if causal else kernel_size // 2,
            num_heads=config.heads,
            weight_dropout=config.attention_dropout,
            weight_softmax=True,
        )
        self.linear2 = nn.Linear(config.embed_dim, config.embed_dim)

    def transform(self, x: Tensor, context: Context) -> Tensor:
        x = functional.glu(self.linear1(x), dim=2)
        if context.padding_mask is not None:
            x = x.masked_fill(context.padding_mask.t().unsqueeze(2), 0)
        y: Tensor = self.linear2(self.conv(x, incremental_state=context.incremental_state))
        return y


@register("C")
def convolution(config: SlotConfig, stack: str) -> dict[str, Sublayer]:
    return {
        "conv": DynamicConvolution(config, causal=stack == "decoder"),
        **cross_attention(config, stack),
        "ffn": FeedForward(config),
    }
