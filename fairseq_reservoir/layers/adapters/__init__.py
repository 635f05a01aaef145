"""Adapters: small trained changes of frozen matrices (LoRA, VeRA)."""
