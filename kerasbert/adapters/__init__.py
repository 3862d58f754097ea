"""Fine-tuning by small additions to a frozen model (LoRA)."""

from kerasbert.adapters.files import load_lora, save_lora
from kerasbert.adapters.lora import add_lora, merge_lora

__all__ = ["add_lora", "load_lora", "merge_lora", "save_lora"]
