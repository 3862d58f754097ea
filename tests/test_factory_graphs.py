"""The graphs that `build_transformer_model` makes: layer names, shared objects, own classes."""

import keras
import numpy as np
import pytest

from fixtures import make_arrays, tiny_config
from harness import refused, to_numpy
from kerasbert import build_transformer_model, hidden_state, model_report
from kerasbert.errors import CheckpointError, ConfigError
from kerasbert.layers import ResidualFeedForward, SelfAttention
from kerasbert.models import ALBERT, BERT, Encoder

BATCH = [np.array([[2, 7, 9, 3, 0]], "int32"), np.array([[0, 0, 1, 1, 0]], "int32")]
L = 3
BERT_CONFIG, ALBERT_CONFIG = tiny_config("google_bert"), tiny_config("google_albert")
ALL_HEADS = {"with_pool": True, "with_nsp": True, "with_mlm": True}


def albert(model="albert", **options):
    return build_transformer_model(ALBERT_CONFIG, model=model, **options)


def names(model):
    return [layer.name for layer in model.layers]


def blocks(model, kind=(SelfAttention, ResidualFeedForward)):
    return [layer.name for layer in model.layers if isinstance(layer, kind)]


def halves(*prefixes):
    return {f"{p}-{half}" for p in prefixes for half in ("MultiHeadSelfAttention", "FeedForward")}


def calls(layer):
    return len(layer._inbound_nodes)


# ---- names -----------------------------------------------------------------------------------

EMBEDDINGS = [
    "Input-Token",
    "Input-Segment",
    "Embedding-Token",
    "Embedding-Segment",
    "Embedding-Position",
    "Embedding-Norm",
]
HEADS = ["Pooler-Dense", "NSP-Proba", "MLM-Dense", "MLM-Norm", "MLM-Bias"]


def test_layer_names_of_bert():
    model = build_transformer_model(BERT_CONFIG, **ALL_HEADS)
    assert set(EMBEDDINGS + HEADS) <= set(names(model))
    assert "Embedding-Mapping" not in names(model)
    assert set(blocks(model)) == halves("Transformer-0", "Transformer-1", "Transformer-2")
    assert not [name for name in names(model) if "/" in name]


def test_layer_names_of_albert():
    model = albert(**ALL_HEADS)
    assert {*EMBEDDINGS, "Embedding-Mapping", *HEADS} <= set(names(model))
    assert set(blocks(model)) == halves("Transformer")
    unshared = albert("albert_unshared", **ALL_HEADS)
    assert set(blocks(unshared)) == halves("Transformer-0", "Transformer-1", "Transformer-2")
    others = set(names(model)) - set(blocks(model))
    assert others == set(names(unshared)) - set(blocks(unshared))


def test_layer_names_of_groups():
    model = albert(num_hidden_groups=3, inner_group_num=2)
    assert set(blocks(model)) == halves(
        *[f"Transformer-group-{g}-inner-{j}" for g in range(3) for j in range(2)]
    )
    unshared = albert("albert_unshared", num_hidden_groups=3, inner_group_num=2)
    assert set(blocks(unshared)) == halves(*[f"Transformer-{i}" for i in range(6)])


def test_no_projection_where_widths_agree():
    assert "Embedding-Mapping" not in names(albert(embedding_size=32))
    early = {**tiny_config("albert_zh"), "embedding_size": 32}
    assert "Embedding-Mapping" in names(build_transformer_model(early, model="albert"))


def test_name_and_prefix():
    named = build_transformer_model(BERT_CONFIG, name="我的 model")
    assert named.name == "我的 model"
    model = albert(prefix="学生-", with_mlm=True)
    assert all(name.startswith("学生-") for name in names(model))
    assert {name.removeprefix("学生-") for name in names(model)} == set(
        names(albert(with_mlm=True))
    )


def test_prefix_lets_two_encoders_share_a_model():
    arrays = make_arrays("google_albert", ALBERT_CONFIG, 2)
    pair = [
        build_transformer_model(ALBERT_CONFIG, arrays, model="albert", prefix=p, verbose=0)
        for p in ("query-", "passage-")
    ]
    both = keras.Model(pair[0].inputs + pair[1].inputs, [pair[0].output, pair[1].output])
    first, second = both([*BATCH, *BATCH])
    np.testing.assert_array_equal(to_numpy(first), to_numpy(second))
    assert np.abs(to_numpy(first)).max() > 0.1
    assert len(set(names(both))) == len(names(both))


