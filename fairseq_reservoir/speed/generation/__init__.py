"""Beam search in which one step of the decoder is one CUDA graph: ``--cuda-graphs`` of fairseq-generate and fairseq-interactive.

fairseq's ``SequenceGenerator`` starts hundreds of small kernels per step and waits for the device several times, so that small models
leave a GPU idle. ``generator`` has a subclass with the same hypotheses. ``decoder_step`` and ``search_step`` compute one step with
tensors of fixed shapes (``state``), without a wait. ``graphs`` captures the step once per shape (``buckets``) and replays it.
``hypotheses`` reads the result.
"""
