"""Time to translate one batch, for several models in one process, in interleaved pairs.

Every model is built from its flags and prepared as in fairseq-generate, which folds masks. All translate the same random sentences
by fairseq's beam search. All hypotheses have the same number of tokens, because untrained models would stop at random. ``pairs``
describes the comparison.

  python benchmarks/generation_time.py
  python benchmarks/generation_time.py --arm "plain: --arch transformer ..." --arm "masked: --arch supermask_..."
"""

import argparse
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import models, pairs  # noqa: E402

PROMISED_RATIO = 1.02
SIZES = (
    "--encoder-embed-dim 256 --encoder-ffn-embed-dim 1024 --encoder-layers 4 --decoder-layers 2"
    " --encoder-attention-heads 4 --decoder-attention-heads 4"
)
DEFAULT_ARMS = (f"plain: --arch transformer {SIZES}", f"masked: --arch supermask_one_layer_transformer {SIZES}")


class Arm:
    """A model and its beam search.

    Args:
        name: name in the table.
        flags: flags of fairseq-train. Only those of the model matter.
        shape: options of the benchmark's command line.
    """

    def __init__(self, name, flags, shape):
        self.name, self.flags = name, flags
        cfg, self.task, model = models.build(flags, shape)
        search = cfg.generation
        search.beam, search.min_len, search.max_len_a, search.max_len_b = shape.beam, shape.length, 0, shape.length
        model.prepare_for_inference_(cfg)
        self.models = [model.to(shape.device)]
        self.clock = pairs.clock_of(shape)
        self.generator = self.task.build_generator(self.models, search)
        net_input = models.random_batch(self.task.source_dictionary, shape)["net_input"]
        self.batch = {"net_input": {name: tensor.to(shape.device) for name, tensor in net_input.items()}}

    def translate(self):
        """Return the hypotheses of every sentence from fairseq's beam search."""
        return self.task.inference_step(self.generator, self.models, self.batch)

    def step(self):
        """Translate the batch. Return its seconds."""
        started = self.clock()
        self.translate()
        if self.models[0].encoder.embed_tokens.weight.is_cuda:
            torch.cuda.synchronize()
        return self.clock() - started


def read_arguments(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    pairs.add_arguments(parser, "generation_time", pairs=40)
    pairs.add_arms(parser, at_most=PROMISED_RATIO)
    parser.add_argument("--max-tokens", type=int, default=400, help="source tokens of the batch (default 400)")
    parser.add_argument("--beam", type=int, default=5, help="default 5")
    given = parser.parse_args(arguments)
    if given.arm is None:
        given.arm, given.promise = list(map(pairs.name_and_flags, DEFAULT_ARMS)), given.promise or "masked"
    pairs.check_arms(parser, given, ("pairs", "length", "max_tokens", "beam", "words"))
    return given


def main(arguments=None):
    given = read_arguments(arguments)
    models.import_plugin(given.threads)
    found = pairs.measure([Arm(name, flags, given) for name, flags in given.arm], given.pairs, given.warm_up)
    batch = f"{models.sentences_of(given)} sentences of {given.length} tokens, hypotheses as long, beam {given.beam}"
    facts = pairs.surroundings(given.device, given.pairs) | {"batch": batch, "words": given.words}
    result = {"surroundings": facts, "arms": found}
    if given.promise:
        result["promise"] = pairs.check_promise(found, given.promise, given.at_most)
    how = f"The batch has {batch}. The dictionary has {given.words:,} words.{pairs.about_clock(given)}"
    pairs.write(given.output, result, pairs.markdown(result, [("seconds per batch", "seconds", ".4f")], how))
    return result


if __name__ == "__main__":
    result = main()
    sys.exit(0 if result.get("promise", {"holds": True})["holds"] else 1)
