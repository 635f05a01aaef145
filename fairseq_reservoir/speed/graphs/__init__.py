"""Training steps as CUDA graphs. Batches are padded to a few shapes, and the step of each shape is recorded once."""
