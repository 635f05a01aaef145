"""Repairs of the installed fairseq. Each repair is applied once.

If a defect can be detected cheaply, the repair is applied only if the installed version of fairseq or of a library has the defect.
"""
