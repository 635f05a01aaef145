"""Count the FLOPs of a model's matrix products per token, forward and backward.

We count every product of a token's vector with a matrix of the model, for one source token and one target token. A multiplication
and its addition count as two FLOPs.

Not counted:

- token mixing, because its cost depends on the sentence length: attention scores and weighted sums, static mixing, convolution
  and Fourier transforms;
- work per update, such as adding an adapter to a frozen matrix;
- work per sentence, such as a classification head. In a model with a classification head, the language model head does not run and is not
  counted.

LayerDrop, --backskip, --freeze-schedule and --checkpoint-activations do not change the counts. RoBERTa's language model head is counted for
every token, although training applies it only to masked tokens. All clusters of an adaptive softmax are counted. Adaptive inputs are not
counted.

The backward pass of a product y = x W^T computes the gradient of W if W is trained, and the gradient of x if x depends on a
trained tensor.

torch's ``FlopCounterMode`` is not used, because it has to run the model and counts per operator, but a plan needs no torch and counts
per tensor. The order of the forward pass is found from the names of the tensors. A test compares both counts.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby

from .kinds import STACKS


@dataclass(frozen=True)
class Flow:
    """Facts about a model's forward pass that do not follow from the names and shapes of its parameters.

    Attributes:
        norm_first: names of the pre-norm layers, such as "encoder.layers.0".
        behind_masks: name of the mask's scores -> shape of the masked random matrix. A random mask has no scores, so its key is the name
            that scores would have.
        row_gains: key of ``behind_masks`` -> name of the matrix's row gain, if the matrix has one. Training a row gain needs the gradient
            of the whole matrix.
        with_adapter_added: names of the matrices to which an adapter is added before the product.
        lookups: names of the weights of embeddings. A token selects a row of such a matrix, without a product.
        first_sublayers: name of a layer with a gain (--rezero) -> prefix of the names of its first sublayer's tensors. The products of this
            sublayer come before the first use of the gain. In a layer without an entry, the first sublayer is the self-attention.
        source_unread: true if no decoder layer attends to the encoder's output.
        source_and_target: whether the decoder's self-attention also attends to the source (--cross-self-attention).
    """

    norm_first: frozenset[str] = frozenset()
    behind_masks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    row_gains: Mapping[str, str] = field(default_factory=dict)
    with_adapter_added: frozenset[str] = frozenset()
    lookups: frozenset[str] = frozenset()
    first_sublayers: Mapping[str, str] = field(default_factory=dict)
    source_unread: bool = False
    source_and_target: bool = False


@dataclass(frozen=True)
class Tensor:
    """A tensor that the forward pass of a token uses.

    Attributes:
        name: name as in freeze specs, see ``freeze_spec.plain``.
        size: number of entries of a matrix that multiplies the token's vector; 0 for all other tensors.
        trained: whether the tensor is trained.
        differentiated: whether the backward pass computes the gradient of the matrix. A frozen matrix needs this gradient if a
            trained adapter is added to it.
    """

    name: str
    size: int
    trained: bool
    differentiated: bool


def per_token(tensors: Iterable[Tensor], flow: Flow) -> dict[str, tuple[int, int]]:
    """Count the FLOPs per token for each tensor, that is for its product with the token's vector: name -> (forward, backward).

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
        for group in _in_forward_order(stacks[stack], flow):
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
    """Count the FLOPs of one step of the forward pass, and add them to ``counted``. ``group`` contains the tensors that the step uses.

    ``trained[stack]`` is true if any tensor before this step is trained. It is updated in place.
    """
    below = trained[stack]
    for tensor in group:
        module = tensor.name.rpartition(".")[0]
        if tensor.name.endswith(".frozen_adapter.B"):
            input_trained = True  # the input of VeRA's B depends on the trained vector d
        elif ".weight_hh" in tensor.name:
            input_trained = below or any(t.trained for t in group if t.name.startswith(f"{module}."))
        else:
            input_trained = trained["encoder"] if _reads("encoder_attn", tensor.name) else below
        forward = 2 * tensor.size
        if source_and_target and _reads("self_attn", tensor.name):
            forward, input_trained = 2 * forward, below or trained["encoder"]
        counted[tensor.name] = (forward, forward * (input_trained + tensor.differentiated))
    trained[stack] |= any(t.trained for t in group)
    attentions = ("encoder_attn", "self_attn") if source_and_target else ("encoder_attn",)
    trained[stack] |= trained["encoder"] and any(_reads(attention, t.name) for attention in attentions for t in group)


def _reads(attention: str, name: str) -> bool:
    """Whether the tensor is a key or value projection of the decoder's ``attention`` ("self_attn" or "encoder_attn")."""
    return name.startswith("decoder.") and re.search(rf"\.{attention}\.[kv]_proj\.", name) is not None


