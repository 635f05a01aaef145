"""The options in the form that fairseq registers: its dataclasses with our flags, and architecture functions. Needs fairseq."""
