"""Classes of a user's own: blocks, layers and name tables."""

from dataclasses import replace

import keras
import numpy as np
import pytest

from fixtures import make_arrays, read_checkpoint, tiny_config
from harness import default_and_slow, refused, silent, to_numpy
from kerasbert import (
    build_transformer_model,
    hidden_state,
    inspect_checkpoint,
    load_weights_from_checkpoint,
    save_pretrained,
    save_weights_as_checkpoint,
    unshare,
)
from kerasbert.errors import ConfigError, WeightMismatchError
from kerasbert.layers import ResidualFeedForward, SelfAttention
from kerasbert.models import ALBERT, BERT
from kerasbert.weights import (
    GOOGLE_ALBERT,
    GOOGLE_BERT,
    Blocks,
    Row,
    dense,
    norm,
    one_stack,
    variable_mapping,
)

BATCH = [np.array([[2, 7, 9, 3, 0]], "int32"), np.array([[0, 0, 1, 1, 0]], "int32")]
CONFIG = tiny_config("google_bert")
OLD = GOOGLE_BERT.blocks["encoder"]


def renamed(rows):
    return tuple(replace(row, theirs=f"mine/{row.theirs}") for row in rows)


class Renamed(BERT):
    """A BERT whose files have other names."""

    dialects = (
        replace(
            GOOGLE_BERT,
            name="renamed",
            title="My BERT",
            top_rows=renamed(GOOGLE_BERT.top_rows),
            required=("mine/bert/embeddings/word_embeddings",),
            blocks=one_stack("mine/{layer}/", OLD.rows),
            scopes=("mine/",),
        ),
    )


def in_own_names(arrays):
    return {
        f"mine/{name}".replace("mine/bert/encoder/layer_", "mine/"): array
        for name, array in arrays.items()
    }


@keras.saving.register_keras_serializable(package="tests")
class GatedAttention(SelfAttention):
    """Attention with a gate on its output."""

    def build(self, inputs_shape, *args, **kwargs):
        super().build(inputs_shape, *args, **kwargs)
        self.gate = self.built_dense("gate", inputs_shape[-1], inputs_shape)

    def after(self, inputs, outputs, condition=None):
        return super().after(inputs, outputs * keras.ops.sigmoid(self.gate(inputs)), condition)


@keras.saving.register_keras_serializable(package="tests")
class Halved(ResidualFeedForward):
    """A feed-forward layer at half strength."""

    def after(self, inputs, outputs, condition=None):
        return super().after(inputs, outputs / 2, condition)


class Gated(BERT):
    """Own layers in both halves, and an adapter behind each block."""

    dialects = (
        replace(
            GOOGLE_BERT,
            name="gated",
            title="Gated BERT",
            top_rows=(*GOOGLE_BERT.top_rows, Row("Scale/gamma", "bert/embeddings/scale", "E")),
            blocks={
                "encoder": Blocks(
                    OLD.address,
                    (
                        *OLD.rows,
                        *dense("attention/gate", "attention/gate/dense", "H H"),
                        *norm("Adapter", "adapter/norm", "H"),
                    ),
                )
            },
        ),
    )

    def make_attention(self, block_name):
        config = self.config
        return self.layer(
            GatedAttention,
            f"{block_name}-MultiHeadSelfAttention",
            heads=config.num_attention_heads,
            head_size=config.attention_head_size,
            **self.residual_arguments(),
        )

    def make_feed_forward(self, block_name):
        return self.layer(
            Halved,
            f"{block_name}-FeedForward",
            units=self.config.intermediate_size,
            activation=self.config.hidden_act,
            **self.residual_arguments(),
        )

    def make_blocks(self):
        return [self.adapted(n, block) for n, block in enumerate(super().make_blocks())]

    def adapted(self, n, block):
        adapter = self.layer(keras.layers.LayerNormalization, f"Transformer-{n}-Adapter")

        def run(hidden, arguments, condition=None):
            hidden, scores = block(hidden, arguments, condition=condition)
            return adapter(hidden), scores

        return run


