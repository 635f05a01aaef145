"""Sizes of exports of untrained models, plain and compact, compared with the entropy of their content.

Untrained models suffice, because training does not change the number of entries that a mask keeps. Two effects of training are not
visible: signs may become unbalanced, and trained numbers get other exponents. ``fairseq-reservoir size EXPORT`` prints the same
numbers for a trained model. Vectors are initially ones or zeros, so we add normal noise of standard deviation 0.1.

masks, bits: empirical entropy of a mask entry;
entropy: entropy of all tensors of the export in bytes, masks per entry and numbers per byte;
plain, compact: size of the file without and with --compact;
description: bytes of the compact file without tensors: configuration, slot table, hashes, names, counts;
ratio: size of the compact file divided by the entropy.

  python benchmarks/export_sizes.py
  python benchmarks/export_sizes.py --dtype fp32 --arm "mine: --arch reservoir_transformer --reservoir-encoder LTFL"
"""

import argparse
import math
import sys
import tempfile
from pathlib import Path

import torch
from omegaconf import OmegaConf

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import models, pairs  # noqa: E402
from fairseq_reservoir.checkpoint import compact, entropy_code, export_file, packed_file  # noqa: E402
from fairseq_reservoir.checkpoint.export import export  # noqa: E402
from fairseq_reservoir.checkpoint.ledger import WIDTHS  # noqa: E402
from fairseq_reservoir.masks import bits  # noqa: E402

MASKED = "--arch supermask_one_layer_transformer"
KINDS = {
    "half": "",
    "keep 0.3": "--mask-keep-ratio 0.3",
    "keep 0.3, pinned 0.3, global": "--mask-keep-ratio 0.3 --mask-pin 0.3 --mask-scope global",
    "signed": "--mask-kind signed",
    "two coats": "--mask-keep-ratio 0.3 --mask-coats 0.1",
    "four signed coats": "--mask-kind signed --mask-keep-ratio 0.8 --mask-coats 0.5,0.25,0.1",
    "keep 0.3, embeddings trained": "--mask-keep-ratio 0.3 --mask-embeddings trained",
    "half, row gain, embeddings of 16 levels": "--mask-row-gain --mask-embeddings 16",
    "trained signs": "--mask-trained-weights sign --mask-share none",
    "trained ternary": "--mask-trained-weights ternary --mask-share none",
    "trained 16 levels": "--mask-trained-weights 16 --mask-share none",
}
SIZES = {
    "128/512, 3+2": "--encoder-embed-dim 128 --encoder-ffn-embed-dim 512 --encoder-layers 3 --decoder-layers 2",
    "256/1024, 4+2": "--encoder-embed-dim 256 --encoder-ffn-embed-dim 1024 --encoder-layers 4 --decoder-layers 2",
}
RESERVOIR = (
    "--arch reservoir_transformer --encoder-embed-dim 256 --encoder-ffn-embed-dim 1024"
    " --reservoir-encoder LTFL --reservoir-decoder LT"
)
DEFAULT_ARMS = (
    *(f"{kind}, {size}: {MASKED} {flags} {shape}" for size, shape in SIZES.items() for kind, flags in KINDS.items()),
    f"reservoirs LTFL+LT, 256/1024: {RESERVOIR}",
)
HEADINGS = ("arm", "masks, bits", "entropy", "plain", "compact", "description", "ratio")


def checkpoint_of(flags, given, path):
    """Write the checkpoint of a model as fairseq-train would before the first update."""
    config, _, model = models.build(flags, given)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn(parameter.shape))
    config.task.data = None  # every checkpoint has this field, but the dummy task does not
    torch.save(
        {
            "cfg": OmegaConf.to_container(config, resolve=True, enum_to_str=True),
            "model": model.state_dict(),
            "optimizer_history": [{"optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 0}],
            "task_state": {},
            "extra_state": {"train_iterator": {"epoch": 1}},
        },
        path,
    )


def sizes_of(checkpoint, dtype):
    """Values of a row of the table."""
    plain, small = (Path(checkpoint).with_suffix(f".{form}.safetensors") for form in ("plain", "compact"))
    written = export(str(checkpoint), str(plain), dtype)
    export(str(checkpoint), str(small), dtype, compact=True)
    body, tensors = packed_file.read(plain)
    entries = entropy = 0.0
    for name, mask in body["masks"].items():
        counts = entropy_code.counts_of(
            bits.unpack(tensors[name], mask["shape"], mask["bits"]).numpy().reshape(-1).view("u1")
        )
        entries, entropy = entries + math.prod(mask["shape"]), entropy + entropy_code.entropy_bits(counts)
    size = small.stat().st_size
    return {
        "masks": entropy / entries if entries else None,
        "entropy": compact.entropy_bytes(body, tensors),
        "plain": written.bytes,
        "compact": size,
        "description": size - export_file.stored_bytes(small),
        "ratio": size / written.entropy_bytes,
    }


def row(found):
    masks = "" if found["masks"] is None else f"{found['masks']:.3f}"
    sizes = [f"{found[key]:,}" for key in ("entropy", "plain", "compact", "description")]
    return "| " + " | ".join([found["arm"], masks, *sizes, f"{found['ratio']:.3f}"]) + " |"


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    pairs.add_models(parser)
    parser.add_argument(
        "--dtype", choices=list(WIDTHS), default="fp16", help="dtype of tensors that are not random (default fp16)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--output", type=Path, default=Path("runs/export_sizes"), help="prefix of the .json and the .md file"
    )
    given = parser.parse_args(None if arguments is None else list(map(str, arguments)))
    pairs.check_positive(parser, given, ("length", "words"))
    given.max_tokens, given.device = given.length, "cpu"
    models.import_plugin(threads=1)
    arms = given.arm or list(map(pairs.name_and_flags, DEFAULT_ARMS))
    results = []
    for name, flags in arms:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "checkpoint.pt"
            checkpoint_of(flags, given, path)
            results.append({"arm": name, "flags": flags} | sizes_of(path, given.dtype))
    facts = pairs.surroundings("cpu", None)
    lines = ["| " + " | ".join(HEADINGS) + " |", "|---" * len(HEADINGS) + "|", *map(row, results), ""]
    lines.append(
        f"Sizes are in bytes, for a dictionary of {given.words:,} words and --dtype {given.dtype}."
        f" Commit {facts['commit']}, torch {facts['torch']}, {facts['fairseq']}."
    )
    lines += ["", *(f"    {found['arm']}: {found['flags']}" for found in results)]
    pairs.write(given.output, {"surroundings": facts, "arms": results}, "\n".join(lines) + "\n")
    return {"surroundings": facts, "arms": results}


if __name__ == "__main__":
    main()
