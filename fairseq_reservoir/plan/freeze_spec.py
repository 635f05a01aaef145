"""Freeze specs: names of components to freeze, as in ``emb,encoder.ffn,decoder.layers.0-2.cross_att.q``.

Grammar: a comma-separated list of items ``[encoder.|decoder.][layers.<i>[-<j>][.]][<component>]``. A component is an atom or a
named group of atoms. An atom is the smallest component, such as ``self_att.q``. Every parameter belongs to exactly one atom.
"""

import functools
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ..errors import InputError, whole_number

ATTENTION_PARTS = ("q", "k", "v", "o")
# All other tensors of an attention: the packed projection of torch's MultiheadAttention, the attention of a convolutional model or an LSTM.
OTHER_ATTENTION = ("self_att.other", "cross_att.other")
ATOMS = (
    *(f"{kind}_att.{part}" for kind in ("self", "cross") for part in ATTENTION_PARTS),
    "self_att.mix",
    *OTHER_ATTENTION,
    "fc1",
    "fc2",
    "ln",
    "emb",
    "out",
    "pos",
    "other",
)
GROUPS = {
    "att": {a for a in ATOMS if "_att." in a},
    "self_att": {a for a in ATOMS if a.startswith("self_att.")},
    "cross_att": {a for a in ATOMS if a.startswith("cross_att.")},
    **{part: {f"self_att.{part}", f"cross_att.{part}"} for part in ATTENTION_PARTS},
    "mix": {"self_att.mix"},
    "ffn": {"fc1", "fc2"},
}
COMPONENTS = (*ATOMS, *GROUPS, "bias")
# Name of the module with the trained matrices that all layers of a stack share. Specs can also select such a matrix by its name in
# any of these layers.
SHARED_LAYER = "shared_layer"
# Atom of the tensors of --frozen-adapter. It is not allowed in specs, because adapters are always trained.
ADAPTER = "adapter"
# Atom of the gains of --rezero. It is not allowed in specs, because a frozen layer with a gain of 0 would be the identity.
GAIN = "gain"
ALWAYS_TRAINED = (ADAPTER, GAIN)
# Name of the module with the gradient estimators of --backskip, and prefix of their tensors in checkpoints. Specs cannot select them.
BACKSKIPS = "backskips"
# Atoms of tables with one row for each token or position.
TABLES = ("emb", "pos", "out")
# Initialiser of each value of --frozen-init; "model" keeps the model's own initial values.
FROZEN_INITS = {
    "model": None,
    "orthogonal": "orthogonal",
    "glorot": "xavier_uniform",
    "kaiming_uniform": "kaiming_uniform",
    "signed_constant": "signed_constant",
    "diagonal": "diagonal",
    "zero": "zero",
}

# Names of modules that attend to the source. torch's decoder layers call it multihead_attn.
_CROSS_ATTENTION = r"(?:encoder_attn2?|multihead_attn)"
# The first pattern that matches a parameter's name determines its atom. Patterns match whole parts between dots: the pattern
# fc1 does not match fc10, and self_attn does not match self_attn_layer_norm.
_PATTERNS = tuple(
    (re.compile(rf"(^|\.)({pattern})(\.|$)"), atom)
    for pattern, atom in (
        (r"frozen_adapter", ADAPTER),
        (r"layers\.\d+\.rezero_gain", GAIN),
        # Also matches NormFormer's LayerNorm of the attention's output and its gains of heads and of the residual.
        (r"\w*layer_?norm\w*|attn_ln|layers\.\d+\.(?:c_attn|w_resid)", "ln"),
        *((rf"{module}\.{name}", f"{kind}.{part}")
          for module, kind in (("self_attn", "self_att"), (_CROSS_ATTENTION, "cross_att"))
          for name, part in (("q_proj", "q"), ("k_proj", "k"), ("v_proj", "v"), ("out_proj", "o"))),
        (r"self_attn\.mix", "self_att.mix"),
        # fairseq calls an attention self_attn, selfattention, encoder_attn, encoder_attn2 or decoder.attention.
        (r"self_attn|selfattention", "self_att.other"),
        (rf"{_CROSS_ATTENTION}|decoder\.(?:attention|attproj)", "cross_att.other"),
        # Only inside layers, because in fconv and LSTM models fc1 and fc2 are projections before or after the layers.
        (rf"(?:layers\.\d+|{SHARED_LAYER})\.(?:\w+\.)*fc1", "fc1"),
        (rf"(?:layers\.\d+|{SHARED_LAYER})\.(?:\w+\.)*fc2", "fc2"),
        (r"conformer_layers\.\d+\.ffn[12]\.w_1", "fc1"),
        (r"conformer_layers\.\d+\.ffn[12]\.w_2", "fc2"),
        (r"embed_positions", "pos"),
        (r"embed_tokens", "emb"),
        (r"output_projection|adaptive_softmax|lm_head|classification_heads|fc_out|decoder\.fc3", "out"),
    )
)  # fmt: skip
_BELOW = re.compile(
    r"(^|\.)(embed_tokens|embed_positions|segment_embeddings|layernorm_embedding|emb_layer_norm|project_in_dim)(\.|$)"
)
_ITEM = re.compile(
    r"((?P<stack>encoder|decoder)(\.|$))?(layers\.(?P<first>\d+)(-(?P<last>\d+))?(\.|$))?(?P<component>.*)", re.DOTALL
)
_PLACE = re.compile(r"(?P<stack>encoder|decoder)(\.layers\.(?P<layer>\d+))?(\.|$)")


