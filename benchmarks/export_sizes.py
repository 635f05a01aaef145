"""Bytes of exports beside the entropy of what they store: of untrained models, plain and compact.

Nothing is trained: a mask keeps as many entries before training as after it, and half of what is signed is negative. What training
changes is not seen here: signs may become uneven, and trained numbers get other exponents; ``fairseq-reservoir size EXPORT`` prints
the same figures of a trained model. To vectors, which begin as ones or zeros, normal numbers of deviation 0.1 are added.

masks, bits: entropy of an entry of a mask, as counted;
entropy: bytes of the entropy of all tensors of the export, masks entry by entry and numbers byte by byte;
plain, compact: the file without and with --compact;
description: bytes of the compact file that are no tensor: configuration, slot table, hashes, names, counts;
ratio: the compact file to the entropy.

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
from fairseq_reservoir.checkpoint import compact, entropy_code, packed_file  # noqa: E402
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
    """Writes what fairseq-train would save of a model of these flags before its first update."""
    config, _, model = models.build(flags, given)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn(parameter.shape))
    config.task.data = None  # the dummy task has none, and a checkpoint always names it
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
    """The figures of a row."""
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
        "description": size - packed_file.stored_bytes(small),
        "ratio": size / written.entropy_bytes,
    }


def row(found):
    masks = "" if found["masks"] is None else f"{found['masks']:.3f}"
    sizes = [f"{found[key]:,}" for key in ("entropy", "plain", "compact", "description")]
    return "| " + " | ".join([found["arm"], masks, *sizes, f"{found['ratio']:.3f}"]) + " |"


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    pairs.add_models(parser)
    parser.add_argument("--dtype", choices=list(WIDTHS), default="fp16", help="of what is not random (default fp16)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--output", type=Path, default=Path("runs/export_sizes"), help="prefix of the .json and the .md file"
    )
    given = parser.parse_args(None if words is None else list(map(str, words)))
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
        f"Bytes; {given.words:,} words, --dtype {given.dtype}. Commit {facts['commit']}, torch {facts['torch']}, {facts['fairseq']}."
    )
    lines += ["", *(f"    {found['arm']}: {found['flags']}" for found in results)]
    pairs.write(given.output, {"surroundings": facts, "arms": results}, "\n".join(lines) + "\n")
    return {"surroundings": facts, "arms": results}


if __name__ == "__main__":
    main()
