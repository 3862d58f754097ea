"""Names of google-research/electra: both towers stand in one pre-training checkpoint.

Embeddings are the discriminator's unless the generator was given its own. Blocks have
BERT's inner names.
"""

from dataclasses import replace

from kerasbert.weights.dialects.google import BERT_BLOCK_ROWS
from kerasbert.weights.mapping import Dialect, Row, dense, norm, one_stack


def _embedding_rows(scope):
    return (
        Row("Embedding-Token/embeddings", f"{scope}word_embeddings", "V E", vocab=True),
        Row("Embedding-Segment/embeddings", f"{scope}token_type_embeddings", "T E"),
        Row("Embedding-Position/embeddings", f"{scope}position_embeddings", "P E"),
        *norm("Embedding-Norm", f"{scope}LayerNorm", "E"),
    )


_GENERATOR_HEAD = (
    *dense("MLM-Dense", "generator_predictions/dense", "H E", head="mlm"),
    *norm("MLM-Norm", "generator_predictions/LayerNorm", "E", head="mlm"),
    Row("MLM-Bias/bias", "generator_predictions/output_bias", "V", "mlm", vocab=True),
)

ELECTRA = Dialect(
    name="google_electra",
    title="Google ELECTRA (discriminator)",
    family="electra",
    top_rows=(
        *_embedding_rows("electra/embeddings/"),
        *dense("Embedding-Mapping", "electra/embeddings_project", "E H"),
        *dense("Discriminator-Dense", "discriminator_predictions/dense", "H H", "discriminator"),
        *dense(
            "Discriminator-Prediction", "discriminator_predictions/dense_1", "H 1", "discriminator"
        ),
    ),
    required=("electra/embeddings/word_embeddings",),
    blocks=one_stack("electra/encoder/layer_{layer}/", BERT_BLOCK_ROWS),
    scopes=("electra/",),
    plain_classifier=True,
    task_rows=(
        *dense("Classifier", "task_specific/{task}/dense", "H C", "classifier"),
        *dense("Token-Classifier", "task_specific/{task}/dense", "H C", "classifier"),
    ),
)

ELECTRA_GENERATOR = Dialect(
    name="google_electra_generator",
    title="Google ELECTRA (generator)",
    family="electra_generator",
    top_rows=(
        *_embedding_rows("electra/embeddings/"),
        *dense("Embedding-Mapping", "generator/embeddings_project", "E H"),
        *_GENERATOR_HEAD,
    ),
    required=("electra/embeddings/word_embeddings",),
    blocks=one_stack("generator/encoder/layer_{layer}/", BERT_BLOCK_ROWS),
    scopes=("generator/",),
)

ELECTRA_GENERATOR_UNTIED = replace(
    ELECTRA_GENERATOR,
    name="google_electra_generator_untied",
    title="Google ELECTRA (generator with embeddings of its own)",
    top_rows=(
        *_embedding_rows("generator/embeddings/"),
        *dense("Embedding-Mapping", "generator/embeddings_project", "E H"),
        *_GENERATOR_HEAD,
    ),
    required=("generator/embeddings/word_embeddings",),
)
