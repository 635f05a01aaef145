"""Counts the FLOPs of a model's matrix products per token, forward and backward, from its slots and their order.

Counted are multiply-adds, as two, for one token of the source and one of the target, of products with a matrix of the model.
What mixes words costs by the length of the sentence and is counted for no kind of layer: attention's scores and sums, static
mixing, convolution, Fourier transforms. Nor is what is done once an update, such as adding an adapter to its matrix, or once a
sentence, such as a classification head; in a model with such a head, the one of its language model is not run. RoBERTa's language
model head counts for every word, although training runs it at masked ones alone. Adaptive softmax and inputs count as if every
word met all bands of the former and none of the latter. LayerDrop, --backskip, --freeze-schedule and --checkpoint-activations are
left out of account.

Backward, a product y = x W^T has the gradient of W where W is trained, and that of x where anything that x is made of is trained.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby

from .kinds import STACKS


@dataclass(frozen=True)
class Flow:
    """The forward pass of a model, as far as names and shapes of its parameters do not tell it.

    Attributes:
        norm_first: the layers, as "encoder.layers.0", whose LayerNorms come before what they belong to.
        behind_masks: the shapes of random matrices behind masks, by the names that the scores of these have or would have.
        row_gains: of these, those with a factor of each row, and its name; trained, it needs the gradient of the whole matrix.
        with_adapter_added: names of the matrices to which an adapter is added before they are multiplied with.
        source_unread: whether the decoder never looks at the encoder's output.
        source_and_target: whether a decoder's attention takes keys and values of both together (--cross-self-attention).
    """

    norm_first: frozenset[str] = frozenset()
    behind_masks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    row_gains: Mapping[str, str] = field(default_factory=dict)
    with_adapter_added: frozenset[str] = frozenset()
    source_unread: bool = False
    source_and_target: bool = False


@dataclass(frozen=True)
class Tensor:
    """A tensor on a token's way through the model.

    Attributes:
        name: as specs know it, see ``freeze_spec.plain``.
        size: entries of the matrix that a token is multiplied with; 0 if there is no such product.
        trained: whether it is.
        differentiated: whether the matrix takes a gradient; differs from ``trained`` where an adapter is added to it.
    """

    name: str
    size: int
    trained: bool
    differentiated: bool


def per_token(tensors: Iterable[Tensor], flow: Flow) -> dict[str, tuple[int, int]]:
    """FLOPs (forward, backward) of every product, by the tensor's name.

    Args:
        tensors: of a model, in the order of its parameters; a tied one once for each place where it is used.
        flow: how the model runs.
    """
    stacks: dict[str, list[Tensor]] = defaultdict(list)
    for tensor in tensors:
        stack = tensor.name.split(".")[0]
        stacks[stack if stack in STACKS else "elsewhere"].append(tensor)
    counted: dict[str, tuple[int, int]] = {}
    trained: dict[str, bool] = {}
    for stack in (*STACKS, "elsewhere"):
        known = flow.source_unread or flow.source_and_target or any(".encoder_attn." in t.name for t in stacks[stack])
        # A decoder of which it is not known where it looks at the source does so from the start.
        trained[stack] = stack == "elsewhere" or (stack == "decoder" and not known and trained["encoder"])
        for group in _in_order(stacks[stack], flow.norm_first):
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
    """Adds tensors that run side by side; ``trained`` says of each stack whether anything below is trained."""
    below = trained[stack]
    for tensor in group:
        module = tensor.name.rpartition(".")[0]
        if tensor.name.endswith(".frozen_adapter.B"):
            input_trained = True  # by what the adapter has before it
        elif ".weight_hh" in tensor.name:
            input_trained = below or any(t.trained for t in group if t.name.startswith(f"{module}."))
        else:
            input_trained = trained["encoder"] if _of_source(tensor.name) else below
        forward = 2 * tensor.size
        if source_and_target and _of_both(tensor.name):
            forward, input_trained = 2 * forward, below or trained["encoder"]
        counted[tensor.name] = (forward, forward * (input_trained + tensor.differentiated))
    trained[stack] |= any(t.trained for t in group)
    reads = any(_of_source(t.name) or source_and_target and _of_both(t.name) for t in group)
    trained[stack] |= trained["encoder"] and reads


def _of_both(name: str) -> bool:
    """Whether a tensor of a decoder makes its keys or values; see ``Flow.source_and_target``."""
    return name.startswith("decoder.") and re.search(r"\.self_attn\.[kv]_proj\.", name) is not None


def _of_source(name: str) -> bool:
    """Whether a tensor of a decoder is applied to the encoder's output."""
    return name.startswith("decoder.") and re.search(r"\.encoder_attn\.[kv]_proj\.", name) is not None


def _in_order(tensors: list[Tensor], norm_first: frozenset[str]) -> Iterator[list[Tensor]]:
    """Groups of the tensors of a stack, in the order in which they run; those of a group run side by side."""
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
    """The layer that a tensor belongs to, as in "encoder.layers.0", or None."""
    parts = name.split(".")
    return ".".join(parts[:3]) if len(parts) > 3 and parts[1] == "layers" else None


def _depth(layer: str) -> int:
    return int(layer.rpartition(".")[2])


# What runs before and after the layers, and what in a layer, in order; a pattern matches what follows "encoder." or the layer.
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
    rest = name.partition(".")[2]
    before, after = (
        next(i for i, pattern in enumerate(patterns) if re.match(pattern, rest)) for patterns in (_BEFORE, _AFTER)
    )
    known_before, known_after = before < len(_BEFORE) - 1, after < len(_AFTER) - 1
    return before if known_before or not (known_after or after_layers) else _LAYERS + 1 + after


def _stage_in_layer(name: str, norm_first: bool) -> int | None:
    """When a tensor of a layer runs, None if it is of no known kind of layer."""
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
