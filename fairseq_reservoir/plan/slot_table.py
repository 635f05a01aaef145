"""Slot table: state (trained, frozen, partly frozen, shared or tied), parameters and FLOPs of each layer and embedding.

The table is compiled once from the layer plans, the freeze spec and the names and shapes of a model's parameters. No other code
decides which tensors are frozen: model building, the printed plan and all reports read the table.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, NoReturn

from ..errors import InputError
from . import freeze_spec, shown_table
from .flops import Flow, Tensor, per_token
from .freeze_spec import ADAPTER, ALWAYS_TRAINED, SHARED_LAYER
from .frozen_by_spec import Aliases, Pruning, frozen_by_spec, given_specs
from .layer_plan import Slot
from .table_inputs import FreezeChoices, ModelFacts

Counted = dict[str, tuple[int, int]]


@dataclass(frozen=True)
class Entry:
    """One parameter of a model.

    Attributes:
        name: name in the model.
        shape: shape of the parameter.
        atom: smallest component of freeze specs that contains the parameter, see ``freeze_spec``.
        trained: whether the parameter is trained.
        random_name: name of a frozen random tensor in the unpruned model. Its values are drawn from this name and the seed. None for all
            other tensors.
        seen_by: number of masked layers or adapters that use a shared random tensor; 0 for all other tensors.
        frozen_init: initialiser of a tensor that ``--frozen-init`` draws; None for all other tensors.
    """

    name: str
    shape: tuple[int, ...]
    atom: str
    trained: bool
    random_name: str | None = None
    seen_by: int = 0
    frozen_init: str | None = None

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Row:
    """A row of the table: a layer slot, or a module outside the layers.

    Attributes:
        place: module name, such as ``encoder.layers.0``.
        kind: letter and name of the layer's kind, or a description such as "token embedding".
        entries: tensors of the layer or module.
        flops: FLOPs per token of the forward pass; see ``flops.per_token``.
        backward_flops: FLOPs per token of the backward pass.
    """

    place: str
    kind: str
    entries: tuple[Entry, ...] = field(repr=False)
    flops: int = 0
    backward_flops: int = 0

    @property
    def parameters(self) -> int:
        return sum(e.size for e in self.entries)

    @property
    def trained_parameters(self) -> int:
        return sum(e.size for e in self.entries if e.trained)

    @property
    def state(self) -> str:
        states = {"shared" if e.seen_by else "trained" if e.trained else "frozen" for e in self.entries}
        return states.pop() if len(states) == 1 else "partly frozen" if states else "tied"

    @property
    def shown_state(self) -> str:
        """State of the row in the printed table. For a partly frozen row, the state lists the frozen components."""
        if self.state != "partly frozen":
            return self.state
        entries = [e for e in self.entries if e.atom not in ALWAYS_TRAINED]
        names, frozen = [e.name for e in entries], [e.name for e in entries if not e.trained]
        return f"frozen: {freeze_spec.summary(frozen, names)}" if len(frozen) < len(names) else "frozen"


@dataclass(frozen=True)
class SlotTable:
    """Layers and embeddings of a model. ``print`` shows the table as text, a notebook shows it as HTML.

    Attributes:
        rows: one row for each layer slot or module, in the order of the model's parameters.
        seed: seed of the random tensors.
    """

    rows: tuple[Row, ...]
    seed: int

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(e for row in self.rows for e in row.entries)

    @property
    def parameters(self) -> int:
        return sum(row.parameters for row in self.rows)

    @property
    def trained_parameters(self) -> int:
        return sum(row.trained_parameters for row in self.rows)

    @property
    def trained_share_of_matrices(self) -> float:
        """Trained share of the matrix entries. Biases and LayerNorms are ignored, as in papers."""
        sizes = [(e.size, e.trained) for e in self.entries if len(e.shape) > 1]
        return sum(size for size, trained in sizes if trained) / max(1, sum(size for size, _ in sizes))

    @property
    def flops(self) -> int:
        """FLOPs per token of the forward pass; see ``flops.py``."""
        return sum(row.flops for row in self.rows)

    @property
    def backward_flops(self) -> int:
        """FLOPs per token of the backward pass."""
        return sum(row.backward_flops for row in self.rows)

    def records(self) -> list[dict[str, Any]]:
        """Return one dictionary for each row, with the columns of the printed table as keys."""
        return shown_table.as_records(self)

    def to_pandas(self) -> Any:
        """Return ``records`` as a pandas ``DataFrame``. pandas is not installed with this package."""
        import pandas

        return pandas.DataFrame(self.records())

    def __str__(self) -> str:
        return shown_table.as_text(self)

    def short_text(self) -> str:
        """Format the table. A run of equal layers is one row, such as ``decoder.layers.0-5``, with their total parameters and FLOPs."""
        return shown_table.as_text(self, merged=True)

    def __repr__(self) -> str:
        return (
            f"<SlotTable: {len(self.rows)} rows, {self.trained_parameters:,} of {self.parameters:,} parameters trained>"
        )

    def _repr_html_(self) -> str:
        return shown_table.as_html(self)


def compile_table(
    parameters: Iterable[tuple[str, Sequence[int]]],
    plans: dict[str, tuple[Slot, ...]],
    seed: int,
    choices: FreezeChoices = FreezeChoices(),
    facts: ModelFacts | None = None,
) -> SlotTable:
    """Decide which parameters of a model are trained, and count its FLOPs.

    A tensor is frozen if the letter of its slot or a freeze spec freezes it. ``freeze`` freezes the tensors that it names.
    ``freeze_except`` freezes all tensors that it does not name. If both are given, a tensor is frozen if ``freeze`` names it and
    ``freeze_except`` does not. No freeze spec unfreezes a tensor that a letter freezes. Adapters and the gains of
    ``--rezero`` are always trained.

    Args:
        parameters: pairs (name, shape), each parameter once, in the model's order.
        plans: the slots of each stack, by stack name.
        seed: the seed of the frozen tensors.
        choices: the flags that freeze components.
        facts: facts about the built model.

    Raises:
        InputError: a spec is invalid, matches nothing or freezes nothing; everything is frozen; ``frozen_init`` cannot draw a
            tensor, or would set several rows of an embedding to 0.
    """
    facts = facts or ModelFacts()
    aliases, untrained, flow = facts.aliases, set(facts.untrained), facts.flow
    shapes = [(name, tuple(shape)) for name, shape in parameters]
    names = [name for name, _ in shapes if freeze_spec.atom(name) not in ALWAYS_TRAINED]
    by_spec = frozen_by_spec(names, aliases, choices.freeze, choices.freeze_except, Pruning(facts.kept))
    rows: dict[str, tuple[str, list[Entry]]] = {}  # kind and entries by place, in the model's order
    for name, shape in shapes:
        place, slot = _place(freeze_spec.plain(name), plans)
        entry = _entry(name, shape, place, slot, by_spec, untrained, choices)
        rows.setdefault(place, (_kind(place, slot), []))[1].append(entry)
    entries = [entry for _, of_row in rows.values() for entry in of_row]
    counted = {freeze_spec.plain(e.name): (0, 0) for e in entries if _is_shared(e.name)}
    counted |= per_token(_tensors(entries, aliases, flow), flow)
    table = [_row(place, _with_adapters(kind, of_row), of_row, counted) for place, (kind, of_row) in rows.items()]
    table += _tied_rows(aliases, rows, counted)
    table += _shared_rows(facts.shared)
    _add_flops_without_parameters(table, counted)
    result = SlotTable(tuple(table), seed)
    if not facts.more_follows and result.trained_parameters == 0 and any(name not in untrained for name, _ in shapes):
        refuse_all_frozen(choices.freeze, choices.freeze_except, _in_brackets(plans))
    return result


def _in_brackets(plans: dict[str, tuple[Slot, ...]]) -> str:
    plan = ", ".join(f"{stack} {''.join(slot.letter for slot in slots)}" for stack, slots in plans.items())
    return f" ({plan})" if plan else ""


def _tied_rows(aliases: Aliases, rows: Collection[str], counted: dict[str, tuple[int, int]]) -> Iterator[Row]:
    """Yield a row for each tied parameter outside the layers. Tied parameters of a layer are in the layer's row."""
    for alias, (owner, _) in aliases.items():
        if _layer_place(alias) not in rows:
            yield _row(_module(alias), f"tied to {_module(owner)}", (), counted, alias)


