"""Repair of the checkpoints of multilingual models."""

from fairseq.models.multilingual_transformer import MultilingualTransformerModel

from .repair import repair, wrap


@repair("multilingual-models")
def load_tensors_outside_the_pairs():
    """Let a multilingual model load its checkpoint if it has tensors that belong to no language pair.

    A model with frozen tensors stores its description in such a tensor. fairseq asserts that each tensor belongs to a language pair, and
    its method has no argument ``args``.
    """

    def load_state_dict(original, model, state_dict, strict=True, model_cfg=None, args=None):
        of_pairs = {name: name.split(".")[1] for name in state_dict if name.startswith("models.")}
        kept = {name: tensor for name, tensor in state_dict.items() if of_pairs.get(name) in {None, *model.models}}
        return super(MultilingualTransformerModel, model).load_state_dict(kept, strict, model_cfg, args)

    wrap(MultilingualTransformerModel, "load_state_dict", load_state_dict)
