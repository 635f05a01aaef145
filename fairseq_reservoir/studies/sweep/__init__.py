"""Sweeps: train the runs of a grid file on this machine or with Slurm. Does not import torch."""