def gated_arrays(seed=1):
    rng = np.random.default_rng(seed)
    arrays = make_arrays("google_bert", CONFIG, seed)
    for n in range(3):
        scope = f"bert/encoder/layer_{n}"
        shapes = {
            "attention/gate/dense/kernel": (32, 32),
            "attention/gate/dense/bias": (32,),
            "adapter/norm/gamma": (32,),
            "adapter/norm/beta": (32,),
        }
        for name, shape in shapes.items():
            arrays[f"{scope}/{name}"] = rng.normal(size=shape).astype("float32") / 4
    return arrays


def build(cls, arrays=None, config=CONFIG, **options):
    return build_transformer_model(config, arrays, model=cls, verbose=0, **options)


# ---- names -------------------------------------------------------------------------------------


def test_a_table_of_ones_own_reads_and_writes(tmp_path):
    arrays = make_arrays("google_bert", CONFIG, 1)
    heads = {"with_mlm": True, "with_nsp": True}
    mine = build(Renamed, in_own_names(arrays), **heads)
    plain = build(BERT, arrays, **heads)
    for one, other in zip(mine(BATCH), plain(BATCH), strict=True):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(other))
    assert variable_mapping(mine)["Embedding-Norm/gamma"] == [
        "mine/bert/embeddings/LayerNorm/gamma"
    ]
    paths = save_weights_as_checkpoint(mine, tmp_path / "mine.ckpt", verbose=0)
    written = read_checkpoint(paths["checkpoint"])
    assert written.keys() == in_own_names(arrays).keys()
    again = build(Renamed, paths["checkpoint"], paths["config"], **heads)
    for one, other in zip(again(BATCH), plain(BATCH), strict=True):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(other))


def test_sizes_are_read_by_the_own_table():
    arrays = in_own_names(make_arrays("google_bert", CONFIG, 1))
    with pytest.warns(UserWarning, match="No config was given"):
        model = build(Renamed, arrays, None, num_attention_heads=4)
    np.testing.assert_array_equal(to_numpy(model(BATCH)), to_numpy(build(Renamed, arrays)(BATCH)))
    text = str(inspect_checkpoint(arrays, model=Renamed))
    assert "My BERT" in text and "model=Renamed" in text


def test_it_takes_the_place_of_the_built_in_ones():
    arrays = make_arrays("google_bert", CONFIG, 1)
    with refused(WeightMismatchError, "dict of arrays", "My BERT"):
        build(Renamed, arrays)
    albert = tiny_config("google_albert")
    other = make_arrays("google_albert", albert, 1)
    with refused(WeightMismatchError, "Google ALBERT", "bert family"):
        build(Renamed, other, albert)
    # The class as it is keeps kerasbert's own.
    build(BERT, arrays)


class OfAnotherFamily(BERT):
    """Has the table of an ALBERT."""

    dialects = (GOOGLE_ALBERT,)


def test_a_table_of_another_family():
    with refused(ConfigError, "bert family", "google_albert", "family='bert'"):
        build(OfAnotherFamily, make_arrays("google_bert", CONFIG, 1))


@pytest.mark.parametrize(
    ("make", "facts"),
    [
        (lambda: one_stack("block{number}/", ()), ["block{number}/", "{layer}"]),
        (lambda: dense("Adapter", "adapter", "H"), ["'Adapter'", "dims='H'", "2 symbols"]),
        (lambda: norm("Adapter", "adapter", "H H"), ["'Adapter'", "1 symbols"]),
    ],
)
def test_mistakes_in_tables(make, facts):
    with refused(ConfigError, *facts):
        make()


# ---- own layers and blocks -----------------------------------------------------------------------


