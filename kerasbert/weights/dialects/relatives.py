"""Names of BERT's relatives without a position table: NEZHA, RoFormer, RoFormer V2, GAU-alpha.

Their blocks and embeddings are named as BERT's (GAU-alpha's blocks are not). NEZHA's and
RoFormer's files hold the same names, so the configuration or `model=` has to tell them apart;
the files of the other two have no norms.
"""

from kerasbert.weights.dialects.google import (
    BERT_BLOCK_ROWS,
    EMBEDDING_ROWS,
    SCOPES,
    TOP_ROWS,
)
from kerasbert.weights.mapping import Dialect, Row, one_stack

_POSITIONS = "bert/embeddings/position_embeddings"
_NORM = "bert/embeddings/LayerNorm/gamma"
_WORDS = "bert/embeddings/word_embeddings"


def _without(rows, *ends):
    return tuple(row for row in rows if not row.theirs.endswith(ends))


NEZHA = Dialect(
    name="nezha",
    title="NEZHA",
    family="nezha",
    or_else=" (or model='roformer', if it is one)",
    top_rows=_without(TOP_ROWS, "/position_embeddings"),
    required=(_WORDS, _NORM),
    forbidden=(_POSITIONS,),
    blocks=one_stack("bert/encoder/layer_{layer}/", BERT_BLOCK_ROWS),
    scopes=SCOPES,
)

_CLASSIFIERS = ("output_weights", "output_bias")

ROFORMER = Dialect(
    name="roformer",
    title="RoFormer",
    family="roformer",
    or_else=" (or model='nezha', if it is one)",
    # Its classifier is that of Hugging Face, which has no names here.
    top_rows=tuple(row for row in NEZHA.top_rows if row.head != "classifier"),
    required=(_WORDS, _NORM),
    forbidden=(_POSITIONS,),
    blocks=one_stack("bert/encoder/layer_{layer}/", BERT_BLOCK_ROWS),
    scopes=SCOPES,
)

_BARE_TOP_ROWS = (
    *_without(EMBEDDING_ROWS, "/position_embeddings", "/gamma", "/beta"),
    Row("Embedding-Mapping/kernel", "bert/encoder/embedding_hidden_mapping_in/kernel", "E H"),
    # Published files have E = H and no such variable; the name is this package's own.
    Row("Output-Mapping/kernel", "cls/predictions/output_mapping/kernel", "H E", head="mlm"),
)

ROFORMER_V2 = Dialect(
    name="roformer_v2",
    title="RoFormer V2",
    family="roformer_v2",
    top_rows=_BARE_TOP_ROWS,
    required=(_WORDS,),
    forbidden=(_POSITIONS, _NORM),
    blocks=one_stack(
        "bert/encoder/layer_{layer}/", _without(BERT_BLOCK_ROWS, "/bias", "/gamma", "/beta")
    ),
    scopes=SCOPES,
)

GAU_ALPHA = Dialect(
    name="gau_alpha",
    title="GAU-alpha",
    family="gau_alpha",
    top_rows=_BARE_TOP_ROWS,
    required=(_WORDS,),
    blocks=one_stack(
        "GAU_alpha/encoder/layer_{layer}/gau/",
        (
            Row("attention/i_dense/kernel", "i_dense/kernel", "H 2I+S"),
            Row("attention/o_dense/kernel", "o_dense/kernel", "I H"),
            Row("attention/q_scaleoffset/gamma", "q_scaleoffset/gamma", "S"),
            Row("attention/k_scaleoffset/gamma", "k_scaleoffset/gamma", "S"),
        ),
    ),
    scopes=(*SCOPES, "GAU_alpha/"),
)
