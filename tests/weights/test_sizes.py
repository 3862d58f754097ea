"""Sizes from shapes alone: published models, what no shape shows, and audits of configs."""

import json

import numpy as np
import pytest

from fixtures import make_arrays, tiny_config, variable_shapes, write_checkpoint, write_config
from harness import refused, silent, to_numpy
from kerasbert import build_transformer_model, model_report
from kerasbert.errors import ConfigError, WeightMismatchError
from kerasbert.models.view import find_encoder
from kerasbert.weights.audit import audit
from kerasbert.weights.checkpoints import open_checkpoint
from kerasbert.weights.detect import detect
from kerasbert.weights.sizes import infer_config, sizes_in

BATCH = [np.array([[2, 7, 9, 3, 0]], "int32"), np.array([[0, 0, 1, 1, 0]], "int32")]


class Names:
    """A checkpoint without numbers, for models that are too large to make."""

    source = "the names"

    def __init__(self, shapes):
        self.shapes = shapes


def published(kind, **sizes):
    config = tiny_config(kind, max_position_embeddings=512, **sizes)
    checkpoint = Names(variable_shapes(kind, config))
    return checkpoint, detect(checkpoint)


# kind, sizes, what is to be inferred besides
PUBLISHED = {
    "BERT base": (
        "google_bert",
        {"vocab_size": 21128, "hidden_size": 768, "intermediate_size": 3072},
        {"num_hidden_layers": 12, "num_attention_heads": 12, "hidden_act": "gelu_tanh"},
    ),
    "BERT large": (
        "google_bert",
        {"vocab_size": 30522, "hidden_size": 1024, "intermediate_size": 4096},
        {"num_hidden_layers": 24, "num_attention_heads": 16, "hidden_dropout_prob": 0.1},
    ),
    "ALBERT base v2": (
        "google_albert",
        {"vocab_size": 30000, "hidden_size": 768, "embedding_size": 128, "intermediate_size": 3072},
        {"num_hidden_layers": 12, "num_attention_heads": 12, "hidden_act": "gelu_tanh"},
    ),
    "ALBERT large zh": (
        "google_albert",
        {
            "vocab_size": 21128,
            "hidden_size": 1024,
            "embedding_size": 128,
            "intermediate_size": 4096,
        },
        {"num_hidden_layers": 24, "num_attention_heads": 16, "hidden_act": "relu"},
    ),
    "ALBERT xxlarge": (
        "google_albert",
        {
            "vocab_size": 30000,
            "hidden_size": 4096,
            "embedding_size": 128,
            "intermediate_size": 16384,
        },
        {"num_hidden_layers": 12, "num_attention_heads": 64, "hidden_dropout_prob": 0.0},
    ),
    "albert_tiny_zh_google": (
        "google_albert",
        {"vocab_size": 21128, "hidden_size": 312, "embedding_size": 128, "intermediate_size": 1248},
        {"num_hidden_layers": 4, "num_attention_heads": 12, "hidden_act": "gelu_tanh"},
    ),
    "albert_small_zh_google": (
        "google_albert",
        {"vocab_size": 21128, "hidden_size": 384, "embedding_size": 128, "intermediate_size": 1536},
        {"num_hidden_layers": 6, "num_attention_heads": 12, "hidden_act": "gelu_tanh"},
    ),
    "albert_large_zh, early": (
        "albert_zh",
        {
            "vocab_size": 21128,
            "hidden_size": 1024,
            "embedding_size": 128,
            "intermediate_size": 4096,
        },
        {"num_hidden_layers": 24, "num_attention_heads": 16, "ln_type": "postln"},
    ),
    "ELECTRA small": (
        "electra",
        {"vocab_size": 30522, "hidden_size": 256, "embedding_size": 128, "intermediate_size": 1024},
        {"num_hidden_layers": 12, "num_attention_heads": 4, "hidden_act": "gelu_erf"},
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_models(name):
    kind, sizes, expected = PUBLISHED[name]
    depth = {} if "albert" in kind else {"num_hidden_layers": expected["num_hidden_layers"]}
    checkpoint, match = published(kind, **sizes, **depth)
    values, assumed = infer_config(checkpoint, match, {})
    wanted = {**sizes, **expected, "max_position_embeddings": 512, "type_vocab_size": 2}
    assert {key: values[key] for key in wanted} == wanted
    for key in ("num_attention_heads", "hidden_act"):
        assert any(text.startswith(f"{key}=") for text in assumed), "what is assumed is said"
    if "albert" in kind:
        assert any(text.startswith("num_hidden_layers=") for text in assumed)


@pytest.mark.parametrize(
    ("kind", "sizes", "key", "fact"),
    [
        ("google_bert", {"hidden_size": 100}, "num_attention_heads", "100"),
        ("google_bert", {"hidden_size": 384}, "num_attention_heads", "6 or 12"),
        ("google_bert", {"hidden_size": 312}, "num_attention_heads", "6 or 12"),
        ("google_albert", {"hidden_size": 2048}, "num_attention_heads", "16 and with 32"),
        ("albert_zh", {"hidden_size": 2048}, "num_attention_heads", "16 and with 32"),
        ("google_albert", {"hidden_size": 512}, "num_hidden_layers", "several layers"),
        (
            "google_albert",
            {"hidden_size": 768, "num_hidden_groups": 2},
            "num_hidden_layers",
            "several layers",
        ),
        (
            "google_albert",
            {"hidden_size": 768, "inner_group_num": 2},
            "num_hidden_layers",
            "several layers",
        ),
        ("electra", {"hidden_size": 96, "num_attention_heads": 3}, "num_attention_heads", "96"),
    ],
)
def test_what_is_ambiguous(kind, sizes, key, fact):
    heads = sizes.get("num_attention_heads", 1)
    checkpoint, match = published(kind, **{**sizes, "num_attention_heads": heads})
    with refused(ConfigError, key, fact, "the names", f"Pass {key}="):
        infer_config(checkpoint, match, {})
    given = {"num_attention_heads": 4, "num_hidden_layers": 4}
    values, assumed = infer_config(checkpoint, match, given)
    assert {k: values[k] for k in given} == given
    assert not any(text.startswith(tuple(given)) for text in assumed)


def test_groups_and_inner_groups():
    checkpoint, match = published("google_albert", num_hidden_groups=3, inner_group_num=2)
    sizes = sizes_in(checkpoint, match)
    assert (sizes["num_hidden_groups"].value, sizes["inner_group_num"].value) == (3, 2)
    assert "num_hidden_layers" not in sizes
    assert "group_2/inner_group_" in sizes["num_hidden_groups"].evidence


def test_a_damaged_file_shows_less():
    checkpoint, match = published("google_bert")
    for name in checkpoint.shapes:
        if "position" in name:
            checkpoint.shapes[name] = (3,)
    with refused(ConfigError, "max_position_embeddings", "number of axes"):
        infer_config(checkpoint, match, {})


# ---- through the factory ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["google_bert", "google_albert", "albert_zh", "electra"])
def test_the_model_is_that_of_the_config(kind, tmp_path):
    config = tiny_config(kind, num_hidden_layers=2)
    prefix = write_checkpoint(tmp_path / "alone/m.ckpt", make_arrays(kind, config, 1))
    path = write_config(tmp_path / "config.json", config)
    known = silent(build_transformer_model, path, prefix, verbose=0)
    depth = {"num_hidden_layers": 2} if "albert" in kind else {}
    heads = {"num_attention_heads": config["num_attention_heads"]}
    with pytest.warns(UserWarning, match="hidden_act=.*; hidden_dropout_prob=") as caught:
        inferred = build_transformer_model(None, prefix, verbose=0, **heads, **depth)
    assert "num_attention_heads" not in str(caught[0].message), "it was given"
    before, after = (find_encoder(model).config for model in (known, inferred))
    same = before.replace(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    assert same == after.replace(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    np.testing.assert_array_equal(to_numpy(known(BATCH)), to_numpy(inferred(BATCH)))


def test_nothing_is_inferred_beside_a_config():
    config = tiny_config("google_bert")
    arrays = make_arrays("google_bert", config, 1)
    del config["intermediate_size"]
    with refused(ConfigError, "Missing in the config dict", "intermediate_size"):
        build_transformer_model(config, arrays)


def test_fewer_layers_than_the_file_by_keyword():
    arrays = make_arrays("google_bert", tiny_config("google_bert", num_hidden_layers=3), 1)
    with pytest.warns(UserWarning, match="No config was given"):
        model = build_transformer_model(
            None, arrays, num_hidden_layers=2, num_attention_heads=4, verbose=0
        )
    assert len(model_report(model).skipped_layers) == 16


@pytest.mark.parametrize("folder", ["google-research+bert", "hellonlp+classifier_multi_label"])
def test_genuine_names_and_shapes(folder, shared_dir):
    import tensorflow as tf

    base = shared_dir / "weights/index-only" / folder
    (index,) = base.rglob("*.index")
    (file,) = base.rglob("*config*.json")
    config = json.loads(file.read_text("utf-8"))
    reader = tf.compat.v1.train.NewCheckpointReader(str(index.with_suffix("")))
    shapes = reader.get_variable_to_shape_map()
    checkpoint = Names({name: tuple(shape) for name, shape in shapes.items()})
    values, _ = infer_config(checkpoint, detect(checkpoint), {})
    for key in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"):
        assert values[key] == config[key]
    assert values["intermediate_size"] == config["intermediate_size"]
    assert audit(config, checkpoint, detect(checkpoint)) == []


# ---- audit -----------------------------------------------------------------------------------


def audited(kind, config, **said):
    checkpoint = open_checkpoint(make_arrays(kind, config, 1))
    return audit({**config, **said}, checkpoint, detect(checkpoint))


@pytest.mark.parametrize(
    "kind", ["google_bert", "google_albert", "albert_zh", "albert_zh_unshared", "electra"]
)
def test_a_config_that_fits(kind):
    assert audited(kind, tiny_config(kind)) == []


def test_every_point_is_named():
    config = tiny_config("google_albert")
    said = {"vocab_size": 7, "hidden_size": 64, "intermediate_size": 8, "num_hidden_groups": 1}
    findings = audited("google_albert", {**config, "num_hidden_groups": 2}, **said)
    assert {finding.key for finding in findings} == said.keys()
    assert all(finding.certain for finding in findings)
    for key, value in said.items():
        (finding,) = (f for f in findings if f.key == key)
        assert f"{key} is {value} in the configuration" in str(finding)
    arrays = make_arrays("google_albert", {**config, "num_hidden_groups": 2}, 1)
    with refused(WeightMismatchError, *said, "the config dict contradicts"):
        build_transformer_model({**config, **said}, arrays)


def test_equal_widths_that_are_not():
    config = tiny_config("google_albert")
    (finding,) = audited("google_albert", config, embedding_size=32)
    assert (finding.key, finding.certain) == ("embedding_size", True)
    del config["embedding_size"]
    checkpoint = open_checkpoint(make_arrays("google_albert", tiny_config("google_albert"), 1))
    (finding,) = audit(config, checkpoint, detect(checkpoint))
    assert "embedding_size is not in the configuration, 16 in the file" in str(finding)


@pytest.mark.parametrize(
    ("sizes", "said", "key"),
    [
        ({"vocab_size": 21128, "hidden_size": 768}, {"hidden_act": "gelu"}, "hidden_act"),
        ({"vocab_size": 21128, "hidden_size": 768}, {"hidden_act": "relu"}, None),
        ({"vocab_size": 21128, "hidden_size": 312}, {"hidden_act": "gelu"}, None),
        ({"vocab_size": 21128, "hidden_size": 312}, {"hidden_act": "relu"}, "hidden_act"),
        ({"vocab_size": 30000, "hidden_size": 768}, {"hidden_act": "gelu"}, None),
        (
            {"vocab_size": 30000, "hidden_size": 2048},
            {"num_attention_heads": 32},
            "num_attention_heads",
        ),
        (
            {"vocab_size": 30000, "hidden_size": 2048},
            {"num_attention_heads": 16, "hidden_dropout_prob": 0},
            "num_attention_heads",
        ),
        (
            {"vocab_size": 30000, "hidden_size": 2048},
            {"num_attention_heads": 16, "hidden_dropout_prob": 0.1},
            None,
        ),
    ],
)
def test_what_is_known_of_releases(sizes, said, key):
    config = tiny_config("google_albert", num_attention_heads=12, hidden_act="relu")
    config = {**config, **sizes, **said}
    checkpoint = Names(variable_shapes("google_albert", {**config, "num_attention_heads": 1}))
    findings = audit(config, checkpoint, detect(checkpoint))
    assert [finding.key for finding in findings] == ([key] if key else [])
    assert not any(finding.certain for finding in findings)


def test_doubts_are_warnings():
    config = tiny_config(
        "google_albert",
        vocab_size=21128,
        hidden_size=64,
        embedding_size=4,
        hidden_act="gelu",
    )
    arrays = make_arrays("google_albert", config, 1)
    with pytest.warns(UserWarning, match="the config dict: hidden_act is 'gelu'.*relu"):
        build_transformer_model(config, arrays, verbose=0)
