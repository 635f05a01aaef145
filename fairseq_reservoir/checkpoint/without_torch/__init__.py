"""Translate an export with CTranslate2. Nothing in this folder imports torch or fairseq."""
