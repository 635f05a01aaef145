"""Small trained changes (LoRA, VeRA) of matrices that are frozen."""