def plain(name: str) -> str:
    """Remove RoBERTa's level ``sentence_encoder`` from a parameter name. Specs, slot tables and random tensors use the shorter name."""
    nested = "encoder.sentence_encoder."
    return f"encoder.{name.removeprefix(nested)}" if name.startswith(nested) else name


def layer_of(name: str) -> tuple[str, int] | None:
    """Return (stack, depth) of a parameter's layer. Return None for a parameter outside the layers."""
    found = _PLACE.match(plain(name))
    return (found["stack"], int(found["layer"])) if found and found["layer"] else None


def atom(name: str) -> str:
    """Return the atom of the parameter ``name``: ``encoder.layers.0.self_attn.q_proj.weight`` -> ``self_att.q``."""
    return next((a for pattern, a in _PATTERNS if pattern.search(name)), "other")


def is_bias(name: str) -> bool:
    """Whether the parameter ``name`` is a bias, such as ``fc1.bias`` or an LSTM's ``bias_ih_l0``."""
    return "bias" in name.rpartition(".")[2]


def is_below_layers(name: str) -> bool:
    """Whether the parameter belongs to the embedding block: token or position embedding, its LayerNorm or the input projection."""
    return bool(_BELOW.search(name))


@dataclass(frozen=True)
class Item:
    """One item of a spec. A field that is ``None`` does not restrict the selection."""

    text: str
    stack: str | None
    layers: range | None
    component: str | None

    def matches(self, name: str) -> bool:
        """Whether the item selects the parameter ``name``."""
        place = _PLACE.match(plain(name))
        stack, layer = (place["stack"], place["layer"]) if place else (None, None)
        if self.stack and stack != self.stack:
            return False
        if self.layers is not None and (layer is None or int(layer) not in self.layers):
            return False
        if self.component is None:
            return True
        if self.component == "bias":
            return is_bias(name)
        return atom(name) in GROUPS.get(self.component, {self.component})


@functools.cache
def parse(spec: str, flag: str = "--freeze") -> tuple[Item, ...]:
    """Parse a spec into its items. Results are cached.

    Raises:
        InputError: an item is empty, names an unknown component, or has invalid layer numbers or a descending range.
    """
    return tuple(_parse_item(text.strip(), spec, flag) for text in spec.split(",")) if spec else ()