def _in_forward_order(tensors: list[Tensor], flow: Flow) -> Iterator[list[Tensor]]:
    """Yield the tensors of each step of a stack's forward pass, in the order of the steps. The tensors of one step are used in parallel."""
    unknown = {_layer(t.name) for t in tensors if _layer(t.name) and _step_in_layer(t.name, False) is None}
    keyed: list[tuple[tuple[int, ...], Tensor]] = []
    last_module, count, after_layers = None, 0, False
    for tensor in tensors:
        layer, module = _layer(tensor.name), tensor.name.rpartition(".")[0]
        count += module != last_module
        last_module, after_layers = module, after_layers or layer is not None
        if layer is None:
            step = _step_outside(tensor.name, after_layers)
            key = (step, count if step in _UNKNOWN else 0, 0)
        elif layer in unknown:
            key = (_LAYERS, _depth(layer), count)
        else:
            key = (_LAYERS, _depth(layer), _step_in_layer(tensor.name, layer in flow.norm_first) or 0)
        keyed.append((key, tensor))
    keyed = [(_after_first_sublayer(key, tensor, keyed, flow), tensor) for key, tensor in keyed]
    keyed.sort(key=lambda pair: pair[0])
    for _, group in groupby(keyed, key=lambda pair: pair[0]):
        yield [tensor for _, tensor in group]


def _after_first_sublayer(
    key: tuple[int, ...], tensor: Tensor, keyed: list[tuple[tuple[int, ...], Tensor]], flow: Flow
) -> tuple[int, ...]:
    """Return the sort key of a tensor. The key of a gain comes directly after those of its layer's first sublayer, if that has tensors."""
    prefix = flow.first_sublayers.get(_layer(tensor.name) or "")
    if prefix is None or not tensor.name.endswith(".rezero_gain"):
        return key
    of_first = [other for other, t in keyed if t.name.startswith(prefix)]
    return (*max(of_first), 1) if of_first else key


def _layer(name: str) -> str | None:
    """Layer of a tensor, such as "encoder.layers.0", or None outside the layers."""
    parts = name.split(".")
    return ".".join(parts[:3]) if len(parts) > 3 and parts[1] == "layers" else None


def _depth(layer: str) -> int:
    return int(layer.rpartition(".")[2])


# Steps of the forward pass of a stack, in order, as patterns of the tensors that they use. First the steps before and after the layers;
# the patterns match names without "encoder." or "decoder.".
_BEFORE = (r"embed_tokens\.", r"project_in_dim\.", r"embed_positions\.", r"layernorm_embedding\.")
_AFTER = (
    r"layer_norm\.",
    r"project_out_dim\.",
    r"lm_head\.dense\.",
    r"lm_head\.layer_norm\.",
    r"lm_head\.|output_projection\.|adaptive_softmax\.",
)
_LAYERS = len(_BEFORE) + 1
_UNKNOWN = (_LAYERS - 1, _LAYERS + 1 + len(_AFTER))
# Steps in a layer: the parts of each block, between a LayerNorm before the block and one after it. A layer has only one of the two. The
# patterns match names without the layer's name.
_NORM = r"((self_attn|encoder_attn|final)_|\w+\.)layer_norm\."
_IN_LAYER = tuple(
    re.compile(f"(?={block})({part})")
    for block in (
        r"self_attn[._]|conv\.|gru\.|fourier\.|c_attn$|attn_ln\.|rezero_gain$",
        r"encoder_attn[._]|cross\.",
        r"ffn\.|ffn_layernorm\.|fc[12]\.|final_layer_norm\.|w_resid$",
    )
    for part in (
        _NORM,
        r"(.*\.)?([qkv]_proj|linear1|fc1|rightward|leftward)\.|(.*\.)?mix$",
        r"conv\.conv\.|ffn_layernorm\.",
        r"(.*\.)?(out_proj|linear2|fc2)\.",
        r"c_attn$|w_resid$|rezero_gain$",
        r"attn_ln\.",
        _NORM,
    )
)


def _step_outside(name: str, after_layers: bool) -> int:
    """Return the index of the step that uses a tensor outside the layers.

    A tensor with an unknown name gets an extra step. This step is the last step before the layers. With ``after_layers``, it is the last
    step of the stack.
    """
    rest = name.partition(".")[2]
    before, after = (
        next((i for i, pattern in enumerate(patterns) if re.match(pattern, rest)), len(patterns))
        for patterns in (_BEFORE, _AFTER)
    )
    is_after = before == len(_BEFORE) and (after < len(_AFTER) or after_layers)
    return _LAYERS + 1 + after if is_after else before


def _step_in_layer(name: str, norm_first: bool) -> int | None:
    """Index of the step of a layer's forward pass that uses the tensor; None for an unknown kind of layer."""
    rest = name.split(".", 3)[3]
    steps = [i for i, pattern in enumerate(_IN_LAYER) if pattern.match(rest)]
    return steps[0 if norm_first else -1] if steps else None
