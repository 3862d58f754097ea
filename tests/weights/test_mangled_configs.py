"""Damaged and senseless config files on their way through `build_transformer_model`."""

import contextlib
import json
import os
import random
import signal
from pathlib import Path

import pytest

from harness import refused
from kerasbert import build_transformer_model, save_pretrained
from kerasbert.errors import ConfigError, KerasbertError, WeightMismatchError
from weights.mangling import OTHERS, put, values
from weights.mangling import builds as builds
from weights.mangling import tiny_bert as tiny_bert


@pytest.fixture(scope="module")
def sound(tiny_bert, tmp_path_factory):
    """The files of a sound folder, {name: bytes}."""
    folder = tmp_path_factory.mktemp("sound")
    save_pretrained(tiny_bert, folder, verbose=0)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def configured(sound, builds, tiny_bert):
    """A function that builds a model with another config.json; its numbers are the file's.

    The path of the config file itself, beside the folder with the weights, says the same.
    """

    def build(config, **options):
        data = config if isinstance(config, bytes) else json.dumps(config).encode()
        try:
            model = builds({**sound, "config.json": data}, load_too=False, **options)
        except KerasbertError:
            with pytest.raises(KerasbertError):
                build_transformer_model("model/config.json", "model", verbose=0, **options)
            raise
        for one, other in zip(values(model), values(tiny_bert), strict=True):
            assert one.tobytes() == other.tobytes()
        return model

    return build


@pytest.fixture(scope="module")
def config(sound):
    return json.loads(sound["config.json"])


# ---- spoilt by chance ------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_truncated(seed, sound, configured):
    whole = sound["config.json"].rstrip()
    cut = (0, len(whole) - 1)[seed] if seed < 2 else random.Random(seed).randrange(len(whole))
    with refused(ConfigError, "config"):
        configured(whole[:cut])


@pytest.mark.parametrize("seed", range(40))
def test_flipped_byte(seed, sound, configured):
    """What it still says may be a rate of dropout or a key that nobody reads, never a size."""
    rng, data = random.Random(seed), bytearray(sound["config.json"])
    data[rng.randrange(len(data))] ^= rng.randrange(1, 256)
    try:
        configured(bytes(data))
    except KerasbertError as error:
        assert isinstance(error, ConfigError | WeightMismatchError)


# ---- something else than a config ------------------------------------------------------------

CONFIGS = {
    **OTHERS,
    "a list": b"[]",
    "a list of configs": b'[{"hidden_size": 8}]',
    "a number": b"5",
    "a text in JSON": b'"hidden_size"',
    "null": b"null",
    "no keys": b"{}",
    "one key": b'{"hidden_size": 8}',
    "deep JSON": b'{"hidden_size":' + b"[" * 200_000,
    "a number of ten thousand digits": b'{"hidden_size":' + b"9" * 10_000 + b"}",
    "a byte that is no text": b'{"hidden_size": "\xff"}',
    "UTF-16": '{"hidden_size": 8}'.encode("utf-16"),
    "a comment": b'{"hidden_size": 8} // of the model',
    "single quotes": b"{'hidden_size': 8}",
    "a comma too many": b'{"hidden_size": 8,}',
    "two objects": b'{"hidden_size": 8}{"hidden_size": 8}',
    "YAML": b"hidden_size: 8\n",
}


@pytest.mark.parametrize("name", CONFIGS)
def test_another_kind_of_file(name, configured):
    with refused(ConfigError, "config"):
        configured(CONFIGS[name])


def test_two_configs(sound, builds):
    with refused(ConfigError, "2 config files", "config.json", "other.json"):
        builds({**sound, "other.json": sound["config.json"]}, load_too=False)


@contextlib.contextmanager
def at_most(seconds):
    """Ends a wait that may be for ever: to open a pipe waits for a writer."""
    previous = signal.signal(signal.SIGALRM, lambda *_: pytest.fail(f"waits over {seconds} s"))
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


@pytest.mark.parametrize("kind", ["absent", "folder", "pipe", "broken link"])
def test_no_config_file(kind, sound, builds, tmp_path):
    path = tmp_path / "model" / "config.json"
    path.parent.mkdir()
    if kind == "folder":
        path.mkdir()
    elif kind == "broken link":
        path.symlink_to("nowhere")
    elif kind == "pipe":
        if not hasattr(os, "mkfifo"):
            pytest.skip("needs named pipes: not on this system")
        os.mkfifo(path)
    with refused(ConfigError, "0 config files"), at_most(2):
        builds({"model.safetensors": sound["model.safetensors"]}, load_too=False)


