"""Repairs of the installed fairseq. Each is applied once; where its defect is cheap to detect, only if it is there."""
