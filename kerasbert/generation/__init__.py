"""Writing text: token by token, with a memory for what was read already."""

from kerasbert.generation.decoder import AutoRegressiveDecoder
from kerasbert.generation.generate import generate, stream

__all__ = ["AutoRegressiveDecoder", "generate", "stream"]
