"""A device stores no gradient and no Adam state of frozen tensors: 12 bytes less per parameter at the peak."""

from benchmarks import memory, step_time

FLAGS = (
    "--arch reservoir_transformer --reservoir-decoder L --encoder-embed-dim 64 --encoder-ffn-embed-dim 256"
    " --encoder-attention-heads 2 --decoder-attention-heads 2"
)


def test_frozen_against_trained(device):
    given = step_time.read_arguments(["--max-tokens", "20", "--length", "5", "--words", "20", "--device", device])

    def peak(plan):
        arm, found = memory.peak_of(
            lambda: step_time.Arm(plan, f"{FLAGS} --reservoir-encoder {plan}", given), step_time.MEMORY_STEPS,
            device == "cuda",
        )  # fmt: skip
        return arm.facts["trained"], found

    if device == "cuda":
        peak("L")  # the first products allocate memory for cuBLAS, which is kept
    trained, most = peak("LLL")
    rest, less = peak("LTT")
    frozen = trained - rest
    assert frozen > trained / 3
    assert most - less > 0.9 * 12 * frozen
