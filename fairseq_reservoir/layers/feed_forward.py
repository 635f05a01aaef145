"""F: feed-forward layer without attention (Shen et al., 2021, "Reservoir Transformers")."""

from fairseq import utils
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor, nn

from .base import Context, SlotConfig, Sublayer, register


class FeedForward(Sublayer):
    """Feed-forward block f(x) = W2 dropout(act(W1 x + b1)) + b2, with W1 (ffn_dim, embed_dim) and W2 (embed_dim, ffn_dim)."""

    def __init__(self, config: SlotConfig) -> None:
        super().__init__(config)
        self.fc1 = nn.Linear(config.embed_dim, config.ffn_dim)
        self.fc2 = nn.Linear(config.ffn_dim, config.embed_dim)
        self.activation_fn = utils.get_activation_fn(config.activation_fn)
        self.activation_dropout_module = FairseqDropout(config.activation_dropout, module_name=self.__class__.__name__)

    def transform(self, x: Tensor, context: Context) -> Tensor:
        y: Tensor = self.fc2(self.activation_dropout_module(self.activation_fn(self.fc1(x))))
        return y


@register("F")
def feed_forward(config: SlotConfig, stack: str) -> dict[str, Sublayer]:
    return {"ffn": FeedForward(config)}
