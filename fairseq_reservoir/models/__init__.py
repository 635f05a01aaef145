"""The models of this package and their presets. fairseq imports every file in this folder."""
