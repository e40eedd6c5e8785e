"""Tensors that are not what they seem."""
