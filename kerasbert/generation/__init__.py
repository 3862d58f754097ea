"""Writing text: decoders that run a model again and again, one token at a time."""

from kerasbert.generation.decoder import AutoRegressiveDecoder

__all__ = ["AutoRegressiveDecoder"]