def _parse_item(text: str, spec: str, flag: str) -> Item:
    item = _ITEM.fullmatch(text)
    assert item is not None  # the pattern accepts any text as component
    component = item["component"] or None
    first, last = (
        whole_number(number) if number else None for number in (item["first"], item["last"] or item["first"])
    )
    if not text or (component and component not in COMPONENTS):
        raise InputError(
            f"{flag} {spec!r}: unknown component {text!r}; an item is [encoder.|decoder.][layers.<i>[-<j>].][<component>], "
            f"where <component> is one of {' '.join(COMPONENTS)}"
        )
    layers = None
    if item["first"] and (first is None or last is None):
        raise InputError(f"{flag} {spec!r}: {text!r}: give the layer numbers as layers.<i> or layers.<i>-<j>")
    if first is not None and last is not None:
        if first > last:
            raise InputError(f"{flag} {spec!r}: the range {first}-{last} is descending; write {last}-{first}")
        layers = range(first, last + 1)
    return Item(text, item["stack"], layers, component)


def selected(
    spec: str,
    names: Iterable[str],
    flag: str = "--freeze",
    keeps_trained: bool = False,
    pruned: bool = False,
    others: Iterable[str] = (),
) -> set[str]:
    """Select the parameters in ``names`` that a spec matches.

    Args:
        spec: a freeze spec.
        names: names of the parameters to choose from.
        flag: the spec's flag, for messages.
        keeps_trained: whether the spec lists parameters to keep trained. An item that is only a component may then match nothing, provided
            that another item matches. For example, a model with sinusoidal positions has no ``pos``.
        pruned: whether layers of the model were removed. Any item may then match nothing.
        others: names of the model's other parameters. They are never selected, but items may name their layers.

    Raises:
        InputError: an item matches nothing, or names layers that the model does not have. The message lists the model's
            components and layers.
    """
    names, items = list(names), parse(spec, flag)
    last = last_layers([*names, *others])
    matches = [(item, {n for n in names if item.matches(n)}) for item in items]
    chosen: set[str] = set().union(*(matched for _, matched in matches))
    for item, matched in matches:
        anywhere = item.stack is None and item.layers is None
        if not matched and not pruned and not (keeps_trained and anywhere and chosen):
            atoms = sorted({atom(n) for n in names}.difference(ALWAYS_TRAINED), key=ATOMS.index)
            raise InputError(
                f"{flag} {spec!r}: {item.text!r} matches nothing in this model; its components: {' '.join(atoms)}"
                f"{_list_layers(last_layers(names))}"
            )
        if (
            matched
            and item.layers
            and not pruned
            and item.layers[-1] > max(last[s] for s in last if item.stack in (None, s))
        ):
            raise InputError(
                f"{flag} {spec!r}: {item.text!r} names layers that this model does not have{_list_layers(last)}"
            )
    return chosen


def summary(frozen: Collection[str], names: Collection[str]) -> str:
    """Describe the frozen parameters among ``names`` by as few components as possible, for example "att, fc1".

    "ffn weights" means that all tensors of ``ffn`` except its biases are frozen. "4 of 6 ln" means that four of the six tensors
    of ``ln`` are frozen.
    """
    left, found = set(frozen), list[str]()
    components = {c: {name for name in names if atom(name) in GROUPS.get(c, {c})} for c in (*GROUPS, *ATOMS)}
    biases = set(filter(is_bias, names))

    def add_if_frozen(called: str, members: set[str]) -> None:
        nonlocal left
        if members & left and members <= set(frozen):
            found.append(called)
            left -= members

    for component, members in components.items():
        add_if_frozen(component, members)
    if left <= biases:
        add_if_frozen("bias", biases)
    for component, members in components.items():
        add_if_frozen(f"{component} weights", members - biases)
    if left <= biases:
        components = {"biases": biases}
    for component, members in components.items():
        if component not in GROUPS and members & left:
            found.append(f"{len(members & set(frozen))} of {len(members)} {component}")
    return ", ".join(found)


def last_layers(names: Iterable[str]) -> dict[str, int]:
    """Return the number of the last layer of each stack."""
    found: dict[str, int] = {}
    for stack, layer in filter(None, map(layer_of, names)):
        found[stack] = max(found.get(stack, 0), layer)
    return found


def _list_layers(last_layers: dict[str, int]) -> str:
    """Return text such as "; its layers: encoder 0-5, decoder 0-1", or "" for a model without layers."""
    layers = ", ".join(f"{stack} 0-{last}" for stack, last in last_layers.items())
    return f"; its layers: {layers}" if layers else ""
