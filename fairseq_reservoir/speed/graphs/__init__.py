"""Training steps as CUDA graphs: batches are padded to a few shapes, and each shape is captured once."""
