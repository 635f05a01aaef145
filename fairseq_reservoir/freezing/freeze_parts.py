"""The order in which ``--freeze-auto`` may freeze a model: from what its input passes first to what its output comes from."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..errors import InputError
from ..plan import freeze_spec


@dataclass(frozen=True)
class Part:
    """A layer and what freezes together with it.

    ``name`` is that of the layer, as in ``encoder.layers.0``; ``tensors`` are names of parameters, those outside the layer last.
    """

    name: str
    tensors: tuple[str, ...]


def parts(owners: Mapping[str, str], keep: int = 1, spared: Iterable[str] = ()) -> tuple[Part, ...]:
    """What may freeze, in this order: the encoder's layers from its lowest on, then the decoder's, without the top ``keep``.

    This is the order in which a batch passes them, so that what is frozen is always the beginning of the model, of which the
    backward pass has nothing to do and whose output is always the same for a sentence. A decoder's layer reads the
    encoder, so it does not freeze before all of the encoder's have.

    Embeddings, and what else lies below a stack's first layer, freeze with that layer; a norm after the encoder's last layer freezes
    with that one. A tensor with several names freezes with the last part that has one of them, and never if one of
    them is in no part, as that of an output projection.

    Args:
        owners: every name of a trained parameter, those of tied ones among them -> its own name, in the model's order.
        keep: how many layers, from the top, always stay trained.
        spared: parameters that are frozen by other means.

    Raises:
        InputError: no layer would be left.
    """
    places = sorted(
        {place for place in map(freeze_spec.layer_of, owners) if place}, key=lambda p: (p[0] != "encoder", p[1])
    )
    if len(places) <= keep:
        raise InputError(
            f"--freeze-auto-keep {keep}: the model has {len(places)} layers with something to train, and none is left that may freeze; "
            f"{'keep fewer' if len(places) > 1 else 'leave out --freeze-auto'}"
        )
    order = {place: i for i, place in enumerate(places)}
    last: dict[str, float] = {}
    for name, owner in owners.items():
        place = freeze_spec.layer_of(name) or _neighbour(name, places)
        last[owner] = max(last.get(owner, 0), order[place] if place else len(places))
    inside = [name for name in last if freeze_spec.layer_of(name)]
    names = [name for name in (*inside, *(name for name in last if name not in set(inside))) if name not in set(spared)]
    found = (
        Part(f"{stack}.layers.{layer}", tuple(name for name in names if last[name] == i))
        for i, (stack, layer) in enumerate(places[: len(places) - keep])
    )
    return tuple(part for part in found if part.tensors)


def _neighbour(name: str, places: list[tuple[str, int]]) -> tuple[str, int] | None:
    """The layer that a parameter outside the layers freezes with, or None."""
    stack = freeze_spec.plain(name).partition(".")[0]
    own = [place for place in places if place[0] == stack]
    if not own:
        return None
    if freeze_spec.is_below_layers(name):
        return own[0]
    above_encoder = stack == "encoder" and any(other == "decoder" for other, _ in places)
    return own[-1] if above_encoder and freeze_spec.plain(name).startswith("encoder.layer_norm.") else None
