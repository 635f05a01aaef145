"""Many runs from one grid file: which they are, their folders, and how they are run, here or by Slurm. Needs no torch."""
