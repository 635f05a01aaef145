"""Convert an export to a CTranslate2 model. The matrices have the same bits as in ``materialize``."""

import math
from argparse import Namespace
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...options.fairseq_flags import architecture_of
from ...options.reading import read
from ...random_tensors import digest
from ...text.parts import TextParts
from .. import export_file, reader
from ..plain_transformer import MODELS, flag_not_in_ctranslate2, why_not_plain
from ..stored import Array
from .weights import CannotConvert, Weights

# A change of this number makes cached models invalid. Increase it whenever the conversion changes.
CONVERTER_VERSION = 1
_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")  # fairseq's first four symbols, in its order
_PADDING = 1
_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_accurate": "GELUTanh", "gelu_fast": "GELUTanh", "swish": "SWISH"}


@dataclass
class _Options:
    """Options of a trained Transformer that affect the computation, with fairseq's defaults."""

    encoder_attention_heads: int = 8
    encoder_normalize_before: bool = False
    encoder_learned_pos: bool = False
    decoder_learned_pos: bool = False
    layernorm_embedding: bool = False
    no_scale_embedding: bool = False
    no_token_positional_embeddings: bool = False
    no_decoder_final_norm: bool = False
    activation_fn: str = "relu"
    max_source_positions: int = 1024
    max_target_positions: int = 1024
    frozen_dtype: str = "fp32"
    mask_random: bool = False
    mask_pin: float = 0.0


@dataclass
class PositionLimits:
    """Options of a task or a model that limit the length of sentences, with fairseq's defaults."""

    max_source_positions: int = 1024
    max_target_positions: int = 1024

    @classmethod
    def of_export(cls, body: dict[str, Any]) -> "PositionLimits":
        """Return the limits of the model. If the task has a smaller limit of the source length, return the task's limit."""
        task, model = (read(cls, _options_of(body, group)) for group in ("task", "model"))
        return cls(min(task.max_source_positions, model.max_source_positions), model.max_target_positions)


def convert(path: str, text: TextParts) -> Any:
    """Return an export as a ``TransformerSpec`` of CTranslate2.

    Args:
        path: path of the export.
        text: its text parts.

    Raises:
        InputError: the file is not usable, or its dictionaries do not fit the model.
        CannotConvert: CTranslate2 cannot represent the model.
    """
    body = export_file.read_body(path)
    model = _options_of(body, "model")
    check(path, body)
    _check_dictionaries(path, body, text)
    body, tensors = export_file.read(path)
    _refuse_undrawable(path, body, tensors)
    weights, options = Weights(path, reader.arrays(path, body, tensors)), read(_Options, model)
    spec = _spec(weights, options)
    _fill(spec, weights, options)
    weights.refuse_unused()
    spec.register_source_vocabulary([*_SPECIAL, *text.source])
    spec.register_target_vocabulary([*_SPECIAL, *text.target])
    spec.config.decoder_start_token = spec.config.eos_token
    spec.config.add_source_eos = True
    spec.validate()
    spec.optimize()
    return spec


def check(path: str, body: dict[str, Any]) -> None:
    """Refuse a model that CTranslate2 cannot represent.

    Raises:
        CannotConvert: CTranslate2 does not support a layer of the plan or an option.
    """
    model = _options_of(body, "model")
    options = read(_Options, model)
    name = str(architecture_of(model))
    # The name of an architecture starts with the name of its model. The name of a preset may follow. Language models have no encoder.
    if not f"{name}_".startswith(tuple(f"{known}_" for known in MODELS)) or not hasattr(
        model, "encoder_attention_heads"
    ):
        raise CannotConvert(f"{path}: {name} is not a translation model of this plugin")
    reason = why_not_plain(model)
    if not reason and (flag := flag_not_in_ctranslate2(model) or _other_flag(options)):
        reason = f"it was trained with {flag}, which CTranslate2 does not support"
    if reason:
        raise CannotConvert(f"{path}: {reason}")


def _options_of(body: dict[str, Any], group: str) -> Namespace:
    described = body["config"][group]
    return Namespace(**described.get("__namespace__", described))


def _other_flag(options: _Options) -> str | None:
    found = {
        "--no-token-positional-embeddings": options.no_token_positional_embeddings,
        "--no-decoder-final-norm": options.no_decoder_final_norm and options.encoder_normalize_before,
        f"--activation-fn {options.activation_fn}": options.activation_fn not in _ACTIVATIONS,
        f"--frozen-dtype {options.frozen_dtype}": options.frozen_dtype != "fp32",
        # Pinned entries are not stored. The code that selects masks draws them again, and this code needs torch.
        "--mask-random": options.mask_random,
        "--mask-pin": options.mask_pin,
    }
    return next((flag for flag, given in found.items() if given), None)


def _check_dictionaries(path: str, body: dict[str, Any], text: TextParts) -> None:
    """Refuse text parts if their dictionaries differ from the training dictionaries."""
    for side, described in body["dictionaries"].items():
        symbols = [*_SPECIAL, *(text.source if side == "source" else text.target)]
        if len(symbols) != described["entries"] or digest.of_symbols(symbols) != described["sha256"]:
            raise CannotConvert(f"{path}: the {side} dictionary in the file differs from that of the training")


