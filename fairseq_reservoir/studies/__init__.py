"""Tools for studies of many runs: sweeps that train them, and reports that compare them. The tools import neither torch nor fairseq."""
