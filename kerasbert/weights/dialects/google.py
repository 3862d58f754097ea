"""Names of google-research/bert and google-research/albert.

The same names stand in the checkpoints of HFL, of Zhuiyi's BERTs and RoBERTas, and of
the albert_tiny and albert_small "google" releases of albert_zh.
"""

from kerasbert.weights.mapping import Dialect, Row, dense, norm, one_stack


def _transposed(ours, theirs, dims):
    """The rows of a fine-tuned head, whose weights BERT's scripts keep as [labels, width]."""
    return (
        Row(f"{ours}/kernel", f"{theirs}_weights", dims, "classifier", transpose=True),
        Row(f"{ours}/bias", f"{theirs}_bias", dims.split()[0], "classifier"),
    )


SCOPES = ("bert/embeddings/", "bert/encoder/")

HEAD_ROWS = (
    *dense("Pooler-Dense", "bert/pooler/dense", "H H", head="pooler"),
    Row("NSP-Proba/kernel", "cls/seq_relationship/output_weights", "2 H", "nsp", transpose=True),
    Row("NSP-Proba/bias", "cls/seq_relationship/output_bias", "2", "nsp"),
    *dense("MLM-Dense", "cls/predictions/transform/dense", "H W", head="mlm"),
    *norm("MLM-Norm", "cls/predictions/transform/LayerNorm", "W", head="mlm"),
    Row("MLM-Bias/bias", "cls/predictions/output_bias", "V", "mlm", vocab=True),
    *_transposed("Classifier", "output", "C H"),
    *_transposed("Span-Classifier", "cls/squad/output", "2 H"),
)

EMBEDDING_ROWS = (
    Row("Embedding-Token/embeddings", "bert/embeddings/word_embeddings", "V E", vocab=True),
    Row("Embedding-Segment/embeddings", "bert/embeddings/token_type_embeddings", "T W"),
    Row("Embedding-Position/embeddings", "bert/embeddings/position_embeddings", "P W"),
    *norm("Embedding-Norm", "bert/embeddings/LayerNorm", "W"),
)

TOP_ROWS = (
    *EMBEDDING_ROWS,
    *dense("Embedding-Mapping", "bert/encoder/embedding_hidden_mapping_in", "E H"),
    *HEAD_ROWS,
)

BERT_BLOCK_ROWS = (
    *dense("attention/query", "attention/self/query", "H H"),
    *dense("attention/key", "attention/self/key", "H H"),
    *dense("attention/value", "attention/self/value", "H H"),
    *dense("attention/output", "attention/output/dense", "H H"),
    *norm("attention/norm", "attention/output/LayerNorm", "H"),
    *dense("feed_forward/intermediate", "intermediate/dense", "H I"),
    *dense("feed_forward/output", "output/dense", "I H"),
    *norm("feed_forward/norm", "output/LayerNorm", "H"),
)

ALBERT_BLOCK_ROWS = (
    *dense("attention/query", "attention_1/self/query", "H H"),
    *dense("attention/key", "attention_1/self/key", "H H"),
    *dense("attention/value", "attention_1/self/value", "H H"),
    *dense("attention/output", "attention_1/output/dense", "H H"),
    *norm("attention/norm", "LayerNorm", "H"),
    *dense("feed_forward/intermediate", "ffn_1/intermediate/dense", "H I"),
    *dense("feed_forward/output", "ffn_1/intermediate/output/dense", "I H"),
    *norm("feed_forward/norm", "LayerNorm_1", "H"),
)

GOOGLE_BERT = Dialect(
    name="google_bert",
    title="Google BERT",
    family="bert",
    top_rows=TOP_ROWS,
    required=("bert/embeddings/word_embeddings",),
    blocks=one_stack("bert/encoder/layer_{layer}/", BERT_BLOCK_ROWS),
    scopes=SCOPES,
)

GOOGLE_ALBERT = Dialect(
    name="google_albert",
    title="Google ALBERT",
    family="albert",
    or_else=" or model='albert_unshared'",
    top_rows=TOP_ROWS,
    required=("bert/embeddings/word_embeddings",),
    blocks=one_stack(
        "bert/encoder/transformer/group_{group}/inner_group_{inner}/", ALBERT_BLOCK_ROWS
    ),
    scopes=SCOPES,
)
