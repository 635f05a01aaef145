"""Repairs of the installed fairseq. Each repair is applied once.

If the defect is cheap to detect, its repair is applied only to versions of fairseq and its libraries that have the defect.
"""
