"""The names of torch that are answered for the devices."""
