"""Names of the PyTorch models of Hugging Face transformers.

Dense weights are stored [out, in], so kernels are transposed. Layer normalisations are
called weight and bias, gamma and beta in files of the first years. The base model's prefix
("bert.") is absent where the base model was saved alone; heads never have it.
"""

from dataclasses import replace

from kerasbert.weights.mapping import Dialect, Row, one_stack

# A table of sines and cosines, RoFormer's; NEZHA's is the last of the buffers.
WAVES = "encoder.embed_positions.weight"
BUFFERS = ("position_ids", "token_type_ids", WAVES, "positions_encoding")
_POSITIONS = "embeddings.position_embeddings.weight"


def _dense(ours, theirs, dims, head=None, outside=False):
    """The rows of a dense layer; `dims` as stored there, "out in"."""
    out = dims.split()[0]
    return (
        Row(f"{ours}/kernel", f"{theirs}.weight", dims, head, transpose=True, outside=outside),
        Row(f"{ours}/bias", f"{theirs}.bias", out, head, outside=outside),
    )


def _norm(ours, theirs, dims, head=None, outside=False):
    return (
        Row(f"{ours}/gamma", (f"{theirs}.weight", f"{theirs}.gamma"), dims, head, outside=outside),
        Row(f"{ours}/beta", (f"{theirs}.bias", f"{theirs}.beta"), dims, head, outside=outside),
    )


def _masked_lm(dense, norm, biases, decoder, dims):
    """The rows of a masked-LM head whose decoder repeats the token table."""
    return (
        *_dense("MLM-Dense", dense, dims, "mlm", outside=True),
        *_norm("MLM-Norm", norm, dims.split()[0], "mlm", outside=True),
        Row("MLM-Bias/bias", biases, "V", "mlm", vocab=True, outside=True),
        Row(
            "Embedding-Token/embeddings", decoder, "V E", "mlm", vocab=True, outside=True, tied=True
        ),
    )


def _classifiers(sequence=None):
    """The rows of fine-tuned heads; `sequence` are those of texts, where they differ."""
    if sequence is None:
        sequence = _dense("Classifier", "classifier", "C H", "classifier", outside=True)
    return (
        *sequence,
        *_dense("Token-Classifier", "classifier", "C H", "classifier", outside=True),
        *_dense("Span-Classifier", "qa_outputs", "2 H", "classifier", outside=True),
    )


_EMBEDDINGS = (
    Row("Embedding-Token/embeddings", "embeddings.word_embeddings.weight", "V E", vocab=True),
    Row("Embedding-Segment/embeddings", "embeddings.token_type_embeddings.weight", "T E"),
    Row("Embedding-Position/embeddings", "embeddings.position_embeddings.weight", "P E"),
    *_norm("Embedding-Norm", "embeddings.LayerNorm", "E"),
)

_BLOCK = (
    *_dense("attention/query", "attention.self.query", "H H"),
    *_dense("attention/key", "attention.self.key", "H H"),
    *_dense("attention/value", "attention.self.value", "H H"),
    *_dense("attention/output", "attention.output.dense", "H H"),
    *_norm("attention/norm", "attention.output.LayerNorm", "H"),
    *_dense("feed_forward/intermediate", "intermediate.dense", "I H"),
    *_dense("feed_forward/output", "output.dense", "H I"),
    *_norm("feed_forward/norm", "output.LayerNorm", "H"),
)

_SECOND_LAYER = (
    *_dense("Classifier-Dense", "classifier.dense", "H H", "classifier", outside=True),
    *_dense("Classifier", "classifier.out_proj", "C H", "classifier", outside=True),
)


def _dialect(name, family, class_stem, top_rows, **differences):
    settings = {
        "blocks": one_stack("encoder.layer.{layer}.", _BLOCK),
        "required": ("embeddings.word_embeddings.weight",),
        "scopes": ("embeddings.", "encoder."),
        "prefixes": (f"{name}.", ""),
        "buffers": BUFFERS,
        **differences,
    }
    return Dialect(
        name=f"huggingface_{family}",
        title=f"Hugging Face {family}",
        family=family,
        top_rows=top_rows,
        hugging_face=True,
        class_stem=class_stem,
        **settings,
    )


