"""Train the runs of a grid file on this machine or with Slurm. Needs no torch."""
