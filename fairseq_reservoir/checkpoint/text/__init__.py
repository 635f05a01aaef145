"""Text in an export: dictionaries and what cuts text into their words, and the translator that needs nothing else."""
