"""Repairs of the installed fairseq. Each is applied once. If its defect is cheap to detect, it is applied only where the defect exists."""