BERT = _dialect(
    "bert",
    "bert",
    "Bert",
    (
        *_EMBEDDINGS,
        *_dense("Pooler-Dense", "pooler.dense", "H H", "pooler"),
        *_dense("NSP-Proba", "cls.seq_relationship", "2 H", "nsp", outside=True),
        *_masked_lm(
            "cls.predictions.transform.dense",
            "cls.predictions.transform.LayerNorm",
            ("cls.predictions.bias", "cls.predictions.decoder.bias"),
            "cls.predictions.decoder.weight",
            "H H",
        ),
        *_classifiers(),
    ),
)

ROBERTA = _dialect(
    "roberta",
    "roberta",
    "Roberta",
    (
        *_EMBEDDINGS,
        *_dense("Pooler-Dense", "pooler.dense", "H H", "pooler"),
        *_masked_lm(
            "lm_head.dense",
            "lm_head.layer_norm",
            ("lm_head.bias", "lm_head.decoder.bias"),
            "lm_head.decoder.weight",
            "H H",
        ),
        *_classifiers(_SECOND_LAYER),
    ),
)

ALBERT = _dialect(
    "albert",
    "albert",
    "Albert",
    (
        *_EMBEDDINGS,
        *_dense("Embedding-Mapping", "encoder.embedding_hidden_mapping_in", "H E"),
        *_dense("Pooler-Dense", "pooler", "H H", "pooler"),
        *_dense("NSP-Proba", "sop_classifier.classifier", "2 H", "nsp", outside=True),
        *_masked_lm(
            "predictions.dense",
            "predictions.LayerNorm",
            ("predictions.bias", "predictions.decoder.bias"),
            "predictions.decoder.weight",
            "E H",
        ),
        *_classifiers(),
    ),
    blocks=one_stack(
        "encoder.albert_layer_groups.{group}.albert_layers.{inner}.",
        (
            *_dense("attention/query", "attention.query", "H H"),
            *_dense("attention/key", "attention.key", "H H"),
            *_dense("attention/value", "attention.value", "H H"),
            *_dense("attention/output", "attention.dense", "H H"),
            *_norm("attention/norm", "attention.LayerNorm", "H"),
            *_dense("feed_forward/intermediate", "ffn", "I H"),
            *_dense("feed_forward/output", "ffn_output", "H I"),
            *_norm("feed_forward/norm", "full_layer_layer_norm", "H"),
        ),
    ),
    forces_projection=True,
    or_else=" or model='albert_unshared'",
)

_ELECTRA_BODY = (
    *_EMBEDDINGS,
    *_dense("Embedding-Mapping", "embeddings_project", "H E"),
)

ELECTRA = _dialect(
    "electra",
    "electra",
    "Electra",
    (
        *_ELECTRA_BODY,
        *_dense(
            "Discriminator-Dense", "discriminator_predictions.dense", "H H", "discriminator", True
        ),
        *_dense(
            "Discriminator-Prediction",
            "discriminator_predictions.dense_prediction",
            "1 H",
            "discriminator",
            True,
        ),
        *_classifiers(_SECOND_LAYER),
    ),
    scopes=("embeddings.", "embeddings_project.", "encoder."),
)

ELECTRA_GENERATOR = _dialect(
    "electra",
    "electra_generator",
    "Electra",
    (
        *_ELECTRA_BODY,
        *_masked_lm(
            "generator_predictions.dense",
            "generator_predictions.LayerNorm",
            ("generator_lm_head.bias",),
            "generator_lm_head.weight",
            "E H",
        ),
    ),
    scopes=("embeddings.", "embeddings_project.", "encoder."),
)