def own_reference(arrays):
    """The hidden states, from the layers of a plain model and what the classes add."""
    model = build(Gated, arrays)
    x = to_numpy(keras.Model(model.inputs, hidden_state(model, 0))(BATCH))
    mask = keras.ops.convert_to_tensor(BATCH[0] != 0)[:, None]
    states = [x]
    for n in range(3):
        attention, feed_forward, adapter = (
            model.get_layer(f"Transformer-{n}-{end}")
            for end in ("MultiHeadSelfAttention", "FeedForward", "Adapter")
        )
        scope = f"bert/encoder/layer_{n}/attention/gate/dense"
        gate = 1 / (1 + np.exp(-(x @ arrays[f"{scope}/kernel"] + arrays[f"{scope}/bias"])))
        inputs = keras.ops.convert_to_tensor(x)
        out, _ = attention.attend(inputs, inputs, inputs, mask, None, None, None)
        x = attention.norm(keras.ops.convert_to_tensor(x + to_numpy(out) * gate))
        x = to_numpy(adapter(feed_forward.norm(x + feed_forward.transform(x) / 2)))
        states.append(x)
    return states


@pytest.mark.backends
def test_own_layers_load_compute_and_are_looked_into(tmp_path):
    arrays = gated_arrays()
    model = build(Gated, arrays, hidden_states=True, prefix="x-")
    adapter = model.get_layer("x-Transformer-1-Adapter")
    np.testing.assert_array_equal(
        to_numpy(adapter.gamma), arrays["bert/encoder/layer_1/adapter/norm/gamma"]
    )
    expected = own_reference(arrays)
    model.save(tmp_path / "gated.keras")
    again = keras.models.load_model(tmp_path / "gated.keras")
    for network in (model, again):
        _, states = network(BATCH)
        for k, state in enumerate(expected):
            np.testing.assert_allclose(to_numpy(states[k]), state, atol=1e-5)
            cut = keras.Model(network.inputs, hidden_state(network, k))
            np.testing.assert_allclose(to_numpy(cut(BATCH)), state, atol=1e-5)


def test_own_layers_round_trip(tmp_path):
    model = build(Gated, gated_arrays())
    paths = save_weights_as_checkpoint(model, tmp_path / "gated.ckpt", verbose=0)
    again = build(Gated, paths["checkpoint"], paths["config"])
    np.testing.assert_array_equal(to_numpy(again(BATCH)), to_numpy(model(BATCH)))
    assert variable_mapping(model) == variable_mapping(again)
    other = gated_arrays(2)
    load_weights_from_checkpoint(model, other, verbose=0)
    np.testing.assert_array_equal(to_numpy(model(BATCH)), to_numpy(build(Gated, other)(BATCH)))


def test_what_the_own_table_misses_is_an_error():
    arrays = gated_arrays()
    del arrays["bert/encoder/layer_2/adapter/norm/beta"]
    with refused(WeightMismatchError, "bert/encoder/layer_2/adapter/norm/beta", "lacks 1"):
        build(Gated, arrays)
    arrays = {**gated_arrays(), "bert/encoder/layer_0/adapter/up": np.ones(3, "float32")}
    with refused(WeightMismatchError, "layer_0/adapter/up", "does not have"):
        build(Gated, arrays)

    class Forgetful(Gated):
        """Has the layers and not their names."""

        dialects = ()

    with refused(WeightMismatchError, "layers of your own", "gate"):
        build(Forgetful, make_arrays("google_bert", CONFIG, 1))


def test_a_published_file_is_the_start():
    arrays = make_arrays("google_bert", CONFIG, 1)
    with refused(WeightMismatchError, "attention/gate/dense"):
        build(Gated, arrays)
    with pytest.warns(UserWarning, match="12 variables are not in .* keep their initial values"):
        model = build(Gated, arrays, ignore_invalid_weights=True)
    gate = to_numpy(model.get_layer("Transformer-0-MultiHeadSelfAttention").gate.kernel)
    assert 0.015 < gate.std() < 0.025


