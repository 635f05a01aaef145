"""Groups of flags for ``--help``: the plugin's flags, then fairseq's. Needs neither torch nor fairseq.

fairseq-train prints its ``--help`` before it adds the flags of a model or an optimizer, so its help lacks these flags.
"""

import dataclasses
import textwrap

from ..errors import flag_of
from ..options.command_options import DictionaryOptions, ThreadOptions
from ..options.freeze_skip_options import FreezeSkipOptions
from ..options.layer_options import ReservoirOptions, own_kinds
from ..options.supermask_options import MaskOptions
from ..options.transformer_flags import TRANSFORMER
from ..options.vector_options import RobertaVectorOptions, WordVectorOptions

WIDTH = 100
# Title -> options. A flag of several model families is shown once.
GROUPS = {
    "plan (reservoir_*)": "reservoir_encoder reservoir_decoder",
    "plan by the number of reservoirs (reservoir_*)": (
        "reservoir_count reservoir_decoder_count reservoir_type reservoir_placement"
    ),
    "layers of a plan (reservoir_*)": (
        "reservoir_norm reservoir_train_layernorm rezero reservoir_no_dropout reservoir_kernel_sizes"
    ),
    "freezing: components (reservoir_*, frozen_*; supermask_*: only --freeze, which also freezes masks)": (
        "freeze freeze_except frozen_init reservoir_seed"
    ),
    "freezing: adapters (reservoir_*, frozen_*)": "frozen_adapter frozen_adapter_rank frozen_adapter_scale",
    "masks: what they keep (supermask_*)": (
        "mask_keep_ratio mask_keep_schedule mask_scope mask_scores mask_kind mask_coats"
    ),
    "masks: random weights (supermask_*)": "mask_init_weights mask_share mask_seed",
    "masks: trained and fixed parts (supermask_*)": "mask_layernorm mask_embeddings mask_row_gain mask_pin mask_random",
    "masks: trained matrices instead of masks (supermask_*)": "mask_trained_weights",
    "masks: pretrained embeddings under the masks, instead of random ones (supermask_*)": "mask_embeddings_from",
    "training: pretrained embeddings (all models; --embed-min-coverage: supermask_*)": (
        "encoder_embed_path decoder_embed_path embed_min_coverage"
    ),
    "training: one stack from another model (reservoir_*, frozen_*)": "start_encoder_from start_decoder_from",
    "training: start from a model with another dictionary (any architecture)": "allow_other_dictionary",
    "training: faster frozen layers (reservoir_*)": "frozen_dtype reservoir_fast_dropout",
    "training: fewer passes (reservoir_*, supermask_*, frozen_*)": "fast cuda_graphs cuda_graph_buckets",
    "training: a frozen prefix of the encoder, computed once (reservoir_*, frozen_*)": (
        "freeze_cache freeze_cache_mib freeze_cache_dtype frozen_prefix_no_dropout"
    ),
    "training: threads (any architecture)": "threads",
    "training: no backward pass through frozen layers (reservoir_*)": "backskip backskip_warmup backskip_anneal",
    "training: freezing on a schedule (--optimizer freeze_skip, or freeze_skip_NAME)": (
        "freeze_schedule freeze_progressive freeze_rotate freeze_update_every"
    ),
    "inference: less memory (reservoir_*, supermask_*, frozen_*)": "regenerate_weights",
}


def in_groups() -> str:
    """Format the groups. Each flag of the plugin appears once with its help. fairseq's model flags appear as names only."""
    options = _options()
    parts = [
        "Brackets contain the architectures that have the flags. In frozen_A, A stands for any fairseq architecture."
    ]
    parts += _own_kinds()
    for title, names in GROUPS.items():
        parts.append("\n".join([f"{title}:", *(_explained(options[name]) for name in names.split())]))
    return "\n\n".join([*parts, _of_fairseq(options)])


def _own_kinds() -> list[str]:
    """A group with the layer kinds that a ``--user-dir`` has registered; an empty list if it has registered none."""
    rows = [f"  {line}" for line in own_kinds()]
    return ["\n".join(["plan: letters of your --user-dir (reservoir_*):", *rows])] if rows else []


def _options() -> dict[str, dataclasses.Field]:
    """Map the name of each option to its field. If several dataclasses define it, use the first, with the longest help."""
    found: dict[str, dataclasses.Field] = {}
    for options in (
        ReservoirOptions,
        MaskOptions,
        RobertaVectorOptions,
        WordVectorOptions,
        FreezeSkipOptions,
        ThreadOptions,
        DictionaryOptions,
    ):
        for option in dataclasses.fields(options):
            found.setdefault(option.name, option)
    return found


def _explained(option: dataclasses.Field) -> str:
    flag = f"  {flag_of(option.name)} {option.metadata['metavar']}".rstrip()
    text = textwrap.wrap(option.metadata["help"], WIDTH - 6, break_on_hyphens=False)
    return "\n".join([flag, *(f"      {line}" for line in text)])


def _of_fairseq(shown) -> str:
    names = (name for name in TRANSFORMER if name not in shown)
    flags = textwrap.fill("  ".join(map(flag_of, names)), WIDTH - 2, break_on_hyphens=False)
    return (
        "fairseq's own flags of the transformer (fairseq-train --help lists the flags of training):\n"
        + textwrap.indent(flags, "  ")
    )
