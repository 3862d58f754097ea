"""What bert4keras has under this name, from where it stands here."""

from kerasbert.generation import AutoRegressiveDecoder

__all__ = ["AutoRegressiveDecoder"]
