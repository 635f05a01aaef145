"""The models of this package and their presets. fairseq imports every file in this folder.

``build_model`` raises ``errors.InputError`` if an option is invalid, options contradict each other, or a file does not fit the model.
"""
