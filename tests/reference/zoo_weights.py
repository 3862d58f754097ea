"""Random variables for the models of ``zoo``: right names, right shapes, small sizes.

    config = zoo_config("roformer", embedding_size=12)
    arrays = zoo_arrays("roformer", config, seed=0)

The numbers follow ``fixtures.make_arrays``: every variable has a mean of its own, so that one
in another's place shows; gammas lie around 1; matrices are small enough for soft softmaxes.
"""

import numpy as np

from reference.zoo_bare import OUTPUT_MAPPING
from reference.zoo_t5 import LAYOUTS

BERT_LIKE = ("bert", "nezha", "roformer")
FAMILIES = (*BERT_LIKE, "roformer_v2", "gau_alpha", "gpt", "gpt2", "gpt2_ml", *LAYOUTS)

#: Families whose tables may be narrower than their blocks.
NARROW_TABLES = (*BERT_LIKE, "roformer_v2", "gau_alpha")


def zoo_config(family, **overrides):
    """Return a small config; the value ``...`` takes a key away."""
    if family not in FAMILIES:
        raise ValueError(f"unknown family {family!r}; the families are {FAMILIES}")
    config = {
        "vocab_size": 60,
        "hidden_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 40,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "max_position_embeddings": 20,
        "type_vocab_size": 2,
    }
    if family == "roformer_v2":
        config["hidden_act"] = "relu"
    elif family == "gau_alpha":
        config |= {"hidden_act": "swish", "num_attention_heads": 1, "attention_key_size": 8}
    elif family in LAYOUTS:
        gated = family != "t5.1.0"
        config |= {
            "hidden_act": ["gelu", "linear"] if gated else "relu",
            "relative_attention_num_buckets": 32,
        }
        del config["max_position_embeddings"], config["type_vocab_size"]
    return {key: value for key, value in (config | overrides).items() if value is not ...}


# ---- names and shapes --------------------------------------------------------------------------


def sizes(config):
    """Return the widths of all queries together, and of all values together."""
    heads = config["num_attention_heads"]
    head = config.get("attention_head_size") or config["hidden_size"] // heads
    return heads * (config.get("attention_key_size") or head), heads * head


def dense_shapes(scope, inputs, outputs, bias=True):
    shapes = {f"{scope}/kernel": (inputs, outputs)}
    return shapes | ({f"{scope}/bias": (outputs,)} if bias else {})


def norm_shapes(scope, size, condition=None, hidden=None):
    """A layer normalisation; with a condition of that size, and a hidden layer before it."""
    shapes = {f"{scope}/beta": (size,), f"{scope}/gamma": (size,)}
    if condition is None:
        return shapes
    if hidden is not None:
        shapes[f"{scope}/hidden_dense/kernel"] = (condition, hidden)
    for part in ("beta", "gamma"):
        shapes[f"{scope}/{part}_dense/kernel"] = (hidden or condition, size)
    return shapes


def block_shapes(scope, config, bias=True, norms=(), **conditional):
    """A block under BERT's names; ``norms`` are the ends of its normalisations' names."""
    hidden, wide = config["hidden_size"], config["intermediate_size"]
    queries, values = sizes(config)
    shapes = {}
    for name, width in (("query", queries), ("key", queries), ("value", values)):
        shapes |= dense_shapes(f"{scope}/attention/self/{name}", hidden, width, bias)
    shapes |= dense_shapes(f"{scope}/attention/output/dense", values, hidden, bias)
    shapes |= dense_shapes(f"{scope}/intermediate/dense", hidden, wide, bias)
    shapes |= dense_shapes(f"{scope}/output/dense", wide, hidden, bias)
    for name in norms:
        shapes |= norm_shapes(f"{scope}/{name}", hidden, **conditional)
    return shapes


def table_shapes(scope, config, width, *kinds):
    rows = {"word": "vocab_size", "token_type": "type_vocab_size"}
    return {
        f"{scope}/{kind}_embeddings": (config[rows.get(kind, "max_position_embeddings")], width)
        for kind in kinds
    }


