"""Writing text: token by token, with a memory for what was read already."""

from kerasbert.generation.generate import generate, stream

__all__ = ["generate", "stream"]
