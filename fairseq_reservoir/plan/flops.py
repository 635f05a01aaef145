"""Count the FLOPs of a model's matrix products per token, forward and backward.

We count every product of a token's vector with a matrix of the model, for one source token and one target token. A multiply-add
counts as two FLOPs.

Not counted:

- token mixing, because its cost depends on the sentence length: attention scores and weighted sums, static mixing, convolution
  and Fourier transforms;
- work per update, such as adding an adapter to its matrix;
- work per sentence, such as a classification head. A model with such a head does not run its language model head.

The effects of LayerDrop, --backskip, --freeze-schedule and --checkpoint-activations are ignored. RoBERTa's language model head
counts for every token, although training applies it only to masked tokens. An adaptive softmax counts with all its clusters of
words. Adaptive inputs do not count.

The backward pass of a product y = x W^T computes the gradient of W if W is trained, and the gradient of x if x depends on a
trained tensor.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby

from .kinds import STACKS


@dataclass(frozen=True)
class Flow:
    """Facts about a model's forward pass that the names and shapes of its parameters do not show.

    Attributes:
        norm_first: names of the pre-norm layers, such as "encoder.layers.0".
        behind_masks: shape of each masked random matrix. The key is the parameter name of the mask's scores. If the scores
            are not trained, the key is the name that they would have as a parameter.
        row_gains: parameter name of the row gain of each masked matrix with a row gain. The keys are as in ``behind_masks``.
            Training a row gain needs the gradient of the whole matrix.
        with_adapter_added: names of the matrices to which an adapter is added before the product.
        source_unread: whether the decoder has no attention to the encoder's output.
        source_and_target: whether the decoder's self-attention also attends to the source (--cross-self-attention).
    """

    norm_first: frozenset[str] = frozenset()
    behind_masks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    row_gains: Mapping[str, str] = field(default_factory=dict)
    with_adapter_added: frozenset[str] = frozenset()
    source_unread: bool = False
    source_and_target: bool = False


@dataclass(frozen=True)
class Tensor:
    """A tensor that the forward pass of a token uses.

    Attributes:
        name: name as in freeze specs, see ``freeze_spec.plain``.
        size: number of entries if the tensor is a matrix that multiplies the token's vector, else 0.
        trained: whether the tensor is trained.
        differentiated: whether the backward pass computes the gradient of the matrix. A frozen matrix needs this gradient if a
            trained adapter is added to it.
    """

    name: str
    size: int
    trained: bool
    differentiated: bool


def per_token(tensors: Iterable[Tensor], flow: Flow) -> dict[str, tuple[int, int]]:
    """FLOPs per token of the product with each tensor: tensor name -> (forward, backward).

    Args:
        tensors: all tensors of a model, in the order of its parameters. A tied tensor appears once for each use.
        flow: facts about the forward pass.
    """
    stacks: dict[str, list[Tensor]] = defaultdict(list)
    for tensor in tensors:
        stack = tensor.name.split(".")[0]
        stacks[stack if stack in STACKS else "elsewhere"].append(tensor)
    counted: dict[str, tuple[int, int]] = {}
    trained: dict[str, bool] = {}
    for stack in (*STACKS, "elsewhere"):
        finds_source = (
            flow.source_unread or flow.source_and_target or any(".encoder_attn." in t.name for t in stacks[stack])
        )
        # If we cannot tell where a decoder reads the source, we assume that its first layer does.
        trained[stack] = stack == "elsewhere" or (stack == "decoder" and not finds_source and trained["encoder"])
        for group in _in_forward_order(stacks[stack], flow.norm_first):
            _count_group(group, stack, trained, counted, flow.source_and_target)
    if flow.source_unread:
        counted |= {t.name: (counted[t.name][0], 0) for t in stacks["encoder"]}
    return counted


def _count_group(
    group: list[Tensor],
    stack: str,
    trained: dict[str, bool],
    counted: dict[str, tuple[int, int]],
    source_and_target: bool,
) -> None:
    """Add the FLOPs of tensors that the same step of the forward pass uses to ``counted``.

    ``trained`` records for each stack whether any tensor up to this step is trained. It is updated in place.
    """
    below = trained[stack]
    for tensor in group:
        module = tensor.name.rpartition(".")[0]
        if tensor.name.endswith(".frozen_adapter.B"):
            input_trained = True  # the input of VeRA's B depends on the trained vector d
        elif ".weight_hh" in tensor.name:
            input_trained = below or any(t.trained for t in group if t.name.startswith(f"{module}."))
        else:
            input_trained = trained["encoder"] if _reads_source(tensor.name) else below
        forward = 2 * tensor.size
        if source_and_target and _reads_source_and_target(tensor.name):
            forward, input_trained = 2 * forward, below or trained["encoder"]
        counted[tensor.name] = (forward, forward * (input_trained + tensor.differentiated))
    trained[stack] |= any(t.trained for t in group)
    reads = any(_reads_source(t.name) or source_and_target and _reads_source_and_target(t.name) for t in group)
    trained[stack] |= trained["encoder"] and reads


def _reads_source_and_target(name: str) -> bool:
    """Whether the tensor is a key or value projection of a decoder's self-attention; see ``Flow.source_and_target``."""
    return name.startswith("decoder.") and re.search(r"\.self_attn\.[kv]_proj\.", name) is not None


