"""Text and tokens: dictionaries, SentencePiece and BPE pieces, and how an export stores them."""
