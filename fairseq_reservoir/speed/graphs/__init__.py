"""Training steps as CUDA graphs: batches are padded to a few shapes, and the step of each shape is recorded once."""
