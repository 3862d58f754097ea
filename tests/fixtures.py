"""Checkpoints, configs and batches for the tests; nothing here uses the package.

``golden_case`` opens recorded outputs of the original TensorFlow 1 programs.
``tiny_config``, ``make_arrays`` and ``write_checkpoint`` make a new checkpoint of any kind:

    config = tiny_config("google_albert", num_hidden_groups=3)
    arrays = make_arrays("google_albert", config, seed=0)
    prefix = write_checkpoint(tmp_path / "model.ckpt", arrays)

Shapes: B batch, S length, V vocabulary, E embedding, H hidden, I intermediate, P positions.
"""

import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

DATA = Path(__file__).parent / "data"

KINDS = ("google_bert", "google_albert", "albert_zh", "albert_zh_unshared", "electra")

#: Grouped feed-forward layers (kernels of three axes): the reference forward refuses them.
FAST_CASES = ["albert_zh_google_fast", "albert_zh_google_fast_swish"]

#: Every case, the fast ones included.
GOLDEN_CASES = [
    "albert",
    "albert_groups",
    "albert_same_dim",
    "albert_smallvar",
    "albert_zh",
    "albert_zh_google",
    "albert_zh_preln",
    "albert_zh_same_dim",
    "albert_zh_unshared",
    "bert",
    "bert_relu",
    "bert_smallvar",
    *FAST_CASES,
]


# ---- recorded outputs ------------------------------------------------------------------------


@dataclass(frozen=True)
class GoldenCase:
    """One recorded run of an original program."""

    name: str
    config: dict
    config_path: str
    checkpoint: str
    """Prefix of the checkpoint's files."""
    arrays: dict
    """Inputs and outputs, by the names of ``golden.npz``."""

    @cached_property
    def variables(self):
        """The checkpoint's contents, {name: array}."""
        return read_checkpoint(self.checkpoint)


def golden_case(name):
    """Open the case ``tests/data/golden/<name>``."""
    folder = DATA / "golden" / name
    with np.load(folder / "golden.npz") as npz:
        arrays = dict(npz)
    config_path = folder / "config.json"
    config = json.loads(config_path.read_text("utf-8"))
    return GoldenCase(name, config, str(config_path), str(folder / "model.ckpt"), arrays)


# ---- reading and writing checkpoints ---------------------------------------------------------


def write_checkpoint(prefix, arrays):
    """Write a name-based checkpoint like TensorFlow 1's Saver; return the prefix as a string.

    The files are ``<prefix>.index`` and ``<prefix>.data-00000-of-00001``: no graph, no object
    graph, no ``checkpoint`` file. Missing folders are made.
    """
    import tensorflow as tf

    Path(prefix).parent.mkdir(parents=True, exist_ok=True)
    names = sorted(arrays)
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[tf.constant(arrays[name]) for name in names],
    )
    return str(prefix)


def read_checkpoint(prefix):
    """Read a checkpoint with TensorFlow's own reader: {name: array}."""
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(prefix))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def write_config(path, config):
    """Write a config as JSON; return the path as a string."""
    Path(path).write_text(json.dumps(config, indent=2), "utf-8")
    return str(path)


def object_checkpoint(prefix):
    """Write a TensorFlow 2 object-based checkpoint of a small BERT-like module.

    Its keys look like ``model/embeddings/word_embeddings/.ATTRIBUTES/VARIABLE_VALUE``, beside
    ``_CHECKPOINTABLE_OBJECT_GRAPH``. Returns the prefix as a string.
    """
    import tensorflow as tf

    def module(**shapes):
        made = tf.Module()
        for name, shape in shapes.items():
            setattr(made, name, tf.Variable(tf.zeros(shape)))
        return made

    model = tf.Module()
    model.embeddings = module(word_embeddings=(100, 32), position_embeddings=(32, 32))
    model.layers = [module(kernel=(32, 32), bias=(32,)) for _ in range(2)]
    Path(prefix).parent.mkdir(parents=True, exist_ok=True)
    return tf.train.Checkpoint(model=model).write(str(prefix))


