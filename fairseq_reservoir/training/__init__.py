"""What the plugin adds to fairseq's training: hooks, checks, the freeze-and-skip optimizer."""
