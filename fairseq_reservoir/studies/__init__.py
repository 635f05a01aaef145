"""Tools for studies of many runs: sweeps that train them, and reports that compare them. They import neither torch nor fairseq."""
