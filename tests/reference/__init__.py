"""The judge of the package's numbers: a forward pass that shares no code with it."""
