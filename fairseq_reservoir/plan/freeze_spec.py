"""Freeze specs: which components of a model are frozen, as in ``emb,encoder.ffn,decoder.layers.0-2.cross_att.q``.

Grammar, a comma list of items ``[encoder.|decoder.][layers.<i>[-<j>][.]][<component>]``. A component is an atom, of which
every parameter has exactly one, or a named group of atoms.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ..errors import InputError, whole_number

ATTENTION_PARTS = ("q", "k", "v", "o")
ATOMS = (
    *(f"{kind}_att.{part}" for kind in ("self", "cross") for part in ATTENTION_PARTS),
    "self_att.mix",
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
# In a stack, what has the trained matrices that its layers share; each is known by its name in any of them, too.
SHARED_LAYER = "shared_layer"
# The atom of what --frozen-adapter adds: no component, since it is there to be trained.
ADAPTER = "adapter"
# Tables, of which a row stands for one word or position.
TABLES = ("emb", "pos", "out")
# What --frozen-init may say, and the initialiser it stands for; "model" leaves the values that the model starts with.
FROZEN_INITS = {
    "model": None,
    "orthogonal": "orthogonal",
    "glorot": "xavier_uniform",
    "kaiming_uniform": "kaiming_uniform",
    "signed_constant": "signed_constant",
    "diagonal": "diagonal",
    "zero": "zero",
}

# The first pattern that matches a parameter's name gives its atom. Patterns match whole name parts, never substrings of
# one, so that fc1 is not found in fc10 nor self_attn in self_attn_layer_norm.
_PATTERNS = tuple(
    (re.compile(rf"(^|\.)({pattern})(\.|$)"), atom)
    for pattern, atom in (
        (r"frozen_adapter", ADAPTER),
        # With the gains that NormFormer adds to layers, of attention's output, its heads and the residual.
        (r"\w*layer_?norm\w*|attn_ln|layers\.\d+\.(?:c_attn|w_resid)", "ln"),
        *((rf"{module}\.{name}", f"{kind}.{part}")
          for module, kind in (("self_attn", "self_att"), ("encoder_attn", "cross_att"))
          for name, part in (("q_proj", "q"), ("k_proj", "k"), ("v_proj", "v"), ("out_proj", "o"))),
        (r"self_attn\.mix", "self_att.mix"),
        # Only in layers: the fc1 and fc2 of fconv and of LSTMs are projections around them.
        (rf"(?:layers\.\d+|{SHARED_LAYER})\.(?:\w+\.)*fc1", "fc1"),
        (rf"(?:layers\.\d+|{SHARED_LAYER})\.(?:\w+\.)*fc2", "fc2"),
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
    """The name that specs, slot tables and random tensors know a parameter by: RoBERTa nests its stack one deeper."""
    nested = "encoder.sentence_encoder."
    return f"encoder.{name.removeprefix(nested)}" if name.startswith(nested) else name


def layer_of(name: str) -> tuple[str, int] | None:
    """(stack, depth) of the layer that a parameter belongs to, or None."""
    found = _PLACE.match(plain(name))
    return (found["stack"], int(found["layer"])) if found and found["layer"] else None


def atom(name: str) -> str:
    """The one atom of the parameter ``name``, as in ``encoder.layers.0.self_attn.q_proj.weight`` -> ``self_att.q``."""
    return next((a for pattern, a in _PATTERNS if pattern.search(name)), "other")


def is_bias(name: str) -> bool:
    """Whether the parameter ``name`` is a bias, as ``fc1.bias`` and the ``bias_ih_l0`` of an LSTM are."""
    return "bias" in name.rpartition(".")[2]


def is_below_layers(name: str) -> bool:
    """Whether a word meets the parameter before the first layer of its stack: its vector, its position's, their norm, a matrix to width."""
    return bool(_BELOW.search(name))


@dataclass(frozen=True)
class Item:
    """One item of a spec; ``None`` stands for no restriction."""

    text: str
    stack: str | None
    layers: range | None
    component: str | None

    def matches(self, name: str) -> bool:
        """Whether the parameter ``name`` is meant."""
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


def parse(spec: str, flag: str = "--freeze") -> tuple[Item, ...]:
    """The items of a spec.

    Raises:
        InputError: an item is empty, names an unknown component, or a range that runs backwards.
    """
    return tuple(_parse_item(text.strip(), spec, flag) for text in spec.split(",")) if spec else ()