# ---- configs ---------------------------------------------------------------------------------


def tiny_config(kind, **overrides):
    """Return a small config with exactly the keys that such a model's own JSON has.

    An override may be any key, also one that the original does not have; the value ``...``
    takes a key away.
    """
    config = {
        "attention_probs_dropout_prob": 0.1,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "hidden_size": 32,
        "initializer_range": 0.02,
        "intermediate_size": 64,
        "max_position_embeddings": 32,
        "num_attention_heads": 4,
        "num_hidden_layers": 3,
        "type_vocab_size": 2,
        "vocab_size": 100,
    }
    pooler = {  # written by the Chinese BERT, read by nobody
        "directionality": "bidi",
        "pooler_fc_size": 768,
        "pooler_num_attention_heads": 12,
        "pooler_num_fc_layers": 3,
        "pooler_size_per_head": 128,
        "pooler_type": "first_token_transform",
    }
    no_dropout = {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}
    if kind == "google_albert":
        config |= no_dropout | {
            "down_scale_factor": 1,
            "embedding_size": 16,
            "gap_size": 0,
            "inner_group_num": 1,
            "net_structure_type": 0,
            "num_hidden_groups": 1,
            "num_memory_blocks": 0,
        }
    elif kind in ("albert_zh", "albert_zh_unshared"):
        config |= no_dropout | pooler | {"embedding_size": 16, "ln_type": "postln"}
    elif kind == "electra":
        config |= {"embedding_size": 16}
    elif kind != "google_bert":
        raise ValueError(f"unknown kind {kind!r}; the kinds are {KINDS}")
    return {key: value for key, value in (config | overrides).items() if value is not ...}


# ---- names and shapes ------------------------------------------------------------------------


def _dense(scope, inputs, outputs):
    return {f"{scope}/kernel": (inputs, outputs), f"{scope}/bias": (outputs,)}


def _norm(scope, size):
    return {f"{scope}/beta": (size,), f"{scope}/gamma": (size,)}


def _embeddings(scope, config, words, others):
    return {
        f"{scope}/word_embeddings": (config["vocab_size"], words),
        f"{scope}/token_type_embeddings": (config["type_vocab_size"], others),
        f"{scope}/position_embeddings": (config["max_position_embeddings"], others),
        **_norm(f"{scope}/LayerNorm", others),
    }


def _bert_block(scope, hidden, intermediate):
    return {
        **_dense(f"{scope}/attention/self/query", hidden, hidden),
        **_dense(f"{scope}/attention/self/key", hidden, hidden),
        **_dense(f"{scope}/attention/self/value", hidden, hidden),
        **_dense(f"{scope}/attention/output/dense", hidden, hidden),
        **_norm(f"{scope}/attention/output/LayerNorm", hidden),
        **_dense(f"{scope}/intermediate/dense", hidden, intermediate),
        **_dense(f"{scope}/output/dense", intermediate, hidden),
        **_norm(f"{scope}/output/LayerNorm", hidden),
    }


def _albert_block(scope, hidden, intermediate):
    return {
        **_dense(f"{scope}/attention_1/self/query", hidden, hidden),
        **_dense(f"{scope}/attention_1/self/key", hidden, hidden),
        **_dense(f"{scope}/attention_1/self/value", hidden, hidden),
        **_dense(f"{scope}/attention_1/output/dense", hidden, hidden),
        **_norm(f"{scope}/LayerNorm", hidden),
        **_dense(f"{scope}/ffn_1/intermediate/dense", hidden, intermediate),
        **_dense(f"{scope}/ffn_1/intermediate/output/dense", intermediate, hidden),
        **_norm(f"{scope}/LayerNorm_1", hidden),
    }


def _bert_heads(vocab_size, hidden, transform):
    return {
        **_dense("bert/pooler/dense", hidden, hidden),
        **_dense("cls/predictions/transform/dense", hidden, transform),
        **_norm("cls/predictions/transform/LayerNorm", transform),
        "cls/predictions/output_bias": (vocab_size,),
        "cls/seq_relationship/output_weights": (2, hidden),
        "cls/seq_relationship/output_bias": (2,),
    }