def _refuse_undrawable(path: str, body: dict[str, Any], tensors: dict[str, Any]) -> None:
    """Refuse random orthogonal matrices that are not stored.

    Drawing them with the same bits as in training needs torch.
    """
    for name, random in body["random"].items():
        if name not in tensors and random.get("initialiser") == "orthogonal":
            raise CannotConvert(
                f"{path}: {name} is not stored (the export was written with --regenerate) and can only be drawn with torch"
            )


def _spec(weights: Weights, options: _Options) -> Any:
    from ctranslate2.specs import common_spec, transformer_spec

    return transformer_spec.TransformerSpec.from_config(
        (weights.layers("encoder"), weights.layers("decoder")),
        options.encoder_attention_heads,
        pre_norm=options.encoder_normalize_before,
        activation=getattr(common_spec.Activation, _ACTIVATIONS[options.activation_fn]),
        alignment_heads=0,
        layernorm_embedding=options.layernorm_embedding,
    )


def _fill(spec: Any, weights: Weights, options: _Options) -> None:
    """Copy all weights into the specification of a Transformer."""
    for stack, learned, positions in (
        ("encoder", options.encoder_learned_pos, options.max_source_positions),
        ("decoder", options.decoder_learned_pos, options.max_target_positions),
    ):
        part = getattr(spec, stack)
        table = weights.matrix(f"{stack}.embed_tokens")
        embeddings = part.embeddings[0] if isinstance(part.embeddings, list) else part.embeddings
        embeddings.weight, width = table, table.shape[1]
        part.scale_embeddings = 1.0 if options.no_scale_embedding else math.sqrt(width)
        place = f"{stack}.embed_positions"
        encodings = weights.matrix(place) if learned else sinusoidal(positions + _PADDING + 1, width)
        part.position_encodings.encodings = encodings[_PADDING + 1 :]
        for layer, layer_spec in enumerate(part.layer):
            _fill_layer(layer_spec, weights, f"{stack}.layers.{layer}", width)
        if options.encoder_normalize_before:
            _fill_norm(part.layer_norm, weights, f"{stack}.layer_norm", width)
        if options.layernorm_embedding:
            _fill_norm(part.layernorm_embedding, weights, f"{stack}.layernorm_embedding", width)
    projection = "decoder.output_projection"
    has_own = any(name.startswith(f"{projection}.") for name in weights.arrays)
    spec.decoder.projection.weight = weights.matrix(projection if has_own else "decoder.embed_tokens")


def _fill_layer(spec: Any, weights: Weights, place: str, width: int) -> None:
    attentions: list[tuple[str, Any, tuple[str, ...]]] = [
        ("self_attn", spec.self_attention, ("q_proj k_proj v_proj", "out_proj"))
    ]
    if place.startswith("decoder."):
        attentions.append(("encoder_attn", spec.attention, ("q_proj", "k_proj v_proj", "out_proj")))
    for name, attention, projections in attentions:
        for linear, parts in zip(attention.linear, projections):
            _fill_linear(linear, weights, *(f"{place}.{name}.{part}" for part in parts.split()))
        _fill_norm(attention.layer_norm, weights, f"{place}.{name}_layer_norm", width)
    _fill_linear(spec.ffn.linear_0, weights, f"{place}.fc1")
    _fill_linear(spec.ffn.linear_1, weights, f"{place}.fc2")
    _fill_norm(spec.ffn.layer_norm, weights, f"{place}.final_layer_norm", width)


def _fill_linear(spec: Any, weights: Weights, *places: str) -> None:
    """Copy one linear layer, or concatenate several that CTranslate2 computes as one."""
    matrices = [weights.matrix(place) for place in places]
    biases = [weights.vector(f"{place}.bias", len(matrix)) for place, matrix in zip(places, matrices)]
    spec.weight, spec.bias = np.concatenate(matrices), np.concatenate(biases)


def _fill_norm(spec: Any, weights: Weights, place: str, width: int) -> None:
    spec.gamma = weights.vector(f"{place}.weight", width, otherwise=1.0)
    spec.beta = weights.vector(f"{place}.bias", width)


def sinusoidal(rows: int, width: int) -> Array:
    """Return fairseq's table of sinusoidal positions, (rows, width), float32. The row of the padding symbol is 0.

    Frequencies and angles are rounded to float32 as in fairseq. Sines and cosines are computed in float64, because NumPy's float32
    functions are less exact than torch's. Most entries are bitwise equal to torch's table.
    """
    half = width // 2
    exponents = np.arange(half, dtype=np.float32) * np.float32(-math.log(10000) / (half - 1))
    frequencies = np.exp(exponents.astype(np.float64)).astype(np.float32)
    angles = (np.arange(rows, dtype=np.float32)[:, None] * frequencies).astype(np.float64)
    table = np.concatenate([np.sin(angles), np.cos(angles), np.zeros((rows, width % 2))], axis=1).astype(np.float32)
    table[_PADDING] = 0
    return table
