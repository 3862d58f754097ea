"""Options of the graph, against plain numpy: positions, segments, scores, heads, conditions."""

import keras
import numpy as np
import pytest

from fixtures import tiny_config
from harness import default_and_slow, refused, silent, to_numpy
from kerasbert import build_transformer_model, hidden_state, model_report, unshare
from kerasbert.errors import ConfigError
from kerasbert.layers import LayerNormalization
from kerasbert.weights import variable_mapping
from reference.zoo import run
from reference.zoo_weights import zoo_arrays, zoo_config

CLOSE = {"rtol": 0, "atol": 1e-5}
TO_ALBERT = {
    "attention/self/": "attention_1/self/",
    "attention/output/dense": "attention_1/output/dense",
    "attention/output/LayerNorm": "LayerNorm",
    "intermediate/dense": "ffn_1/intermediate/dense",
    "output/dense": "ffn_1/intermediate/output/dense",
    "output/LayerNorm": "LayerNorm_1",
}


def albert_name(name):
    """Google's name in an ALBERT with a group for each layer for a name of BERT's."""
    if "/layer_" not in name:
        return name
    layer, _, rest = name.removeprefix("bert/encoder/layer_").partition("/")
    old = next(start for start in TO_ALBERT if rest.startswith(start))
    new = TO_ALBERT[old] + rest.removeprefix(old)
    return f"bert/encoder/transformer/group_{layer}/inner_group_0/{new}"


