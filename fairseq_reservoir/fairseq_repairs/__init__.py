"""Repairs of the installed fairseq, each applied only where its defect is found."""
