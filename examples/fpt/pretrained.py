"""Read pretrained blocks from GPT-2 in Hugging Face's format or from a language model of fairseq, with the names of ``model.Blocks``."""

import json
from pathlib import Path
from typing import NamedTuple

from fairseq import checkpoint_utils
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fairseq_reservoir.errors import InputError

# GPT-2's activation functions, and fairseq's names for them. gelu_new is the approximation of GELU by tanh.
ACTIVATIONS = {"gelu_new": "gelu_accurate", "gelu": "gelu", "relu": "relu"}
# Values of config.json for which the layers of fairseq and GPT-2 are the same.
SAME_LAYERS = {
    "model_type": "gpt2",
    "layer_norm_epsilon": 1e-5,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
}
PADDING_ROWS = 2  # a table of learned positions in fairseq starts with two rows that no token uses


class Pretrained(NamedTuple):
    """Sizes of a pretrained model, as flags of ``model.BlocksConfig``, and its tensors, without token embeddings."""

    sizes: dict[str, int | str]
    tensors: dict[str, Tensor]


def read_gpt2(folder: str) -> Pretrained:
    """Read GPT-2 from a folder with config.json and one or more .safetensors files.

    A block of GPT-2 is fairseq's decoder layer with LayerNorms before attention and feed-forward block. GPT-2 stores its matrices
    transposed, and the matrices of queries, keys and values as one matrix.

    Raises:
        InputError: the folder lacks a file or a tensor, or its model is not GPT-2 with the usual options.
    """
    path = Path(folder, "config.json")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"--from-gpt2 {folder}: config.json cannot be read ({error})") from error
    for field, value in SAME_LAYERS.items():
        if config.get(field, value) != value:
            raise InputError(
                f"--from-gpt2 {folder}: {field} is {config[field]!r} in config.json, but must be {value!r}"
            )
    activation = config.get("activation_function", "gelu_new")
    if activation not in ACTIVATIONS:
        raise InputError(
            f"--from-gpt2 {folder}: activation_function {activation!r} is not one of {', '.join(ACTIVATIONS)}"
        )
    given = _read_safetensors(folder)
    width = config["n_embd"]
    sizes = {
        "decoder_layers": config["n_layer"],
        "decoder_embed_dim": width,
        "decoder_ffn_embed_dim": config.get("n_inner") or 4 * width,
        "decoder_attention_heads": config["n_head"],
        "activation_fn": ACTIVATIONS[activation],
    }
    try:
        tensors = {"embed_positions.weight": given["wpe.weight"]}
        for part in ("weight", "bias"):
            tensors[f"layer_norm.{part}"] = given[f"ln_f.{part}"]
            for depth in range(config["n_layer"]):
                tensors |= _block(given, depth, part)
    except KeyError as error:
        raise InputError(f"--from-gpt2 {folder}: the tensor {error.args[0]} is missing") from error
    return Pretrained(sizes, tensors)


def _block(given: dict[str, Tensor], depth: int, part: str) -> dict[str, Tensor]:
    """Weights or biases of one block. ``t`` transposes a matrix and leaves a bias as it is."""
    there, here = f"h.{depth}", f"layers.{depth}"
    transposed = {"attn.c_proj": "self_attn.out_proj", "mlp.c_fc": "fc1", "mlp.c_proj": "fc2"}
    norms = {"ln_1": "self_attn_layer_norm", "ln_2": "final_layer_norm"}
    projections = zip("qkv", given[f"{there}.attn.c_attn.{part}"].t().chunk(3))
    return {
        **{f"{here}.self_attn.{name}_proj.{part}": tensor for name, tensor in projections},
        **{f"{here}.{ours}.{part}": given[f"{there}.{theirs}.{part}"].t() for theirs, ours in transposed.items()},
        **{f"{here}.{ours}.{part}": given[f"{there}.{theirs}.{part}"] for theirs, ours in norms.items()},
    }


def _read_safetensors(folder: str) -> dict[str, Tensor]:
    """Tensors of all .safetensors files of a folder, without the prefix that GPT-2 with an output layer adds to names."""
    files = sorted(Path(folder).glob("*.safetensors"))
    if not files:
        raise InputError(
            f"--from-gpt2 {folder}: no .safetensors file; convert pytorch_model.bin with transformers' save_pretrained"
        )
    tensors = {}
    for path in files:
        try:
            with safe_open(path, framework="pt") as file:
                tensors |= {name.removeprefix("transformer."): file.get_tensor(name) for name in file.keys()}
        except (OSError, SafetensorError) as error:
            raise InputError(f"--from-gpt2 {folder}: {path.name} cannot be read ({error})") from error
    return tensors


def read_language_model(path: str) -> Pretrained:
    """Read a checkpoint of ``reservoir_transformer_lm``, or of fairseq's ``transformer_lm`` with LayerNorms before the blocks.

    Raises:
        InputError: the checkpoint has no such model, or no learned positions.
    """
    state = checkpoint_utils.load_checkpoint_to_cpu(path)
    model, tensors = state["cfg"]["model"], state["model"]
    stack = "decoder."
    if f"{stack}embed_positions.weight" not in tensors or f"{stack}layer_norm.weight" not in tensors:
        raise InputError(
            f"--from-lm {path}: needs a language model with --decoder-learned-pos and LayerNorms before the blocks"
        )
    names = ("decoder_layers", "decoder_embed_dim", "decoder_ffn_embed_dim", "decoder_attention_heads", "activation_fn")
    kept = {
        name.removeprefix(stack): tensor
        for name, tensor in tensors.items()
        if name.startswith((f"{stack}layers.", f"{stack}layer_norm.", f"{stack}embed_positions."))
    }
    kept["embed_positions.weight"] = kept["embed_positions.weight"][PADDING_ROWS:]
    return Pretrained({name: model[name] for name in names}, kept)