def inputs_for(length, segments=2):
    rng = np.random.default_rng(length)
    ids = rng.integers(1, 60, (2, length))
    ids[1, length - length // 3 :] = 0
    return ids.astype("int32"), rng.integers(0, segments, (2, length)).astype("int32")


def case(model, config, seed=1, **options):
    """Variables by the names of the reference, and the file and config of the model."""
    arrays = zoo_arrays("bert", config, seed, **options)
    if model == "bert":
        return arrays, arrays, config
    if model == "albert":
        # The reference has a block for each layer; here they are all alike.
        for name in [n for n in arrays if "/layer_" in n]:
            first = "bert/encoder/layer_0/" + name.split("/", 3)[3]
            arrays[name] = arrays[first]
    groups = 1 if model == "albert" else config["num_hidden_layers"]
    file = {albert_name(n): a for n, a in arrays.items()}
    file = {n: a for n, a in file.items() if "group_" not in n or model != "albert" or "_0/" in n}
    file = {n: a for n, a in file.items() if int_group(n) < groups}
    keys = {"embedding_size": config["hidden_size"], "inner_group_num": 1}
    return arrays, file, {**keys, **config, "num_hidden_groups": groups}


def int_group(name):
    return int(name.split("group_")[1].split("/")[0]) if "/group_" in name else 0


def build(model, config, file, **options):
    file = {name: array for name, array in file.items() if "_dense/kernel" not in name}
    name = "albert" if model.startswith("albert") else "bert"
    return silent(
        build_transformer_model, config, file, model=name, verbose=0, hidden_states=True, **options
    )


def assert_states(model, batch, expected):
    last, states = model(batch)
    assert len(states) == len(expected["hidden_states"])
    for found, wanted in zip(states, expected["hidden_states"], strict=True):
        np.testing.assert_allclose(to_numpy(found), wanted, **CLOSE)
    np.testing.assert_array_equal(to_numpy(last), to_numpy(states[-1]))


def reload(model, folder):
    model.save(folder / "model.keras")
    return keras.models.load_model(folder / "model.keras")


MODELS = ("bert", "albert", "albert_groups")
each = pytest.mark.parametrize("model", MODELS)

KEYS = (
    "num_hidden_layers",
    "num_attention_heads",
    "embedding_size",
    "attention_head_size",
    "attention_key_size",
)


@pytest.mark.parametrize(
    ("model", "sizes", "residual", "shared", "length"),
    [
        ("bert", (2, 4, 12, 5, 3), True, True, 13),
        ("bert", (1, 1, 24, None, 8), False, False, 1),
        ("albert", (2, 2, 12, 8, None), True, False, 7),
        ("albert", (3, 1, 24, None, 3), False, True, 4),
        ("albert_groups", (2, 4, 24, 5, 8), False, True, 9),
        ("albert_groups", (3, 2, 12, None, None), True, False, 6),
    ],
)
def test_sizes_of_heads_shared_segments_and_residual_scores(model, sizes, residual, shared, length):
    changes = {key: size for key, size in zip(KEYS, sizes, strict=True) if size}
    config = zoo_config("bert", **changes)
    arrays, file, config = case(model, config, shared_segments=shared)
    options = {"residual_attention_scores": residual, "shared_segment_embeddings": shared}
    network = build(model, config, file, **options)
    batch = inputs_for(length, segments=5 if shared else 2)
    references = {"residual_scores": residual, "shared_segments": shared}
    assert_states(network, batch, run("bert", arrays, config, *batch, **references))


# No further than the table, between its end and its square, and up to that.
@pytest.mark.parametrize(
    ("model", "alpha", "rows", "length"),
    [("bert", True, 5, 4), ("albert", 0.3, 3, 7), ("albert_groups", 0.95, 4, 16)],
)
def test_hierarchical_positions(model, alpha, rows, length):
    arrays, file, config = case(model, zoo_config("bert", max_position_embeddings=rows))
    network = build(model, config, file, hierarchical_position=alpha)
    batch = inputs_for(length)
    expected = run("bert", arrays, config, *batch, hierarchical=alpha)
    assert_states(network, batch, expected)


def test_hierarchical_positions_end_at_the_square():
    _, file, config = case("bert", zoo_config("bert", max_position_embeddings=4))
    network = build("bert", config, file, hierarchical_position=True)
    assert network(inputs_for(16))[0].shape == (2, 16, 24)
    with refused(ConfigError, 17, "max_position_embeddings=4 squared", 16):
        network(inputs_for(17))
    with refused(ConfigError, "sequence_length=17", 16):
        build("bert", config, file, hierarchical_position=True, sequence_length=17)
    for wrong in (0.0, 1.0, -0.4, "yes"):
        if wrong:
            with refused(ConfigError, "hierarchical_position", repr(wrong)):
                build("bert", config, file, hierarchical_position=wrong)


@pytest.mark.backends
@pytest.mark.parametrize("model", ["bert", "albert"])
def test_positions_of_the_users_own(model):
    arrays, file, config = case(model, zoo_config("bert"))
    network = build(model, config, file, custom_position_ids=True, with_mask_input=True)
    names = [tensor.name for tensor in network.inputs]
    assert names == ["Input-Token", "Input-Segment", "Input-Position", "Input-Mask"]
    ids, segments = inputs_for(9)
    mask = (ids != 0).astype("int32")
    counted = np.tile(np.arange(9, dtype="int32"), (2, 1))
    expected = run("bert", arrays, config, ids, segments)
    assert_states(network, [ids, segments, counted, mask], expected)
    # Another order of the positions is the same as another order of the rows of the table.
    order = np.random.default_rng(0).permutation(20)
    table = "bert/embeddings/position_embeddings"
    shuffled = {**arrays, table: arrays[table][order]}
    batch = [ids, segments, np.tile(order[:9].astype("int32"), (2, 1)), mask]
    assert_states(network, batch, run("bert", shuffled, config, ids, segments))


def set_condition(model, arrays):
    """Fills what a condition needs, by the reference's names; the file has no such names."""
    done = set()
    for path, (name, *_) in variable_mapping(model).items():
        scope = name.rpartition("/")[0]
        if path.endswith("/gamma"):
            layer, *inside = path.split("/")[:-1]
            norm = model.get_layer(layer)
            norm = getattr(norm, inside[0]) if inside else norm
            scope = scope if "/group_" not in scope else bert_scope(scope)
            for part in ("hidden_dense", "beta_dense", "gamma_dense"):
                if f"{scope}/{part}/kernel" in arrays:
                    getattr(norm, part).kernel.assign(arrays[f"{scope}/{part}/kernel"])
                    done.add(f"{scope}/{part}/kernel")
    return done


def bert_scope(scope):
    back = {"LayerNorm": "attention/output/LayerNorm", "LayerNorm_1": "output/LayerNorm"}
    return f"bert/encoder/layer_{int_group(scope)}/{back[scope.rpartition('/')[2]]}"


@pytest.mark.parametrize(
    ("model", "hidden", "act", "per_token", "width"),
    [
        ("bert", None, "tanh", True, 4),
        ("bert", 7, "tanh", False, 6),
        ("albert", 7, "linear", True, 1),
        ("albert_groups", None, "linear", False, 3),
    ],
)
def test_conditional_norms(model, hidden, act, per_token, width):
    config = zoo_config("bert", num_hidden_layers=2, embedding_size=12)
    arrays, file, config = case(model, config, condition=width, hidden=hidden)
    condition = keras.Input((None, width) if per_token else (width,), name="Condition")
    options = {"layer_norm_cond": condition, "additional_input_layers": condition}
    if hidden:
        options |= {"layer_norm_cond_hidden_size": hidden, "layer_norm_cond_hidden_act": act}
    network = build(model, config, file, **options)
    ids, segments = inputs_for(7)
    shape = (2, 7, width) if per_token else (2, width)
    values = np.random.default_rng(width).normal(size=shape).astype("float32")
    assert_states(network, [ids, segments, values], run("bert", arrays, config, ids, segments))
    assert model_report(network).missing == []
    assert set_condition(network, arrays)
    act = act if hidden else "linear"
    expected = run("bert", arrays, config, ids, segments, condition=values, condition_act=act)
    assert_states(network, [ids, segments, values], expected)
    plain = run("bert", arrays, config, ids, segments)
    assert np.abs(expected["sequence_output"] - plain["sequence_output"]).max() > 1e-3


def test_a_new_condition_changes_not_one_bit_of_a_loaded_model():
    _, file, config = case("bert", zoo_config("bert"))
    condition = keras.Input((5,), name="Condition")
    options = {"layer_norm_cond": condition, "additional_input_layers": [condition]}
    steered = build("bert", config, file, with_mlm=True, with_nsp=True, **options)
    plain = build("bert", config, file, with_mlm=True, with_nsp=True)
    ids, segments = inputs_for(9)
    values = np.random.default_rng(0).normal(size=(2, 5)).astype("float32")
    for one, other in zip(steered([ids, segments, values]), plain([ids, segments]), strict=True):
        for found, wanted in zip(
            *(x if isinstance(x, list) else [x] for x in (one, other)), strict=True
        ):
            np.testing.assert_allclose(to_numpy(found), to_numpy(wanted), atol=2e-6, rtol=0)
    report = model_report(steered)
    norms = sum(isinstance(x, LayerNormalization) for x in steered._flatten_layers())
    assert len(report.conditions) == 2 * norms == 16
    assert "16 (of the norms, in no file)" in str(report)
    assert all(path.endswith("_dense/kernel") for path in report.conditions)


@pytest.mark.parametrize("model", default_and_slow(MODELS, ["bert", "albert"]))
def test_options_are_saved_unshared_and_looked_into(model, tmp_path):
    config = zoo_config("bert", max_position_embeddings=4, attention_head_size=5)
    arrays, file, config = case(model, config, shared_segments=True, condition=3)
    condition = keras.Input((3,), name="Condition")
    network = build(
        model,
        config,
        file,
        hierarchical_position=0.3,
        shared_segment_embeddings=True,
        residual_attention_scores=True,
        custom_position_ids=True,
        layer_norm_cond=condition,
        additional_input_layers=condition,
    )
    set_condition(network, arrays)
    ids, segments = inputs_for(10)
    positions = np.tile(np.arange(10, dtype="int32"), (2, 1))
    values = np.random.default_rng(0).normal(size=(2, 3)).astype("float32")
    expected = run(
        "bert",
        arrays,
        config,
        ids,
        segments,
        hierarchical=0.3,
        shared_segments=True,
        residual_scores=True,
        condition=values,
    )
    batch = [ids, segments, positions, values]
    again = reload(network, tmp_path)
    others = [again] if model == "bert" else [again, unshare(network), unshare(again, "attention")]
    for other in (network, *others):
        assert_states(other, batch, expected)
        for k in (0, len(expected["hidden_states"]) - 1):
            state = expected["hidden_states"][k]
            cut = keras.Model(other.inputs, hidden_state(other, k))
            np.testing.assert_allclose(to_numpy(cut(batch)), state, **CLOSE)
    if model != "bert":
        assert others[1].count_params() >= network.count_params()


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"layer_norm_cond": np.zeros((2, 3))}, ["layer_norm_cond", "keras.Input"]),
        ({"layer_norm_cond": keras.Input((2, 3, 4))}, ["layer_norm_cond", "(B, C)"]),
        ({"layer_norm_cond_hidden_size": 4}, ["layer_norm_cond_hidden_size=4"]),
        ({"layer_norm_cond": keras.Input((3,))}, ["additional_input_layers"]),
        ({"layers": ["Embedding-Token"]}, ["layers", "dict"]),
        ({"custom_position_ids": 1}, ["custom_position_ids=1"]),
        ({"shared_segment_embeddings": True, "type_vocab_size": 0}, ["no segment input"]),
        ({"residual_attention_scores": "yes"}, ["residual_attention_scores='yes'"]),
        ({"attention_key_size": 0}, ["attention_key_size=0"]),
    ],
)
def test_refusals(options, facts):
    with refused(ConfigError, *facts):
        build_transformer_model(zoo_config("bert"), **options)


