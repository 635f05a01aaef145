"""Repair of ``--diverse-beam-groups``, a beam search in groups of beams that differ."""

from fairseq.search import DiverseBeamSearch

from .repair import repair, wrap


@repair("diverse-beams")
def find_overlaps_of_each_sentence():
    """Let ``--diverse-beam-groups`` search in every batch.

    The search stores how much the groups overlap, with a row for each sentence of the batch. fairseq indexes these rows by the numbers of
    the sentences in the data set. It ends in an IndexError, or reads the row of another sentence.
    """

    def step(original, search, step, lprobs, scores, prev_output_tokens=None, original_batch_idxs=None):
        if step == 0:
            search.first_ids = original_batch_idxs
        # Finished sentences leave the batch, but their rows remain.
        rows = (original_batch_idxs.unsqueeze(1) == search.first_ids).long().argmax(1)
        return original(search, step, lprobs, scores, prev_output_tokens, rows)

    wrap(DiverseBeamSearch, "step", step)
