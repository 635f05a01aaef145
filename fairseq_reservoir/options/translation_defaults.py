"""Default options for translation, on the command line and in Python."""

BEAM = 5
BATCH_SIZE = 128  # lines, or parts of lines
SPLIT_ABOVE = 200  # pieces
MAX_LEN_B = 200  # pieces; as fairseq-generate
LENPEN = 1.0