def test_what_no_model_can_mean():
    config = tiny_config("google_bert")
    with refused(ConfigError, "use_relative_position", "roformer", "nezha"):
        build_transformer_model({**config, "use_relative_position": True}, model="roformer")
    with refused(ConfigError, "hierarchical_position", "nezha"):
        build_transformer_model(config, model="nezha", hierarchical_position=True)
    with refused(ConfigError, "segment_vocab_size", "gpt2"):
        build_transformer_model(config, model="gpt2", segment_vocab_size=2)
    with refused(ConfigError, "additional_input_layers='x'", "keras.Input"):
        build_transformer_model(config, model="bert", additional_input_layers="x")
    for value in ("no", None):
        with refused(ConfigError, f"return_keras_model={value!r}"):
            build_transformer_model(config, model="bert", return_keras_model=value)
    lender = build_transformer_model(config, model="bert", return_keras_model=False)
    with pytest.warns(UserWarning, match="Transformer-0-MultiHeadSelfAttention"):
        build_transformer_model(config, model="albert", layers=lender.layers, prefix="b-")


def test_512_positions_serve_2048():
    config = {**tiny_config("google_bert"), "max_position_embeddings": 512, "num_hidden_layers": 1}
    model = build_transformer_model(config, model="bert", hierarchical_position=True, verbose=0)
    table = to_numpy(model.get_layer("Embedding-Position").embeddings).astype("float64")
    fine = (table - 0.4 * table[0]) / 0.6
    positions = np.arange(2048)
    expected = 0.4 * fine[positions // 512] + 0.6 * fine[positions % 512]
    zeros = np.zeros((1, 2048, table.shape[1]), "float32")
    found = to_numpy(model.get_layer("Embedding-Position")(zeros))[0]
    np.testing.assert_allclose(found, expected, **CLOSE)
    np.testing.assert_allclose(found[:512], table, **CLOSE)
    ids = np.random.default_rng(0).integers(1, config["vocab_size"], (1, 2048)).astype("int32")
    assert model([ids, np.zeros_like(ids)]).shape == (1, 2048, config["hidden_size"])
