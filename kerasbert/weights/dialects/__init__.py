"""The name tables. Names of checkpoint variables stand in this folder and nowhere else."""

from kerasbert.weights.dialects import gpt, huggingface
from kerasbert.weights.dialects.albert_zh import ALBERT_ZH, ALBERT_ZH_UNSHARED
from kerasbert.weights.dialects.electra import (
    ELECTRA,
    ELECTRA_GENERATOR,
    ELECTRA_GENERATOR_UNTIED,
)
from kerasbert.weights.dialects.google import GOOGLE_ALBERT, GOOGLE_BERT
from kerasbert.weights.dialects.relatives import GAU_ALPHA, NEZHA, ROFORMER, ROFORMER_V2
from kerasbert.weights.dialects.t5 import HUGGING_FACE_T5, MT5, T5

# Where two know equally many names of a file, the first is taken. It is also the one in which
# models of its family are written: a generator is written alone, so with its own embeddings.
DIALECTS = (
    GOOGLE_BERT,
    GOOGLE_ALBERT,
    ALBERT_ZH,
    ALBERT_ZH_UNSHARED,
    ELECTRA,
    ELECTRA_GENERATOR_UNTIED,
    ELECTRA_GENERATOR,
    *gpt.ALL,
    T5,
    MT5,
    NEZHA,
    ROFORMER,
    ROFORMER_V2,
    GAU_ALPHA,
    *huggingface.ALL,
    HUGGING_FACE_T5,
)


def dialects_to_write(hugging_face):
    """Returns a dict from each family to the dialect in which its models are written.

    Args:
        hugging_face: whether that of transformers is meant, or that of the original code.
    """
    first = {}
    for dialect in DIALECTS:
        if dialect.hugging_face == hugging_face:
            first.setdefault(dialect.family, dialect)
    return first