def variable_shapes(kind, config, heads=True):
    """Return {name: shape} of a checkpoint, without slots; ``heads`` counts the pooler too."""
    hidden, intermediate = config["hidden_size"], config["intermediate_size"]
    depth, vocab_size = config["num_hidden_layers"], config["vocab_size"]
    embedding = config.get("embedding_size", hidden)
    encoder = "bert/encoder"
    if kind == "google_bert":
        shapes = _embeddings("bert/embeddings", config, hidden, hidden)
        for i in range(depth):
            shapes |= _bert_block(f"{encoder}/layer_{i}", hidden, intermediate)
        return shapes | (_bert_heads(vocab_size, hidden, hidden) if heads else {})
    if kind == "google_albert":
        shapes = _embeddings("bert/embeddings", config, embedding, embedding)
        if embedding != hidden:
            shapes |= _dense(f"{encoder}/embedding_hidden_mapping_in", embedding, hidden)
        groups = config["num_hidden_groups"]
        # A group that no layer falls into has no variables. Floats, like the original.
        for g in sorted({int(i / depth * groups) for i in range(depth)}):
            for j in range(config["inner_group_num"]):
                scope = f"{encoder}/transformer/group_{g}/inner_group_{j}"
                shapes |= _albert_block(scope, hidden, intermediate)
        return shapes | (_bert_heads(vocab_size, hidden, embedding) if heads else {})
    if kind in ("albert_zh", "albert_zh_unshared"):
        shapes = _embeddings("bert/embeddings", config, embedding, hidden)
        shapes["bert/embeddings/word_embeddings_2"] = (embedding, hidden)
        for i in ["shared"] if kind == "albert_zh" else range(depth):
            shapes |= _bert_block(f"{encoder}/layer_{i}", hidden, intermediate)
        return shapes | (_bert_heads(vocab_size, hidden, hidden) if heads else {})
    if kind == "electra":
        return _electra_shapes(config, heads)
    raise ValueError(f"unknown kind {kind!r}; the kinds are {KINDS}")


def _electra_shapes(config, heads):
    """The discriminator; with heads also the generator, half as wide, two thirds as deep."""
    hidden, embedding = config["hidden_size"], config["embedding_size"]
    depth = config["num_hidden_layers"]
    shapes = _embeddings("electra/embeddings", config, embedding, embedding)
    if embedding != hidden:
        shapes |= _dense("electra/embeddings_project", embedding, hidden)
    for i in range(depth):
        shapes |= _bert_block(f"electra/encoder/layer_{i}", hidden, config["intermediate_size"])
    if not heads:
        return shapes
    small = hidden // 2
    shapes |= _dense("discriminator_predictions/dense", hidden, hidden)
    shapes |= _dense("discriminator_predictions/dense_1", hidden, 1)
    if embedding != small:
        shapes |= _dense("generator/embeddings_project", embedding, small)
    for i in range(round(depth * 2 / 3)):
        shapes |= _bert_block(f"generator/encoder/layer_{i}", small, 4 * small)
    shapes |= _dense("generator_predictions/dense", small, embedding)
    shapes |= _norm("generator_predictions/LayerNorm", embedding)
    return shapes | {"generator_predictions/output_bias": (config["vocab_size"],)}


# ---- values ----------------------------------------------------------------------------------