# ---- one object, several calls ---------------------------------------------------------------


def test_albert_has_one_attention_and_one_feed_forward():
    builder = albert(return_keras_model=False, num_hidden_layers=5)
    attention = [x for x in builder.model.layers if isinstance(x, SelfAttention)]
    feed_forward = [x for x in builder.model.layers if isinstance(x, ResidualFeedForward)]
    assert (len(attention), len(feed_forward)) == (1, 1)
    assert builder.layers["Transformer-MultiHeadSelfAttention"] is attention[0]
    assert builder.layers["Transformer-FeedForward"] is feed_forward[0]
    assert (calls(attention[0]), calls(feed_forward[0])) == (5, 5)
    made = builder.make_blocks()
    assert len(made) == 5
    assert {id(block.attention) for block in made} == {id(attention[0])}
    assert {id(block.feed_forward) for block in made} == {id(feed_forward[0])}
    assert len({id(block) for block in made}) == 1


def test_depth_does_not_change_what_albert_stores():
    assert albert(num_hidden_layers=9).count_params() == albert().count_params()
    shallow, deep = (albert("albert_unshared", num_hidden_layers=n).count_params() for n in (3, 9))
    block = sum(
        layer.count_params() for layer in albert().layers if layer.name in halves("Transformer")
    )
    assert deep - shallow == 6 * block
    assert shallow - albert().count_params() == 2 * block


def test_groups_and_inner_blocks_are_called_in_googles_order():
    model = albert(num_hidden_groups=2, inner_group_num=2, num_hidden_layers=3)
    expected = [(0, 0), (0, 1), (0, 0), (0, 1), (1, 0), (1, 1)]  # int(layer / 3 * 2) = 0, 0, 1
    for k, (group, inner) in enumerate(expected, start=1):
        producer = hidden_state(model, k)._keras_history.operation
        assert producer.name == f"Transformer-group-{group}-inner-{inner}-FeedForward"


@pytest.mark.parametrize(
    ("options", "attention", "feed_forward"),
    [
        ({}, 1, 1),
        ({"unshare": "attention"}, 3, 1),
        ({"unshare": "feed_forward"}, 1, 3),
        ({"unshare": "all"}, 3, 3),
        ({"unshare_layers": [1]}, 2, 2),
        ({"unshare_layers": (0, 2), "unshare": "feed_forward"}, 1, 3),
        ({"unshare_layers": []}, 1, 1),
        ({"unshare_layers": [np.int64(2), 2]}, 2, 2),
    ],
)
def test_unsharing(options, attention, feed_forward):
    model = albert(**options)
    assert len(blocks(model, SelfAttention)) == attention
    assert len(blocks(model, ResidualFeedForward)) == feed_forward
    total = sum(
        calls(x) for x in model.layers if isinstance(x, (SelfAttention, ResidualFeedForward))
    )
    assert total == 2 * L


def test_albert_unshared_is_unshare_all():
    arrays = make_arrays("google_albert", ALBERT_CONFIG, 4)
    models = [
        build_transformer_model(ALBERT_CONFIG, arrays, verbose=0, **options)
        for options in (
            {"model": "albert_unshared"},
            {"model": "albert", "unshare": "all"},
            {"model": "albert_unshared", "unshare": "all"},
            {"model": "albert"},
        )
    ]
    assert names(models[0]) == names(models[1]) == names(models[2])
    for model in models[1:]:
        np.testing.assert_allclose(
            to_numpy(model(BATCH)), to_numpy(models[0](BATCH)), atol=1e-6, rtol=0
        )


@pytest.mark.parametrize("value", ["atention", "both", "", True, 1, ["attention"]])
def test_wrong_unshare(value):
    facts = ["attention", "feed_forward", "all"]
    with refused(ConfigError, f"unshare={value!r}", *facts) as caught:
        albert(unshare=value)
    assert value != "atention" or "Did you mean 'attention'" in str(caught.value)


@pytest.mark.parametrize("value", [[3], [-1], ["0"], [True], [0.0], 1, "01", {0: 1}])
def test_wrong_unshare_layers(value):
    with refused(ConfigError, "unshare_layers", repr(value).strip("[]"), 0, 2):
        albert(unshare_layers=value)