def bert_shapes(family, config, condition=None, hidden=None, shared_segments=False):
    """BERT, NEZHA, RoFormer with pooler and heads."""
    conditional = {"condition": condition, "hidden": hidden}
    width, vocab_size = config["hidden_size"], config["vocab_size"]
    narrow = config.get("embedding_size", width)
    kinds = ["word"] + ([] if shared_segments else ["token_type"])
    kinds += ["position"] if family == "bert" else []
    shapes = table_shapes("bert/embeddings", config, narrow, *kinds)
    shapes |= norm_shapes("bert/embeddings/LayerNorm", narrow, **conditional)
    if narrow != width:
        shapes |= dense_shapes("bert/encoder/embedding_hidden_mapping_in", narrow, width)
    ends = ("attention/output/LayerNorm", "output/LayerNorm")
    for i in range(config["num_hidden_layers"]):
        shapes |= block_shapes(f"bert/encoder/layer_{i}", config, norms=ends, **conditional)
    shapes |= dense_shapes("bert/pooler/dense", width, width)
    shapes |= dense_shapes("cls/predictions/transform/dense", width, narrow)
    shapes |= norm_shapes("cls/predictions/transform/LayerNorm", narrow, **conditional)
    return shapes | {
        "cls/predictions/output_bias": (vocab_size,),
        "cls/seq_relationship/output_weights": (2, width),
        "cls/seq_relationship/output_bias": (2,),
    }


def bare_shapes(family, config):
    """RoFormer V2 and GAU-alpha: matrices, and GAU-alpha's gammas."""
    width = config["hidden_size"]
    narrow = config.get("embedding_size", width)
    shapes = table_shapes("bert/embeddings", config, narrow, "word", "token_type")
    if narrow != width:
        mapping = "bert/encoder/embedding_hidden_mapping_in"
        shapes |= dense_shapes(mapping, narrow, width, bias=False)
        shapes |= dense_shapes(OUTPUT_MAPPING, width, narrow, bias=False)
    for i in range(config["num_hidden_layers"]):
        if family == "roformer_v2":
            shapes |= block_shapes(f"bert/encoder/layer_{i}", config, bias=False)
            continue
        units, key_size = config["intermediate_size"], config["attention_key_size"]
        scope = f"GAU_alpha/encoder/layer_{i}/gau"
        shapes |= dense_shapes(f"{scope}/i_dense", width, 2 * units + key_size, bias=False)
        shapes |= dense_shapes(f"{scope}/o_dense", units, width, bias=False)
        shapes |= {f"{scope}/{part}_scaleoffset/gamma": (key_size,) for part in "qk"}
    return shapes


def gpt_shapes(family, config):
    """GPT and GPT-2."""
    width = config["hidden_size"]
    kinds = ["word", "position"] + (["token_type"] if family == "gpt" else [])
    shapes = table_shapes("gpt/embeddings", config, width, *kinds)
    side = "output" if family == "gpt" else "input"
    for i in range(config["num_hidden_layers"]):
        ends = (f"attention/{side}/LayerNorm", f"{side}/LayerNorm")
        shapes |= block_shapes(f"gpt/transformer/layer_{i}", config, norms=ends)
    return shapes | (norm_shapes("gpt/output/LayerNorm", width) if family == "gpt2" else {})


def gpt2_ml_shapes(config):
    hidden, wide = config["hidden_size"], config["intermediate_size"]
    queries, values = sizes(config)
    shapes = {
        "newslm/embeddings/word_embed": (config["vocab_size"], hidden),
        "newslm/embeddings/pos_embed": (config["max_position_embeddings"], hidden),
        **norm_shapes("newslm/embeddings/LayerNorm_embed_norm", hidden),
    }
    for i in range(config["num_hidden_layers"]):
        scope = f"newslm/layer{i:02d}"
        for name, width in (("query", queries), ("key", queries), ("value", values)):
            shapes |= dense_shapes(f"{scope}/{name}_layer", hidden, width)
        shapes |= dense_shapes(f"{scope}/context_projection_layer", values, hidden)
        shapes |= dense_shapes(f"{scope}/intermediate", hidden, wide)
        shapes |= dense_shapes(f"{scope}/output", wide, hidden)
        for name in ("LayerNorm_mlp_ln0", "LayerNorm_mlp_ln1"):
            shapes |= norm_shapes(f"{scope}/{name}", hidden)
    return shapes


