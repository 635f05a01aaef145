"""The frozen prefix of an encoder: its embeddings and all layers below the first layer with a trained parameter.

Without dropout, the frozen prefix computes the same output for a batch in every epoch.
"""

from collections.abc import Collection
from typing import Any

from fairseq.models.transformer import TransformerEncoderBase
from fairseq.modules import LayerDropModuleList, SinusoidalPositionalEmbedding
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from ..errors import InputError
from ..layers.adapters.adapted_linear import ScaledProjections
from ..random_tensors import digest

_EMBEDDINGS = ("embed_tokens", "embed_positions", "layernorm_embedding", "quant_noise")
# Methods that an encoder must not override.
_FAIRSEQS = ("forward", "forward_scriptable", "forward_embedding")
_DROPOUTS = (FairseqDropout, _DropoutNd)
# Attributes that are not settings of a module.
_UNSET = ("training", "forward")


def encoder_of(model: nn.Module, flag: str) -> tuple[str, TransformerEncoderBase]:
    """Return the name and the module of a model's encoder.

    Raises:
        InputError: the model has no encoder, or its encoder is not fairseq's Transformer encoder. Layers of any kind are allowed.
    """
    name = "encoder"
    found: Any = getattr(model, "encoder", None)
    if hasattr(found, "sentence_encoder"):
        name, found = "encoder.sentence_encoder", found.sentence_encoder
    usual = isinstance(found, TransformerEncoderBase) and all(
        getattr(type(found), method) is getattr(TransformerEncoderBase, method) for method in _FAIRSEQS
    )
    if not usual:
        what = "has no encoder" if found is None else f"has the encoder {type(found).__name__}"
        raise InputError(
            f"{flag}: {type(model).__name__} {what}; the flag needs fairseq's Transformer encoder; use an --arch such as transformer, "
            "reservoir_transformer or roberta"
        )
    return name, found