def _entry(
    name: str,
    shape: tuple[int, ...],
    place: str,
    slot: Slot | None,
    by_spec: Collection[str],
    untrained: Collection[str],
    choices: FreezeChoices,
) -> Entry:
    """Make the entry of a parameter. ``by_spec`` contains the names of the parameters that freeze specs freeze."""
    plain, atom = freeze_spec.plain(name), freeze_spec.atom(name)
    by_letter = slot is not None and _frozen_by_letter(slot, place, plain, atom, choices.train_layernorm)
    drawn_by_spec = name in by_spec and not by_letter and _can_be_drawn(name, shape, atom)
    init = choices.frozen_init if drawn_by_spec and choices.frozen_init != "model" else None
    random_name = _random_name(plain, place, slot) if by_letter or init else None
    trained = not (by_letter or name in by_spec or name in untrained)
    entry = Entry(name, shape, atom, trained, random_name, frozen_init=init)
    _check_drawn(entry)
    return entry


def _shared_rows(shared: Iterable[tuple[str, Sequence[int], int]]) -> Iterator[Row]:
    """Yield a row for each module of random tensors that layers or adapters share."""
    for place, tensors in groupby(shared, key=lambda tensor: _module(tensor[0])):
        of_row = tuple(
            Entry(name, tuple(shape), freeze_spec.atom(name), False, freeze_spec.plain(name), layers)
            for name, shape, layers in tensors
        )
        depth = max(e.seen_by for e in of_row)
        by = f"shared by up to {depth} adapter" if of_row[0].atom == ADAPTER else f"seen through {depth} mask"
        yield Row(place, f"random, {by}{'s' * (depth > 1)}", of_row)