# ---- finished models -----------------------------------------------------------------------------


def test_a_reloaded_model_needs_the_table_again(tmp_path):
    model = build(Gated, gated_arrays())
    model.save(tmp_path / "gated.keras")
    again = keras.models.load_model(tmp_path / "gated.keras")
    for call in (
        lambda: load_weights_from_checkpoint(again, gated_arrays(2)),
        lambda: save_weights_as_checkpoint(again, tmp_path / "gated.ckpt"),
        lambda: variable_mapping(again),
    ):
        with refused(WeightMismatchError, "gated", "dialects=", ".keras"):
            call()
    tables = {"dialects": Gated.dialects, "verbose": 0}
    load_weights_from_checkpoint(again, gated_arrays(2), **tables)
    paths = save_weights_as_checkpoint(again, tmp_path / "gated.ckpt", **tables)
    read = build(Gated, paths["checkpoint"], paths["config"])
    np.testing.assert_array_equal(to_numpy(read(BATCH)), to_numpy(again(BATCH)))
    assert variable_mapping(again, Gated.dialects) == variable_mapping(model)


def test_transformers_has_no_such_model(tmp_path):
    with refused(WeightMismatchError, "gated", "transformers"):
        save_pretrained(build(Gated), tmp_path / "out")


class AdaptedALBERT(ALBERT):
    """One adapter for all depths of a group."""

    dialects = (
        replace(
            GOOGLE_ALBERT,
            name="adapted_albert",
            title="ALBERT with adapters",
            blocks=one_stack(
                GOOGLE_ALBERT.blocks["encoder"].address,
                (*GOOGLE_ALBERT.blocks["encoder"].rows, *norm("Adapter", "adapter/norm", "H")),
            ),
        ),
    )

    def make_blocks(self):
        names = self.config.stacks["encoder"].names("Adapter")
        blocks = zip(names, super().make_blocks(), strict=True)
        return [self.adapted(name, block) for name, block in blocks]

    def adapted(self, name, block):
        adapter = self.layer(keras.layers.LayerNormalization, name)

        def run(hidden, arguments, condition=None):
            hidden, scores = block(hidden, arguments, condition=condition)
            return adapter(hidden), scores

        return run


@pytest.mark.parametrize("how", default_and_slow([None, "all", "feed_forward"], ["all"]))
def test_sharing_and_unsharing_of_own_blocks(how, tmp_path):
    config = tiny_config("google_albert")
    arrays = make_arrays("google_albert", config, 1)
    scope = "bert/encoder/transformer/group_0/inner_group_0/adapter/norm"
    arrays |= {f"{scope}/gamma": np.linspace(0.5, 1, 32, dtype="float32")}
    arrays |= {f"{scope}/beta": np.linspace(-1, 0.5, 32, dtype="float32")}
    shared = build(AdaptedALBERT, arrays, config)
    names = {layer.name for layer in shared.layers if "Adapter" in layer.name}
    assert names == {"Transformer-Adapter"}
    model = build(AdaptedALBERT, arrays, config, unshare=how)
    np.testing.assert_allclose(to_numpy(model(BATCH)), to_numpy(shared(BATCH)), atol=1e-6)
    paths = save_weights_as_checkpoint(model, tmp_path / "albert.ckpt", verbose=0)
    again = build(AdaptedALBERT, paths["checkpoint"], paths["config"])
    np.testing.assert_allclose(to_numpy(again(BATCH)), to_numpy(shared(BATCH)), atol=1e-6)
    last = keras.Model(again.inputs, hidden_state(again, -1))
    np.testing.assert_array_equal(to_numpy(last(BATCH)), to_numpy(again(BATCH)))
    if how is None:
        wide = silent(unshare, shared)
        np.testing.assert_allclose(to_numpy(wide(BATCH)), to_numpy(shared(BATCH)), atol=1e-6)
