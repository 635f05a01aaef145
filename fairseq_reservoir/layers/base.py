"""Base classes for layers that are chains of residual sublayers. Only fairseq's Transformer layer does not use them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fairseq.modules import LayerNorm
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor, nn

Builder = Callable[["SlotConfig", str], dict[str, "Sublayer"]]
BUILDERS: dict[str, Builder] = {}


def register(letter: str) -> Callable[[Builder], Builder]:
    """Register the decorated builder ``(config, stack) -> {name: Sublayer}`` for the kind with this capital letter.

    Raises:
        ValueError: the letter already has a builder.
    """

    def add(builder: Builder) -> Builder:
        if letter in BUILDERS:
            raise ValueError(f"{letter}: already registered by {BUILDERS[letter].__module__}; choose a free letter")
        BUILDERS[letter] = builder
        return builder

    return add


@dataclass(frozen=True)
class SlotConfig:
    """Sizes and dropout rates of one slot. A slot is the place of one layer in a layer plan.

    Attributes:
        depth: number of the slot in the plan, from 0.
        memory_dim: width of the encoder's output; 0 without cross-attention.
        norm_first: true if every sublayer f computes x + f(LN(x)), false if it computes LN(x + f(x)).
        kernel_sizes: one kernel size for each depth from 0. Deeper slots use the last size.
        max_positions: maximum sentence length.
    """

    embed_dim: int
    ffn_dim: int
    heads: int
    depth: int
    memory_dim: int
    dropout: float
    attention_dropout: float
    activation_dropout: float
    activation_fn: str
    norm_first: bool
    kernel_sizes: tuple[int, ...]
    max_positions: int


@dataclass
class Context:
    """All inputs of a sublayer except x. Masks are (batch, time), true at padding.

    ``memory`` is the encoder's output. ``gain`` is the gain of ``--rezero``, or None. ``attn`` is not an input but an output:
    cross-attention stores its weights in this field.
    """

    padding_mask: Tensor | None = None
    memory: Tensor | None = None
    memory_padding_mask: Tensor | None = None
    incremental_state: dict[str, Any] | None = None
    need_attn: bool = False
    need_head_weights: bool = False
    gain: Tensor | None = None
    attn: Tensor | None = None


class Sublayer(nn.Module):
    """Residual sublayer: x + dropout(f(LN(x))) with ``norm_first``, else LN(x + dropout(f(x))); x: (time, batch, dim).

    With ``--rezero``, it computes x + gain * dropout(f(x)), see ``rezero.py``. A subclass implements f as the method ``transform``.

    Attributes:
        reads_source: whether the sublayer attends to the encoder's output. Such a sublayer is always trained, even in a frozen layer.
    """

    reads_source = False

    def __init__(self, config: SlotConfig) -> None:
        super().__init__()
        self.layer_norm = LayerNorm(config.embed_dim)
        self.dropout_module = FairseqDropout(config.dropout, module_name=self.__class__.__name__)
        self.norm_first = config.norm_first

    def transform(self, x: Tensor, context: Context) -> Tensor:
        """Compute f(x). Subclasses must define this method."""
        raise NotImplementedError(type(self).__name__)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        y = self.transform(self.layer_norm(x) if self.norm_first else x, context)
        y = self.dropout_module(y)
        y = x + (y if context.gain is None else context.gain * y)
        normed: Tensor = y if self.norm_first else self.layer_norm(y)
        return normed


class Slot(nn.Module):
    """Layer with the interface of a fairseq layer: a chain of named sublayers. ``rezero.use_rezero`` sets its gain."""

    rezero_gain: nn.Parameter | None

    def __init__(self, sublayers: dict[str, Sublayer]) -> None:
        super().__init__()
        self.register_parameter("rezero_gain", None)
        for name, sublayer in sublayers.items():
            self.add_module(name, sublayer)

    def run(self, x: Tensor, context: Context) -> Tensor:
        context.gain = self.rezero_gain
        for sublayer in self.children():
            x = sublayer(x, context)
        return x

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """Do nothing. fairseq calls this on every layer, but no older checkpoint needs an upgrade."""


class EncoderSlot(Slot):
    def forward(self, x: Tensor, encoder_padding_mask: Tensor | None = None, attn_mask: Tensor | None = None) -> Tensor:
        return self.run(x, Context(padding_mask=encoder_padding_mask))


class DecoderSlot(Slot):
    def forward(
        self,
        x: Tensor,
        encoder_out: Tensor | None = None,
        encoder_padding_mask: Tensor | None = None,
        incremental_state: dict[str, Any] | None = None,
        prev_self_attn_state: list[Tensor] | None = None,
        prev_attn_state: list[Tensor] | None = None,
        self_attn_mask: Tensor | None = None,
        self_attn_padding_mask: Tensor | None = None,
        need_attn: bool = False,
        need_head_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None, None]:
        context = Context(
            padding_mask=self_attn_padding_mask,
            memory=encoder_out,
            memory_padding_mask=encoder_padding_mask,
            incremental_state=incremental_state,
            need_attn=need_attn or need_head_weights,
            need_head_weights=need_head_weights,
        )
        x = self.run(x, context)
        return x, context.attn, None


def build_slot(letter: str, stack: str, config: SlotConfig) -> Slot:
    """Build a layer of the kind with this capital letter, for the stack ``encoder`` or ``decoder``.

    Raises:
        ValueError: the kind has no builder, or its sublayer ``cross`` does not attend to the source.
        TypeError: the builder does not return a dictionary of sublayers.
    """
    slots: dict[str, type[Slot]] = {"encoder": EncoderSlot, "decoder": DecoderSlot}
    if letter not in BUILDERS:
        raise ValueError(
            f"{letter}: plan/kinds.py has a row for this letter, but no file in layers/ registers a builder; add the file"
        )
    sublayers = BUILDERS[letter](config, stack)
    if not isinstance(sublayers, dict) or not all(isinstance(part, Sublayer) for part in sublayers.values()):
        raise TypeError(f"the builder returned {sublayers!r:.60}; it must return a dict of Sublayers by name")
    if "cross" in sublayers and not sublayers["cross"].reads_source:
        raise ValueError(
            f"{letter}: a sublayer named 'cross' is always trained, so this name is reserved for attention to the source; rename the "
            "sublayer"
        )
    return slots[stack](sublayers)