def refuse_all_frozen(freeze: str | None, freeze_except: str | None, plan: str = "") -> NoReturn:
    """Raise an ``InputError`` for a model without trained parameters."""
    given = given_specs(freeze, freeze_except) or "the plan"
    raise InputError(f"{given} freezes every parameter{plan}; leave at least one parameter to train")


def _tensors(entries: list[Entry], aliases: Aliases, flow: Flow) -> list[Tensor]:
    """Return the tensors that the forward pass of a token uses, for counting FLOPs."""
    states = {entry.name: entry.trained for entry in entries}
    shapes = {entry.name: entry.shape for entry in entries} | {alias: shape for alias, (_, shape) in aliases.items()}
    shapes |= flow.behind_masks
    states |= {alias: states[owner] for alias, (owner, _) in aliases.items()}
    states = states | {name: False for name in flow.behind_masks if name not in states}
    in_sentence_task = any(name.startswith("classification_heads.") for name in states)
    found = []
    for name, trained in states.items():
        if _is_shared(name):
            continue  # counted under its names in the layers
        atom, plain = freeze_spec.atom(name), freeze_spec.plain(name)
        unused = ("classification_heads.", "encoder.lm_head.") if in_sentence_task else ()
        adapted = f"{name.rpartition('.frozen_adapter.')[0]}.weight"  # for a tensor of an adapter: the adapted matrix
        is_added = adapted in flow.with_adapter_added
        is_lookup = atom in ("emb", "pos") or name in flow.lookups
        is_product = len(shapes[name]) > 1 and atom != "self_att.mix" and not is_lookup and not is_added
        size = math.prod(shapes[name]) if is_product and not plain.startswith(unused) else 0
        differentiated = trained or name in flow.with_adapter_added or states.get(flow.row_gains.get(name, ""), False)
        found.append(Tensor(plain, size, trained, differentiated))
        if name.endswith(".frozen_adapter.d") and not is_added:
            # All VeRA adapters share A (r, in) and B (out, r), which have a row of their own. Each adapter has a vector d of
            # length r, and multiplies by both matrices.
            (rank,), (rows, columns) = shapes[name], shapes[adapted]
            found += [
                Tensor(f"{plain.removesuffix('d')}{matrix}", rank * side, False, False)
                for matrix, side in (("A", columns), ("B", rows))
            ]
    return found