@pytest.mark.parametrize("place", ["nowhere", "model/nowhere", "n" * 5000, "a\0b", "model\n"])
def test_no_such_place(place, sound, builds):
    """Said of a config, a checkpoint, or both."""
    put(Path("model"), sound)
    for arguments in ((place,), (place, "model"), ("model", place), (None, place)):
        with pytest.raises(KerasbertError):
            build_transformer_model(*arguments, verbose=0)


# ---- senseless values ------------------------------------------------------------------------

SIZES = [
    "hidden_size",
    "intermediate_size",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_layers",
    "vocab_size",
    "embedding_size",
    "type_vocab_size",
]
RATES = [
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "layer_norm_eps",
    "initializer_range",
]
NAN, INFINITE = float("nan"), float("inf")
NO_SIZES = ["8", "", True, -8, 8.0, 8.5, NAN, INFINITE, -INFINITE, [8], {"size": 8}, 7, 9]
NO_RATES = ["0.1", True, -0.1, 1, 1.5, NAN, INFINITE, [0.1], 10**400]


@contextlib.contextmanager
def senseless(*facts):
    """Refused for what the configuration says itself, or because the file proves it wrong."""
    with pytest.raises(KerasbertError) as caught:
        yield
    with refused(ConfigError if caught.type is ConfigError else WeightMismatchError, *facts):
        raise caught.value


@pytest.mark.parametrize("key", SIZES)
@pytest.mark.parametrize("value", NO_SIZES, ids=repr)
def test_senseless_size(key, value, config, configured):
    with senseless(key):
        configured({**config, key: value})


@pytest.mark.parametrize("key", RATES)
@pytest.mark.parametrize("value", NO_RATES, ids=lambda value: repr(value)[:20])
def test_senseless_rate(key, value, config, configured):
    with refused(ConfigError, key):
        configured({**config, key: value})


@pytest.mark.parametrize("key", [*SIZES[:2], *SIZES[3:6], "hidden_act"])
@pytest.mark.parametrize("value", [None, ...], ids=["null", "absent"])
def test_absent_key(key, value, config, configured):
    other = {name: old for name, old in config.items() if name != key}
    with refused(ConfigError, key):
        configured(other if value is ... else {**other, key: value})


OTHER_KEYS = [
    ("hidden_act", 5),
    ("hidden_act", ["gelu"]),
    ("hidden_act", "__import__('os')"),
    ("hidden_act", "tf.io.write_file"),
    ("model_type", "gpt2"),
    ("model_type", "albert"),
    ("model_type", "../../etc"),
    ("position_embedding_type", "relative_key"),
    ("position_embedding_type", ["absolute"]),
    ("is_decoder", True),
    ("is_decoder", "no"),
    ("pruned_heads", {"0": [1]}),
    ("ln_type", "preln"),
    ("ln_type", 5),
    ("num_hidden_groups", 0),
    ("num_hidden_groups", "1"),
    ("num_hidden_groups", NAN),
    ("inner_group_num", -1),
    ("inner_group_num", INFINITE),
    ("unshare_layers", 5),
    ("unshare_layers", True),
    ("unshare_layers", "all"),
    ("unshare_layers", {"a": 1}),
    ("unshare_layers", NAN),
    ("keep_tokens", "all"),
    ("keep_tokens", [0, 10**9]),
    ("keep_tokens", [0, -1]),
    ("keep_tokens", {"0": 0}),
    ("compound_tokens", [[10**9]]),
    ("compound_tokens", 5),
    ("with_pool", "os.system"),
    ("with_mlm", [1]),
    ("with_nsp", {"a": 1}),
    ("with_mlm", True),
]


@pytest.mark.parametrize(("key", "value"), OTHER_KEYS, ids=repr)
def test_other_keys(key, value, config, configured):
    with senseless():
        configured({**config, key: value})


# What nobody reads may be anything.
IDLE = [
    ("architectures", 5),
    ("transformers_version", [NAN]),
    ("tie_word_embeddings", "perhaps"),
    ("pad_token_id", -(10**30)),
    ("num_hidden_groups", 10**9),
    ("num_labels", -5),
    ("id2label", [1]),
    ("dtype", "float2"),
    ("torch_dtype", {"a": 1}),
    ("auto_map", {"AutoModel": "evil.py--Model"}),
    ("name", "a/b"),
    ("strict", False),
    ("verbose", 2),
    ("family", "gpt2"),
    ("kéy\n\0", "välue"),
]


@pytest.mark.parametrize(("key", "value"), IDLE, ids=repr)
def test_keys_that_nobody_reads(key, value, config, configured, capsys):
    configured({**config, key: value})
    assert capsys.readouterr().out == ""