def _reads_source(name: str) -> bool:
    """Whether the tensor is applied to the encoder's output: a key or value projection of cross-attention."""
    return name.startswith("decoder.") and re.search(r"\.encoder_attn\.[kv]_proj\.", name) is not None


def _in_forward_order(tensors: list[Tensor], norm_first: frozenset[str]) -> Iterator[list[Tensor]]:
    """Group a stack's tensors by their step of the forward pass, in order. The tensors of a group run in parallel."""
    unknown = {_layer(t.name) for t in tensors if _layer(t.name) and _stage_in_layer(t.name, False) is None}
    keyed: list[tuple[tuple[int, ...], Tensor]] = []
    last_module, count, after_layers = None, 0, False
    for tensor in tensors:
        layer, module = _layer(tensor.name), tensor.name.rpartition(".")[0]
        count += module != last_module
        last_module, after_layers = module, after_layers or layer is not None
        if layer is None:
            stage = _stage_outside(tensor.name, after_layers)
            key = (stage, count if stage in _UNKNOWN else 0, 0)
        elif layer in unknown:
            key = (_LAYERS, _depth(layer), count)
        else:
            key = (_LAYERS, _depth(layer), _stage_in_layer(tensor.name, layer in norm_first) or 0)
        keyed.append((key, tensor))
    keyed.sort(key=lambda pair: pair[0])
    for _, group in groupby(keyed, key=lambda pair: pair[0]):
        yield [tensor for _, tensor in group]


def _layer(name: str) -> str | None:
    """Layer of a tensor, such as "encoder.layers.0", or None outside the layers."""
    parts = name.split(".")
    return ".".join(parts[:3]) if len(parts) > 3 and parts[1] == "layers" else None


def _depth(layer: str) -> int:
    return int(layer.rpartition(".")[2])


# Steps of the forward pass, in order: before the layers, after the layers (both tuples match the parameter's name without
# "encoder." or "decoder."), and within a layer (the patterns match the name without the layer's name).
_BEFORE = (r"embed_tokens\.", r"project_in_dim\.", r"embed_positions\.", r"layernorm_embedding\.", r".*")
_AFTER = (
    r"layer_norm\.",
    r"project_out_dim\.",
    r"lm_head\.dense\.",
    r"lm_head\.layer_norm\.",
    r"lm_head\.|output_projection\.|adaptive_softmax\.",
    r".*",
)
_LAYERS = len(_BEFORE)
_UNKNOWN = (_LAYERS - 1, _LAYERS + len(_AFTER))
_BLOCKS = (
    r"self_attn[._]|conv\.|gru\.|fourier\.|c_attn$|attn_ln\.",
    r"encoder_attn[._]|cross\.",
    r"ffn\.|ffn_layernorm\.|fc[12]\.|final_layer_norm\.|w_resid$",
)
_NORM = r"((self_attn|encoder_attn|final)_|\w+\.)layer_norm\."
_PARTS = (
    r"(.*\.)?([qkv]_proj|linear1|fc1|rightward|leftward)\.|(.*\.)?mix$",
    r"conv\.conv\.|ffn_layernorm\.",
    r"(.*\.)?(out_proj|linear2|fc2)\.",
    r"c_attn$|w_resid$",
    r"attn_ln\.",
)


def _stage_outside(name: str, after_layers: bool) -> int:
    """Index of the step that uses a tensor outside the layers."""
    rest = name.partition(".")[2]
    before, after = (
        next(i for i, pattern in enumerate(patterns) if re.match(pattern, rest)) for patterns in (_BEFORE, _AFTER)
    )
    in_before, in_after = before < len(_BEFORE) - 1, after < len(_AFTER) - 1
    return before if in_before or not (in_after or after_layers) else _LAYERS + 1 + after


def _stage_in_layer(name: str, norm_first: bool) -> int | None:
    """Index of the step of the layer's forward pass that uses the tensor; None for an unknown kind of layer."""
    rest = name.split(".", 3)[3]
    block = next((i for i, pattern in enumerate(_BLOCKS) if re.match(pattern, rest)), None)
    if block is None:
        return None
    part: int | None
    if re.match(_NORM, rest):
        part = -1 if norm_first else len(_PARTS)
    else:
        part = next((i for i, pattern in enumerate(_PARTS) if re.match(pattern, rest)), None)
    return None if part is None else block * (len(_PARTS) + 2) + part