def make_arrays(kind, config, seed, heads=True, slots=False, module_prefix=False):
    """Return random float32 variables, {checkpoint name: array}.

    The n-th variable in the order of the names has a mean of its own, 0.01 * n (plus 1 for
    gamma), so that one that lands in another's place shows; the deviation is 0.5. A matrix is
    kept smaller (mean 0.01 * n / inputs, deviation 0.5 / sqrt(inputs); the word table as if it
    had 4 inputs), so that no softmax is one-hot and outputs are of order 1. The numbers show
    every swap of two variables of one shape; no numbers can show the bias of a key, which a
    softmax cancels.

    Args:
        kind: One of ``KINDS``.
        config: As of ``tiny_config``; it gives the shapes.
        seed: Of the numbers; the same seed gives the same arrays.
        heads: Whether there are a pooler, masked-LM and sentence-pair variables (ELECTRA: the
            discriminator's head and the whole generator).
        slots: Whether to add ``<name>/adam_m``, ``<name>/adam_v`` and an int64
            ``global_step``.
        module_prefix: Whether names begin with ``module/``, as in a TF-Hub export.
    """
    rng = np.random.default_rng(seed)
    arrays = {}
    for n, (name, shape) in enumerate(sorted(variable_shapes(kind, config, heads).items())):
        scale = 1.0
        if name.endswith(("/kernel", "/word_embeddings_2")):
            scale = 1.0 / shape[0]
        elif name.endswith("/word_embeddings"):
            scale = 0.25
        mean = 0.01 * n * scale + (1.0 if name.endswith("/gamma") else 0.0)
        arrays[name] = (mean + 0.5 * np.sqrt(scale) * rng.standard_normal(shape)).astype("float32")
    if slots:
        for name, value in list(arrays.items()):
            noise = rng.standard_normal(value.shape).astype("float32")
            arrays[f"{name}/adam_m"] = 0.01 * noise
            arrays[f"{name}/adam_v"] = 0.0001 * noise**2
    if module_prefix:
        arrays = {f"module/{name}": value for name, value in arrays.items()}
    if slots:
        arrays["global_step"] = np.array(12345, np.int64)
    return arrays


def keras_made_albert_names(arrays, config):
    """Rename Google ALBERT arrays as a training run with Keras' LayerNormalization saved them.

    In such files every depth has normalisations of its own, numbered through the model, like
    ``bert/encoder/transformer/group_0_9/layer_9/inner_group_0/layer_normalization_19/gamma``,
    while the dense layers stay shared under ``group_0`` (seen in google-research/albert#241;
    the head's name and those of several groups follow the same counting, but were not seen).
    Here all depths of a group get the same values. Slots are left out.
    """
    depth, groups = config["num_hidden_layers"], config["num_hidden_groups"]
    inner = config["inner_group_num"]
    kept = {k: v for k, v in arrays.items() if not k.endswith(("/adam_m", "/adam_v"))}
    renamed = {k: v for k, v in kept.items() if "/LayerNorm" not in k}

    def move(source, target):
        for part in ("beta", "gamma"):
            if f"{source}/{part}" in kept:
                renamed[f"{target}/{part}"] = kept[f"{source}/{part}"]

    move("bert/embeddings/LayerNorm", "bert/embeddings/layer_normalization")
    count, uses = 0, {}
    for i in range(depth):
        group = int(i / depth * groups)
        # TensorFlow makes a scope unique by a suffix from its second use on.
        again = uses[group] = uses.get(group, -1) + 1
        scope = f"bert/encoder/transformer/group_{group}"
        for j in range(inner):
            for norm in ("LayerNorm", "LayerNorm_1"):
                count += 1
                move(
                    f"{scope}/inner_group_{j}/{norm}",
                    f"{scope}{f'_{again}' if again else ''}/layer_{i}/inner_group_{j}"
                    f"/layer_normalization_{count}",
                )
    head = "cls/predictions/transform"
    move(f"{head}/LayerNorm", f"{head}/layer_normalization_{count + 1}")
    return renamed


# ---- batches ---------------------------------------------------------------------------------


def random_batch(rng, vocab_size, batch, length):
    """Return token ids and segment ids, both [B, S] int32.

    Real ids are 1 to V-1; 0 stands for padding only, at the end, so ``ids > 0`` is the mask.
    Row 0 is full, the others have 2 to S-1 tokens. Segments are 0, then 1 from a random place
    on, and 0 under the padding.
    """
    ids = rng.integers(1, vocab_size, (batch, length))
    segments = np.zeros((batch, length), int)
    for row in range(batch):
        tokens = length if row == 0 or length < 3 else int(rng.integers(2, length))
        ids[row, tokens:] = 0
        segments[row, int(rng.integers(1, max(tokens, 2))) : tokens] = 1
    return ids.astype("int32"), segments.astype("int32")
