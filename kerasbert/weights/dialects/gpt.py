"""Names of GPT and GPT-2 as bert4keras reads them from TensorFlow 1, and of GPT2_ML.

Those of the first two follow google-research/bert; GPT2_ML has Grover's.
"""

from kerasbert.weights.dialects.google import BERT_BLOCK_ROWS
from kerasbert.weights.mapping import Dialect, Row, dense, norm, one_stack

_EMBEDDING_ROWS = (
    Row("Embedding-Token/embeddings", "gpt/embeddings/word_embeddings", "V E", vocab=True),
    Row("Embedding-Position/embeddings", "gpt/embeddings/position_embeddings", "P E"),
)
_BLOCK_ADDRESS = "gpt/transformer/layer_{layer}/"
_SCOPES = ("gpt/",)

GPT = Dialect(
    name="gpt",
    title="GPT",
    family="gpt",
    top_rows=(
        *_EMBEDDING_ROWS,
        Row("Embedding-Segment/embeddings", "gpt/embeddings/token_type_embeddings", "T E"),
    ),
    required=(
        "gpt/embeddings/word_embeddings",
        "gpt/transformer/layer_0/attention/output/LayerNorm/gamma",
    ),
    blocks=one_stack(_BLOCK_ADDRESS, BERT_BLOCK_ROWS),
    scopes=_SCOPES,
)

GPT2 = Dialect(
    name="gpt2",
    title="GPT-2",
    family="gpt2",
    top_rows=(*_EMBEDDING_ROWS, *norm("Output-Norm", "gpt/output/LayerNorm", "H")),
    required=("gpt/embeddings/word_embeddings", "gpt/output/LayerNorm/gamma"),
    blocks=one_stack(
        _BLOCK_ADDRESS,
        (
            *(row for row in BERT_BLOCK_ROWS if "/norm/" not in row.ours),
            *norm("attention/norm", "attention/input/LayerNorm", "H"),
            *norm("feed_forward/norm", "input/LayerNorm", "H"),
        ),
    ),
    scopes=_SCOPES,
)

GPT2_ML = Dialect(
    name="gpt2_ml",
    title="GPT2_ML",
    family="gpt2_ml",
    top_rows=(
        Row("Embedding-Token/embeddings", "newslm/embeddings/word_embed", "V E", vocab=True),
        Row("Embedding-Position/embeddings", "newslm/embeddings/pos_embed", "P E"),
        *norm("Embedding-Norm", "newslm/embeddings/LayerNorm_embed_norm", "E"),
    ),
    required=("newslm/embeddings/word_embed",),
    blocks=one_stack(
        "newslm/layer{layer:02d}/",
        (
            *dense("attention/query", "query_layer", "H H"),
            *dense("attention/key", "key_layer", "H H"),
            *dense("attention/value", "value_layer", "H H"),
            *dense("attention/output", "context_projection_layer", "H H"),
            *norm("feed_forward/inner_norm", "LayerNorm_mlp_ln0", "H"),
            *dense("feed_forward/intermediate", "intermediate", "H I"),
            *dense("feed_forward/output", "output", "I H"),
            *norm("feed_forward/norm", "LayerNorm_mlp_ln1", "H"),
        ),
    ),
    scopes=("newslm/",),
)

ALL = (GPT, GPT2, GPT2_ML)
