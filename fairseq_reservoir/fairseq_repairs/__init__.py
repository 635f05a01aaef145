"""Repairs of the installed fairseq, each applied once, and where its defect can be looked for only where it is found."""
