"""The flags for pretrained token embeddings."""

from dataclasses import dataclass
from typing import Optional

from .flags import Flags, option

_WORD_VECTORS = "initial word vectors, in word2vec's text format, as written by fairseq-reservoir dump-embeddings"


@dataclass
class WordVectorOptions(Flags):
    """The flag for word vectors. Our language models have it, fairseq's language models do not."""

    decoder_embed_path: Optional[str] = option(None, _WORD_VECTORS, "FILE")


@dataclass
class RobertaVectorOptions(Flags):
    """The flags for pretrained token embeddings of a RoBERTa."""

    mask_embeddings_from: Optional[str] = option(
        None,
        "start from the token and position embeddings of this checkpoint of a RoBERTa (of fairseq or of this package). The checkpoint must "
        "have the width and the dictionary of the new model. The file is read only when training starts",
        "CHECKPOINT",
    )
    encoder_embed_path: Optional[str] = option(None, _WORD_VECTORS, "FILE")
