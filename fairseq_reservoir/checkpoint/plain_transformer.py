"""Check whether fairseq's ``transformer`` and CTranslate2 can represent a model. Needs no torch."""

from typing import Any

from ..options.fairseq_flags import ModelFlags
from ..options.layer_options import FrozenLayerOptions
from ..options.plans import PlanFlags
from ..options.reading import read
from ..plan import kinds
from ..plan.layer_plan import slots

MODELS = ("reservoir_transformer", "supermask_one_layer_transformer", "frozen_transformer")


def why_not_plain(model: Any) -> str | None:
    """Return the reason why fairseq's ``transformer`` or CTranslate2 cannot represent a model; None if both can.

    Args:
        model: the model's configuration, with options as attributes.
    """
    if read(FrozenLayerOptions, model).rezero:
        return "--rezero: fairseq's transformer has no gains of residual connections"
    given = vars(read(PlanFlags, model))
    for stack in ("encoder", "decoder"):
        plan = given[f"reservoir_{stack}"]
        for slot in slots(plan, given[f"{stack}_layers_to_keep"]) if plan else ():
            if not slot.kind.fairseqs:
                return (
                    f"{stack} layer {slot.origin} is {slot.letter} ({slot.kind.name}), which fairseq's transformer does not have;"
                    f" only plans of {kinds.listed(kinds.letters_where(fairseqs=True))} can be materialized"
                )
    for option, name in (("normalize_before", "position of LayerNorm"), ("attention_heads", "number of heads")):
        ours = [getattr(model, f"{stack}_{option}") for stack in ("encoder", "decoder")]
        if ours[0] != ours[1]:
            flag = option.replace("_", "-")
            return f"--encoder-{flag} {ours[0]}, --decoder-{flag} {ours[1]}: CTranslate2 needs the same {name} in both stacks"
    return None


def flag_not_in_ctranslate2(model: Any) -> str | None:
    """Return a flag of the training that CTranslate2's Transformer does not support, or None.

    CTranslate2 would ignore some of these flags. Its translations would then differ from fairseq's translations.
    """
    flags = read(ModelFlags, model)
    found = {
        "--cross-self-attention": flags.cross_self_attention,
        "--no-cross-attention": flags.no_cross_attention,
        # Adds a matrix after the embeddings, which CTranslate2 would ignore.
        "--quant-noise-pq": flags.quant_noise_pq,
        "--adaptive-softmax-cutoff": flags.adaptive_softmax_cutoff,
        "--decoder-output-dim": flags.decoder_output_dim != flags.decoder_embed_dim,
    }
    return next((flag for flag, given in found.items() if given), None)