class FrozenPrefix:
    """The frozen prefix of an encoder at the current update.

    Args:
        name: the name of the encoder in its model.
        encoder: fairseq's Transformer encoder, with layers of any kind.

    Attributes:
        depth: number of layers in the prefix; 0 if there is no prefix, for example because embeddings are trained.
    """

    def __init__(self, name: str, encoder: TransformerEncoderBase) -> None:
        self.name, self.encoder, self.depth = name, encoder, 0
        self.silenced: dict[str, float] = {}

    def __str__(self) -> str:
        return f"{self.name}.layers.0" + (f"-{self.depth - 1}" if self.depth > 1 else "")

    def layers(self) -> list[nn.Module]:
        return list(
            self.encoder.layers.children()
        )  # children(), because iteration would drop layers with --encoder-layerdrop

    def parts(self, depth: int) -> dict[str, nn.Module]:
        """Return the embeddings and the lowest ``depth`` layers, by name."""
        found = {name: getattr(self.encoder, name, None) for name in _EMBEDDINGS}
        parts = {f"{self.name}.{name}": part for name, part in found.items() if part is not None}
        return parts | {f"{self.name}.layers.{i}": layer for i, layer in enumerate(self.layers()[:depth])}

    def reaches(self, frozen: Collection[int]) -> tuple[int, str | None]:
        """Return the depth of the prefix, and the name of the first trained parameter above it; None if all parameters are frozen.

        Args:
            frozen: ids of the frozen parameters. All other parameters are trained.
        """
        depth = 0
        for name, part in self.parts(len(self.layers())).items():
            trained = next((n for n, p in part.named_parameters() if id(p) not in frozen), None)
            if trained is not None:
                return depth, f"{name}.{trained}"
            depth += ".layers." in name
        return depth, None

    def dropouts(self, depth: int) -> dict[str, Any]:
        """Return all dropout modules of the embeddings and of the lowest ``depth`` layers, by name."""
        below = {f"{self.name}.dropout_module": self.encoder.dropout_module} | self.parts(depth)
        named = ((f"{name}.{n}" if n else name, m) for name, part in below.items() for n, m in part.named_modules())
        return {name: module for name, module in named if isinstance(module, _DROPOUTS)}

    def silence(self, depth: int) -> None:
        """Switch off dropout in the lowest ``depth`` layers. In all layers above, restore dropout that this method has switched off."""
        inside = self.dropouts(depth) if depth else {}
        for name, module in self.dropouts(len(self.layers())).items():
            if name in inside:
                self.silenced.setdefault(name, module.p)
            if name in self.silenced:
                module.p = 0.0 if name in inside else self.silenced.pop(name)

    def refuse_randomness(self, depth: int, keeps_dropout: bool) -> None:
        """Refuse a prefix of this depth if its output is random.

        Args:
            depth: number of layers in the prefix.
            keeps_dropout: whether dropout is applied in the prefix.

        Raises:
            InputError: a module of the prefix draws random numbers. The message names the module and the flag to change.
        """
        if isinstance(self.encoder.layers, LayerDropModuleList):
            raise InputError(
                f"--freeze-cache: --encoder-layerdrop {self.encoder.layers.p:g} drops layers at random, even frozen layers; "
                "remove --encoder-layerdrop"
            )
        for name, part in self.parts(depth).items():
            noisy = next((n for n, module in part.named_modules() if module._forward_pre_hooks), None)
            if noisy is not None:
                raise InputError(
                    f"--freeze-cache: a hook changes {name}{noisy and '.'}{noisy} before each use; remove the flag that "
                    "adds this hook, for example --quant-noise-pq"
                )
        drops = {name: module.p for name, module in self.dropouts(depth).items() if module.p}
        if drops and keeps_dropout:
            name, p = next(iter(drops.items()))
            others = f" and {len(drops) - 1} more" if len(drops) > 1 else ""
            raise InputError(
                f"--freeze-cache: {name}{others} in the frozen prefix {'have' if others else 'has'} dropout ({p:g}), which "
                "changes the output in every epoch; give --frozen-prefix-no-dropout (none in the prefix) or --dropout 0 (none anywhere)"
            )

    def hash(self) -> str:
        """Hash the tensors of the prefix, and the classes and settings of its modules."""
        tensors: dict[str, Tensor] = {}
        settings = []
        for part_name, part in self.parts(self.depth).items():
            for name, module in part.named_modules(prefix=part_name):
                settings.append(
                    (name, *(f"{c.__module__}.{c.__qualname__}" for c in type(module).__mro__), *_settings(module))
                )
                if isinstance(module, ScaledProjections):  # its matrices are registered elsewhere in the model
                    tensors |= dict(zip((f"{name}.A", f"{name}.B"), module._shared[0].pair(module._key)))
            tensors |= dict(part.named_parameters(prefix=part_name))
            tensors |= _buffers(part, part_name)
        return digest.of_contents(repr((*settings, *_settings(self.encoder))), tensors)


def _settings(module: nn.Module) -> list[str]:
    """List a module's settings as ``name=value``: public attributes that are numbers, strings, tuples, None, or functions (by name)."""
    plain = (bool, int, float, str, tuple, type(None))
    values = {
        name: getattr(value, "__qualname__", value)
        for name, value in vars(module).items()
        if name not in _UNSET and name[0] != "_"
    }
    return [f"{name}={value!r}" for name, value in sorted(values.items()) if isinstance(value, plain)]


def _buffers(part, prefix):
    """Return the buffers of a module, except sinusoidal position tables.

    The settings of the modules determine the values of these tables, but the size of a table grows with the longest sentence.
    """
    tables = [m for m in part.modules() if isinstance(m, SinusoidalPositionalEmbedding)]
    ids = {id(buffer) for table in tables for buffer in table.buffers()}
    return {name: buffer for name, buffer in part.named_buffers(prefix=prefix) if id(buffer) not in ids}