def test_layers_to_unshare_may_be_a_range():
    names = [[layer.name for layer in albert(unshare_layers=x).layers] for x in (range(2), [0, 1])]
    assert names[0] == names[1]


@pytest.mark.parametrize("options", [{"unshare": "all"}, {"unshare_layers": [0]}])
@pytest.mark.parametrize("model", ["bert", "roberta"])
def test_unsharing_what_is_not_shared(model, options):
    with refused(ConfigError, next(iter(options)), "bert", "model='albert'"):
        build_transformer_model(BERT_CONFIG, model=model, **options)


@pytest.mark.parametrize("options", [{"unshare": "attention"}, {"unshare_layers": [0]}])
def test_unsharing_twice(options):
    with refused(ConfigError, "albert_unshared", next(iter(options)), "model='albert'"):
        albert("albert_unshared", **options)


def test_sizes_from_numpy_do_not_hinder_saving(tmp_path):
    sizes = {key: np.int64(v) for key, v in ALBERT_CONFIG.items() if isinstance(v, int)}
    config = {**ALBERT_CONFIG, **sizes}
    model = build_transformer_model(config, model="albert", unshare_layers=[np.int64(1)])
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(to_numpy(again(BATCH)), to_numpy(model(BATCH)))
    np.testing.assert_array_equal(
        to_numpy(keras.Model(again.inputs, hidden_state(again, 1))(BATCH)),
        to_numpy(keras.Model(model.inputs, hidden_state(model, 1))(BATCH)),
    )


# ---- names of models, classes of the user ----------------------------------------------------


def test_roberta_is_bert():
    arrays = make_arrays("google_bert", BERT_CONFIG, 5)
    bert, roberta = (
        build_transformer_model(BERT_CONFIG, arrays, model=model, verbose=0, **ALL_HEADS)
        for model in ("bert", "roberta")
    )
    assert names(bert) == names(roberta)
    for one, other in zip(bert(BATCH), roberta(BATCH), strict=True):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(other))


def test_the_builder_is_returned_on_request():
    arrays = make_arrays("google_bert", BERT_CONFIG, 6)
    builder = build_transformer_model(
        BERT_CONFIG, arrays, return_keras_model=False, verbose=0, with_nsp=True, with_mlm=True
    )
    assert type(builder) is BERT
    assert builder.config.hidden_size == 32
    assert [tensor.name for tensor in builder.inputs] == ["Input-Token", "Input-Segment"]
    assert builder.outputs == builder.model.output
    assert len(builder.hidden_states) == L + 1
    assert set(builder.layers) <= set(names(builder.model))
    assert set(names(builder.model)) - set(builder.layers) == {"Input-Token", "Input-Segment"}
    np.testing.assert_array_equal(
        to_numpy(builder.layers["Embedding-Token"].embeddings),
        arrays["bert/embeddings/word_embeddings"],
    )
    assert isinstance(builder.initializer, keras.initializers.Initializer)
    assert model_report(builder.model).missing == []


class Twice(BERT):
    """A class of a user: it doubles the last hidden state."""

    def make_heads(self, hidden):
        double = self.layer(keras.layers.Rescaling, "Double", scale=2.0)
        return [double(hidden), *super().make_heads(hidden)]


def test_a_class_of_the_user():
    arrays = make_arrays("google_bert", BERT_CONFIG, 7)
    plain = build_transformer_model(BERT_CONFIG, arrays, verbose=0)
    twice = build_transformer_model(BERT_CONFIG, arrays, model=Twice, verbose=0, prefix="x-")
    np.testing.assert_allclose(
        to_numpy(twice(BATCH)), 2 * to_numpy(plain(BATCH)), atol=1e-6, rtol=0
    )
    assert "x-Double" in names(twice)
    assert blocks(build_transformer_model(ALBERT_CONFIG, model=ALBERT)) == blocks(albert())


class NoFamily(Encoder):
    """Forgets to say what it is."""


@pytest.mark.parametrize("value", [NoFamily, keras.Model, object])
def test_a_class_that_is_no_encoder(value):
    with refused(ConfigError, value.__name__, "Encoder"):
        build_transformer_model(BERT_CONFIG, model=value)


def test_a_model_without_checkpoint_has_no_report():
    with refused(CheckpointError, "load_weights_from_checkpoint"):
        model_report(albert())
