"""Layers and masks in plain torch and fairseq modules; usable without fairseq's commands."""
