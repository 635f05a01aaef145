"""The flags that give a model token vectors to start from."""

from dataclasses import dataclass
from typing import Optional

from .flags import Flags, option

_WORD_VECTORS = (
    "word vectors to start from, in word2vec's text format, as fairseq-reservoir dump-embeddings writes them"
)


@dataclass
class WordVectorOptions(Flags):
    """The flags that our language models take beside masks and plans, and fairseq's do not."""

    decoder_embed_path: Optional[str] = option(None, _WORD_VECTORS, "FILE")


@dataclass
class RobertaVectorOptions(Flags):
    """The flags that give a RoBERTa its token vectors."""

    mask_embeddings_from: Optional[str] = option(
        None,
        "start from the token vectors and positions of this RoBERTa checkpoint, fairseq's or ours, of the same width and "
        "dictionary; read when training starts, not afterwards",
        "CHECKPOINT",
    )
    encoder_embed_path: Optional[str] = option(None, _WORD_VECTORS, "FILE")