def _row(place: str, kind: str, entries: Sequence[Entry], counted: Counted, *aliases: str) -> Row:
    """Make a row. Move the FLOPs of its entries and aliases from ``counted`` to the row."""
    names = (*(entry.name for entry in entries), *aliases)
    forward, backward = zip(*(counted.pop(freeze_spec.plain(name)) for name in names))
    return Row(place, kind, tuple(entries), sum(forward), sum(backward))


def _add_flops_without_parameters(table: list[Row], counted: Counted) -> None:
    """Add the FLOPs of random matrices, which are not parameters, to the rows of their layers. ``counted`` contains only these FLOPs."""
    places = [row.place for row in table]
    for name, (forward, backward) in counted.items():
        place = _place(name, {})[0]
        if place not in places:
            places.append(place)
            table.append(Row(place, "behind a random mask", ()))
        i = places.index(place)
        table[i] = replace(table[i], flops=table[i].flops + forward, backward_flops=table[i].backward_flops + backward)


def _module(name: str) -> str:
    return freeze_spec.plain(name).rsplit(".", 1)[0]


def _place(name: str, plans: dict[str, tuple[Slot, ...]]) -> tuple[str, Slot | None]:
    """Return the row of a parameter as (layer, slot), or as (module, None) outside the layers."""
    parts = name.split(".")
    if len(parts) > 3 and parts[1] == "layers":
        stack = plans.get(parts[0])
        return ".".join(parts[:3]), stack[int(parts[2])] if stack else None
    return ".".join(parts[:2]) if len(parts) > 2 else parts[0], None


def _is_shared(name: str) -> bool:
    return SHARED_LAYER in name.split(".")


def _layer_place(name: str) -> str | None:
    return _place(freeze_spec.plain(name), {})[0] if freeze_spec.layer_of(name) else None


def _with_adapters(kind: str, entries: list[Entry]) -> str:
    return ", ".join(filter(None, (kind, "adapters"))) if any(e.atom == ADAPTER for e in entries) else kind


def _frozen_by_letter(slot: Slot, place: str, name: str, atom: str, train_layernorm: bool) -> bool:
    if atom in ALWAYS_TRAINED:
        return False
    if train_layernorm and slot.frozen and atom == "ln":
        return False
    # In a decoder, the attention to the source of a frozen layer must be trained.
    return slot.freezes(atom) and not name.startswith(f"{place}.cross.")


def _can_be_drawn(name: str, shape: tuple[int, ...], atom: str) -> bool:
    """Whether ``--frozen-init`` can draw the tensor. It can draw matrices, biases and LayerNorms, but no other vectors."""
    return len(shape) > 1 or atom == "ln" or freeze_spec.is_bias(name)


def _check_drawn(entry: Entry) -> None:
    """Refuse ``--frozen-init`` for a weight-normalised matrix, and for an embedding if several of its rows would be 0."""
    if entry.frozen_init and entry.name.endswith((".weight_g", ".weight_v")):
        raise InputError(
            f"--frozen-init {entry.frozen_init}: cannot draw {entry.name}, because it is a factor of a weight-normalised matrix; remove "
            f"the flag, or do not freeze {entry.atom}"
        )
    if entry.atom not in ("emb", "out") or len(entry.shape) < 2:
        return
    distinct = {"diagonal": entry.shape[1], "zero": 0}.get(entry.frozen_init or "", entry.shape[0])
    if distinct < entry.shape[0]:
        raise InputError(
            f"--frozen-init {entry.frozen_init}: sets {entry.shape[0] - distinct} of the {entry.shape[0]} rows of {entry.name} to 0, so "
            f"their tokens cannot be distinguished; do not freeze {entry.atom}, or choose another initialiser"
        )


def _random_name(name: str, place: str, slot: Slot | None) -> str:
    if slot is None:
        return name
    stack = place.split(".", 1)[0]
    return f"{stack}.layers.{slot.origin}{name[len(place) :]}"


def _kind(place: str, slot: Slot | None) -> str:
    if slot is not None:
        return f"{slot.letter} {slot.kind.name}"
    if place.startswith("classification_heads."):
        return "classification head"
    return {
        "lm_head": "language model head",
        "embed_tokens": "token embedding",
        "embed_positions": "learned positions",
        "output_projection": "output projection",
    }.get(place.rsplit(".", 1)[-1], "")