def t5_shapes(layout, config):
    """Encoder and decoder; the later layouts also have gates and a head."""
    hidden, wide = config["hidden_size"], config["intermediate_size"]
    queries, values = sizes(config)
    norm = "rms_norm" if layout == "mt5.1.1" else "layer_norm"
    final = "rms_norm" if layout == "mt5.1.1" else "final_layer_norm"
    gates = ("wi",) if layout == "t5.1.0" else ("wi_0", "wi_1")
    attentions = {"encoder": ["SelfAttention"], "decoder": ["SelfAttention", "EncDecAttention"]}
    shapes = {"shared/embedding": (config["vocab_size"], hidden)}
    if layout != "t5.1.0":
        shapes["decoder/logits/kernel"] = (hidden, config["vocab_size"])
    for stack, kinds in attentions.items():
        for i in range(config["num_hidden_layers"]):
            block = f"{stack}/block_{i:03d}"
            for n, kind in enumerate(kinds):
                scope = f"{block}/layer_{n:03d}"
                shapes[f"{scope}/{norm}/scale"] = (hidden,)
                for name, width in (("q", queries), ("k", queries), ("v", values)):
                    shapes[f"{scope}/{kind}/{name}"] = (hidden, width)
                shapes[f"{scope}/{kind}/o"] = (values, hidden)
            scope = f"{block}/layer_{len(kinds):03d}"
            shapes[f"{scope}/{norm}/scale"] = (hidden,)
            for gate in gates:
                shapes[f"{scope}/DenseReluDense/{gate}/kernel"] = (hidden, wide)
            shapes[f"{scope}/DenseReluDense/wo/kernel"] = (wide, hidden)
        shapes[f"{stack}/{final}/scale"] = (hidden,)
        table = f"{stack}/block_000/layer_000/SelfAttention/relative_attention_bias"
        shapes[table] = (config["num_attention_heads"], config["relative_attention_num_buckets"])
    return shapes


def zoo_shapes(family, config, **options):
    """Return {checkpoint name: shape}; the options are those of ``bert_shapes``."""
    narrow = config.get("embedding_size", config["hidden_size"]) != config["hidden_size"]
    if narrow and family not in NARROW_TABLES:
        raise ValueError(f"{family} has tables as wide as its blocks")
    if family in BERT_LIKE:
        return bert_shapes(family, config, **options)
    if family in ("roformer_v2", "gau_alpha"):
        return bare_shapes(family, config)
    if family in ("gpt", "gpt2"):
        return gpt_shapes(family, config)
    return gpt2_ml_shapes(config) if family == "gpt2_ml" else t5_shapes(family, config)


# ---- values ------------------------------------------------------------------------------------

TABLES = ("word_embeddings", "word_embed", "shared/embedding")
MATRICES = ("/kernel", "/q", "/k", "/v", "/o")


def zoo_arrays(family, config, seed=0, **options):
    """Return {checkpoint name: float32 array}; the options are those of ``bert_shapes``."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for n, (name, shape) in enumerate(sorted(zoo_shapes(family, config, **options).items())):
        scale = 1.0
        if name.endswith(MATRICES):
            scale = 1.0 / shape[0]
        elif name.endswith(TABLES):
            scale = 0.25
        mean = 0.01 * n * scale + (1.0 if name.endswith(("/gamma", "/scale")) else 0.0)
        arrays[name] = (mean + 0.5 * np.sqrt(scale) * rng.standard_normal(shape)).astype("float32")
    return arrays
