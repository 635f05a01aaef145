"""fairseq models and their presets. fairseq imports every file in this folder."""
