"""Tools for studies of many runs: sweeps that train them, and reports that compare them. They need no torch and no fairseq."""
