"""Names of the early releases of brightmart/albert_zh, older than Google's own ALBERT code.

Blocks have BERT's inner names. Positions, segments and norms are H wide, and the token
table is followed by a second matrix without bias that also serves the masked-LM head.
"""

from kerasbert.weights.dialects.google import BERT_BLOCK_ROWS, EMBEDDING_ROWS, HEAD_ROWS, SCOPES
from kerasbert.weights.mapping import Dialect, Row, one_stack

_TOP_ROWS = (
    *EMBEDDING_ROWS,
    Row("Embedding-Mapping/kernel", "bert/embeddings/word_embeddings_2", "E H"),
    *HEAD_ROWS,
)
_REQUIRED = ("bert/embeddings/word_embeddings", "bert/embeddings/word_embeddings_2")

ALBERT_ZH = Dialect(
    name="albert_zh",
    title="early albert_zh (brightmart)",
    family="albert",
    or_else=" or model='albert_unshared'",
    embedding_order="project_first",
    ln_types=("postln", "preln"),
    top_rows=_TOP_ROWS,
    required=_REQUIRED,
    blocks=one_stack("bert/encoder/layer_shared/", BERT_BLOCK_ROWS),
    scopes=SCOPES,
)

ALBERT_ZH_UNSHARED = Dialect(
    name="albert_zh_unshared",
    title="early albert_zh (brightmart), un-shared",
    family="albert",
    or_else=" or model='albert_unshared'",
    embedding_order="project_first",
    ln_types=("postln", "preln"),
    top_rows=_TOP_ROWS,
    required=_REQUIRED,
    blocks=one_stack("bert/encoder/layer_{layer}/", BERT_BLOCK_ROWS),
    scopes=SCOPES,
    is_unshared=True,
)