DISTILBERT = _dialect(
    "distilbert",
    "distilbert",
    "DistilBert",
    (
        *_EMBEDDINGS,
        *_masked_lm(
            "vocab_transform",
            "vocab_layer_norm",
            ("vocab_projector.bias",),
            "vocab_projector.weight",
            "H H",
        ),
        *_classifiers(
            (
                *_dense("Classifier-Dense", "pre_classifier", "H H", "classifier", outside=True),
                *_dense("Classifier", "classifier", "C H", "classifier", outside=True),
            )
        ),
    ),
    blocks=one_stack(
        "transformer.layer.{layer}.",
        (
            *_dense("attention/query", "attention.q_lin", "H H"),
            *_dense("attention/key", "attention.k_lin", "H H"),
            *_dense("attention/value", "attention.v_lin", "H H"),
            *_dense("attention/output", "attention.out_lin", "H H"),
            *_norm("attention/norm", "sa_layer_norm", "H"),
            *_dense("feed_forward/intermediate", "ffn.lin1", "I H"),
            *_dense("feed_forward/output", "ffn.lin2", "H I"),
            *_norm("feed_forward/norm", "output_layer_norm", "H"),
        ),
    ),
    scopes=("embeddings.", "transformer."),
)

NEZHA = _dialect(
    "nezha",
    "nezha",
    "Nezha",
    tuple(row for row in BERT.top_rows if row.theirs != _POSITIONS),
    forbidden=(_POSITIONS,),
)

ROFORMER = _dialect(
    "roformer",
    "roformer",
    "RoFormer",
    (
        *(row for row in _EMBEDDINGS if row.theirs != _POSITIONS),
        *_dense("Embedding-Mapping", "embeddings_project", "H E"),
        *_masked_lm(
            "cls.predictions.transform.dense",
            "cls.predictions.transform.LayerNorm",
            ("cls.predictions.bias", "cls.predictions.decoder.bias"),
            "cls.predictions.decoder.weight",
            "E H",
        ),
        *_classifiers(_SECOND_LAYER),
    ),
    scopes=("embeddings.", "embeddings_project.", "encoder."),
    forbidden=(_POSITIONS,),
)


def _conv1d(ours, theirs, dims):
    """The rows of a dense layer whose weight is stored as Keras does, "in out"."""
    return (
        Row(f"{ours}/kernel", f"{theirs}.weight", dims),
        Row(f"{ours}/bias", f"{theirs}.bias", dims.split()[1]),
    )


def _fused(part, *ours):
    """The rows of layers whose kernels stand side by side in one."""
    return tuple(
        replace(row, part=(index, len(ours)))
        for index, layer in enumerate(ours)
        for row in _conv1d(layer, part, "H 3H")
    )


GPT2 = _dialect(
    "transformer",
    "gpt2",
    "GPT2",
    (
        Row("Embedding-Token/embeddings", "wte.weight", "V E", vocab=True),
        Row("Embedding-Position/embeddings", "wpe.weight", "P E"),
        *_norm("Output-Norm", "ln_f", "H"),
        Row(
            "Embedding-Token/embeddings",
            "lm_head.weight",
            "V E",
            "lm",
            vocab=True,
            outside=True,
            tied=True,
        ),
    ),
    blocks=one_stack(
        "h.{layer}.",
        (
            *_fused("attn.c_attn", "attention/query", "attention/key", "attention/value"),
            *_conv1d("attention/output", "attn.c_proj", "H H"),
            *_norm("attention/norm", "ln_1", "H"),
            *_conv1d("feed_forward/intermediate", "mlp.c_fc", "H I"),
            *_conv1d("feed_forward/output", "mlp.c_proj", "I H"),
            *_norm("feed_forward/norm", "ln_2", "H"),
        ),
    ),
    required=("wte.weight",),
    scopes=("wte.", "wpe.", "h.", "ln_f."),
    # The triangle that hides later tokens, and the number it puts there.
    buffers=(".attn.bias", ".attn.masked_bias"),
)

ALL = (BERT, ROBERTA, ALBERT, ELECTRA, ELECTRA_GENERATOR, DISTILBERT, NEZHA, ROFORMER, GPT2)