def _parse_item(text: str, spec: str, flag: str) -> Item:
    item = _ITEM.fullmatch(text)
    assert item is not None  # the component is any text
    component = item["component"] or None
    first, last = (
        whole_number(number) if number else None for number in (item["first"], item["last"] or item["first"])
    )
    if not text or (component and component not in COMPONENTS):
        raise InputError(
            f"{flag} {spec!r}: unknown component {text!r}; an item is [encoder.|decoder.][layers.<i>[-<j>].][<component>] "
            f"with a component of {' '.join(COMPONENTS)}"
        )
    layers = None
    if item["first"] and (first is None or last is None):
        raise InputError(f"{flag} {spec!r}: {text!r}: layers.<i> or layers.<i>-<j> needs numbers of layers")
    if first is not None and last is not None:
        if first > last:
            raise InputError(f"{flag} {spec!r}: the range {first}-{last} runs backwards")
        layers = range(first, last + 1)
    return Item(text, item["stack"], layers, component)


def selected(
    spec: str,
    names: Iterable[str],
    flag: str = "--freeze",
    spares: bool = False,
    pruned: bool = False,
    others: Iterable[str] = (),
) -> set[str]:
    """The parameters of ``names`` that a spec matches.

    Args:
        spec: a freeze spec.
        names: of the parameters to choose from.
        flag: that gave it.
        spares: the spec says what is not frozen. Then an item without a place may match nothing if another one matches: a
            model whose positions are sinusoidal has no ``pos`` that could be lost.
        pruned: layers were left out of the model. Then any item may match nothing.
        others: the names of all other parameters of the model.

    Raises:
        InputError: an item matches nothing, or its layers go beyond the model's; the message lists what exists.
    """
    names, items = list(names), parse(spec, flag)
    last = _last_layers([*names, *others])
    matches = [(item, {n for n in names if item.matches(n)}) for item in items]
    chosen: set[str] = set().union(*(matched for _, matched in matches))
    for item, matched in matches:
        anywhere = item.stack is None and item.layers is None
        if not matched and not pruned and not (spares and anywhere and chosen):
            atoms = sorted({atom(n) for n in names}, key=(*ATOMS, ADAPTER).index)
            raise InputError(
                f"{flag} {spec!r}: {item.text!r} matches nothing in this model, whose components are {' '.join(atoms)}"
                f"{_said(_last_layers(names))}"
            )
        if (
            matched
            and item.layers
            and not pruned
            and item.layers[-1] > max(last[s] for s in last if item.stack in (None, s))
        ):
            raise InputError(f"{flag} {spec!r}: {item.text!r} names layers beyond those of this model{_said(last)}")
    return chosen


def summary(frozen: Collection[str], names: Collection[str]) -> str:
    """The components frozen among the parameters ``names``, in as few components as say it all, as in "att, fc1".

    Where a component is frozen in part, "ffn weights" are all of it but the biases, and "4 of 6 ln" are four of its six tensors.
    """
    left, found = set(frozen), list[str]()
    components = {c: {name for name in names if atom(name) in GROUPS.get(c, {c})} for c in (*GROUPS, *ATOMS)}
    biases = set(filter(is_bias, names))

    def take(called: str, members: set[str]) -> None:
        nonlocal left
        if members & left and members <= set(frozen):
            found.append(called)
            left -= members

    for component, members in components.items():
        take(component, members)
    if left <= biases:
        take("bias", biases)
    for component, members in components.items():
        take(f"{component} weights", members - biases)
    if left <= biases:
        components = {"biases": biases}
    for component, members in components.items():
        if component not in GROUPS and members & left:
            found.append(f"{len(members & set(frozen))} of {len(members)} {component}")
    return ", ".join(found)


def _last_layers(names: Iterable[str]) -> dict[str, int]:
    """The number of each stack's last layer."""
    found: dict[str, int] = {}
    for stack, layer in filter(None, map(layer_of, names)):
        found[stack] = max(found.get(stack, 0), layer)
    return found


def _said(last_layers: dict[str, int]) -> str:
    """ "; its layers encoder 0-5, decoder 0-1", or nothing for a model without any."""
    return (
        "; its layers " + ", ".join(f"{stack} 0-{last}" for stack, last in last_layers.items()) if last_layers else ""
    )
