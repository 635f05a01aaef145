"""Beam search with one CUDA graph per decoder step: ``--cuda-graphs`` of fairseq-generate and fairseq-interactive.

In each step, fairseq's ``SequenceGenerator`` starts hundreds of small kernels and waits for the device several times. With a small model,
the GPU is therefore mostly idle. ``generator`` has a subclass of ``SequenceGenerator`` that finds the same hypotheses. ``decoder_step``
and ``search_step`` compute one step with tensors of fixed shapes (``state``), and never wait for the device. ``engine`` captures the step
once per shape (``buckets``) and replays it. ``hypotheses`` reads the hypotheses from the last state.
"""
