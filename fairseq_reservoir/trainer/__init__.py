"""The trainer and its checks before a training. ``install`` puts both in place of fairseq's."""
