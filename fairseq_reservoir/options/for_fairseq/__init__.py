"""The options in the form that fairseq registers: fairseq's dataclasses with our flags, and architecture functions. Imports fairseq."""
