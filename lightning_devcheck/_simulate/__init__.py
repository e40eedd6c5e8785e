"""CPU tensors that behave as CUDA tensors."""
