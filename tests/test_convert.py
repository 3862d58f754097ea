"""Conversion between all forms: there and back to the same bits, or a reason why not."""

import json

import keras
import numpy as np
import pytest

from fixtures import DATA, make_arrays, tiny_config, write_checkpoint, write_config
from harness import default_and_slow, refused, silent, to_numpy
from kerasbert import build_transformer_model, convert, save_pretrained, unshare
from kerasbert.errors import WeightMismatchError
from kerasbert.models.view import find_encoder
from kerasbert.tokenizers import Tokenizer, load_vocab, save_vocab
from kerasbert.weights.checkpoints import open_checkpoint

FORMS = ("google", "albert_zh", "huggingface", "keras")
BATCH = [np.array([[2, 7, 9, 3, 0]], "int32"), np.array([[0, 0, 1, 1, 0]], "int32")]

# Every source, its options, and the forms that can hold it bit for bit.
SOURCES = {
    "bert": ("google_bert", {}, {"google", "huggingface", "keras"}),
    "albert": ("google_albert", {}, {"google", "huggingface", "keras"}),
    "albert_groups": (
        "google_albert",
        {"num_hidden_groups": 2, "inner_group_num": 2, "num_hidden_layers": 4},
        {"google", "huggingface", "keras"},
    ),
    "albert_square": ("google_albert", {"embedding_size": 32}, set(FORMS)),
    "albert_zh": ("albert_zh", {}, {"albert_zh", "keras"}),
    "albert_zh_preln": ("albert_zh", {"ln_type": "preln"}, {"albert_zh", "keras"}),
    "electra": ("electra", {}, {"google", "huggingface", "keras"}),
}
ROUND_TRIPS = [
    (name, first, second)
    for name, (_, _, forms) in SOURCES.items()
    for first in FORMS
    for second in FORMS
    if {first, second} <= forms and first != second
]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A function from a name to a folder with the checkpoint, its config and a vocabulary."""
    root = tmp_path_factory.mktemp("sources")

    def source(name):
        folder = root / name
        if not folder.exists():
            kind, sizes, _ = SOURCES[name]
            layers = 2 if kind in ("google_albert", "albert_zh") else 1
            config = tiny_config(kind, **{"num_hidden_layers": layers, **sizes})
            write_checkpoint(folder / "model.ckpt", make_arrays(kind, config, 3))
            write_config(folder / "config.json", config)
            words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
            words += [f"w{i}" for i in range(config["vocab_size"] - 5)]
            save_vocab(folder / "vocab.txt", {word: i for i, word in enumerate(words)})
        return folder

    return source


def place(folder, form):
    return folder / (f"{form}.keras" if form == "keras" else form)


def weights_at(path):
    """Dict from name to value: of the variables in the file, whatever its form."""
    if path.suffix == ".keras":
        return as_dict(keras.models.load_model(path))
    checkpoint = open_checkpoint(path)
    return {name: checkpoint.read(name) for name in checkpoint.shapes}


def model_at(path):
    """Dict from the path of every weight, heads included, to its value."""
    if path.suffix != ".keras":
        twin = path.with_name(f"{path.name}_twin.keras")
        silent(convert, path, twin, "keras", verbose=0)
        path = twin
    return as_dict(keras.models.load_model(path))


def as_dict(model):
    return {weight.path: to_numpy(weight) for weight in model.weights}


def outputs(path):
    model = keras.models.load_model(path) if str(path).endswith(".keras") else path
    return [to_numpy(output) for output in keras.tree.flatten(model(BATCH))]


# ---- there and back --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "first", "second"),
    default_and_slow(ROUND_TRIPS, {pair[1:]: pair for pair in ROUND_TRIPS}.values()),
)
def test_there_and_back(name, first, second, sources, tmp_path):
    one, two = place(tmp_path, first), place(tmp_path, second)
    silent(convert, sources(name), one, first, verbose=0)
    silent(convert, one, two, second, verbose=0)
    again = place(tmp_path / "again", first)
    silent(convert, two, again, first, verbose=0)
    before, after = weights_at(one), weights_at(again)
    assert len(before) > 15
    # A second matrix that changes nothing is all that early albert_zh, and transformers, add.
    added = {key.rpartition("/")[2]: after[key] for key in after.keys() - before.keys()}
    assert added.keys() <= ({"kernel", "bias"} if name == "albert_square" else set())
    for key, value in added.items():
        np.testing.assert_array_equal(value, np.eye(32) if key == "kernel" else np.zeros(32))
    for key, value in before.items():
        np.testing.assert_array_equal(value, after[key], err_msg=key)


@pytest.mark.parametrize(
    "name",
    default_and_slow(
        ["bert", "albert", "albert_groups", "albert_square", "electra"],
        ["bert", "albert_groups", "electra"],
    ),
)
def test_the_files_of_google_are_the_same_again(name, sources, tmp_path):
    from fixtures import read_checkpoint

    silent(convert, sources(name), tmp_path / "hf", "huggingface", verbose=0)
    silent(convert, tmp_path / "hf", tmp_path / "back", "google", verbose=0)
    (index,) = (tmp_path / "back").glob("*.index")
    old = read_checkpoint(sources(name) / "model.ckpt")
    new = read_checkpoint(index.with_suffix(""))
    # The other tower of ELECTRA is a model of its own.
    old = {key: value for key, value in old.items() if not key.startswith("generator")}
    assert old.keys() == new.keys()
    for key, value in old.items():
        np.testing.assert_array_equal(value, new[key], err_msg=key)
    assert (tmp_path / "back/vocab.txt").read_bytes() == (sources(name) / "vocab.txt").read_bytes()


@pytest.mark.parametrize(
    "tower", default_and_slow(["electra", "electra_generator"], ["electra_generator"])
)
def test_both_towers_of_electra(tower, tmp_path):
    source = DATA / "golden/electra_untied_gen"
    config = source / f"{'generator' if tower.endswith('r') else 'discriminator'}_config.json"
    for form in ("huggingface", "google", "keras"):
        new = place(tmp_path, form)
        silent(convert, source / "model.ckpt", new, form, config=config, model=tower, verbose=0)
    reference = model_at(place(tmp_path, "keras"))
    for form in ("huggingface", "google"):
        found = model_at(tmp_path / form)
        assert found.keys() == reference.keys()
        for key, value in found.items():
            np.testing.assert_array_equal(value, reference[key])


# ---- folding ---------------------------------------------------------------------------------


@pytest.mark.parametrize("form", default_and_slow(["google", "huggingface"], ["google"]))
def test_early_albert_zh_is_folded(form, sources, tmp_path):
    silent(convert, sources("albert_zh"), tmp_path / "plain.keras", "keras", verbose=0)
    silent(convert, sources("albert_zh"), tmp_path / form, form, verbose=0)
    silent(convert, tmp_path / form, tmp_path / "folded.keras", "keras", verbose=0)
    folded = find_encoder(keras.models.load_model(tmp_path / "folded.keras")).config
    assert folded.embedding_order == "project_last"
    assert folded.embedding_size == folded.hidden_size == 32
    for old, new in zip(
        outputs(tmp_path / "plain.keras"), outputs(tmp_path / "folded.keras"), strict=True
    ):
        np.testing.assert_allclose(new, old, rtol=0, atol=1e-5)


def test_the_table_is_the_product(sources, tmp_path):
    from fixtures import read_checkpoint

    silent(convert, sources("albert_zh"), tmp_path / "google", "google", verbose=0)
    old = read_checkpoint(sources("albert_zh") / "model.ckpt")
    new = read_checkpoint(tmp_path / "google/albert_model.ckpt")
    table = old["bert/embeddings/word_embeddings"].astype("float64")
    product = table @ old["bert/embeddings/word_embeddings_2"]
    np.testing.assert_array_equal(new["bert/embeddings/word_embeddings"], product.astype("float32"))
    assert "bert/embeddings/word_embeddings_2" not in new


@pytest.mark.parametrize(
    ("name", "to", "facts"),
    [
        ("albert_zh_preln", "google", ("ln_type='preln'", "normalises before", "albert_zh")),
        ("albert_zh_preln", "huggingface", ("ln_type='preln'", "albert_zh")),
        ("albert", "albert_zh", ("embedding_size=16", "hidden_size=32", "google")),
        ("albert_groups", "albert_zh", ("embedding_size=16",)),
        ("bert", "albert_zh", ("bert family", "ALBERT")),
        ("electra", "albert_zh", ("electra family", "ALBERT")),
    ],
)
def test_what_cannot_be_represented(name, to, facts, sources, tmp_path):
    with refused(WeightMismatchError, *facts):
        silent(convert, sources(name), tmp_path / "out", to, verbose=0)
    assert list(tmp_path.iterdir()) == []


def test_a_square_albert_with_groups_is_no_albert_zh(tmp_path):
    config = tiny_config("google_albert", embedding_size=32, num_hidden_groups=2)
    write_checkpoint(tmp_path / "in/model.ckpt", make_arrays("google_albert", config, 3))
    write_config(tmp_path / "in/config.json", config)
    with refused(WeightMismatchError, "sharing_groups=2"):
        silent(convert, tmp_path / "in", tmp_path / "out", "albert_zh", verbose=0)


def test_a_projection_that_does_something_is_no_google_albert(sources, tmp_path):
    silent(convert, sources("albert_square"), tmp_path / "hf", "huggingface", verbose=0)
    model = silent(build_transformer_model, tmp_path / "hf", verbose=0)
    kernel = find_encoder(model).layer("Embedding-Mapping").kernel
    kernel.assign(kernel + 0.5)
    save_pretrained(model, tmp_path / "other", verbose=0)
    with refused(WeightMismatchError, "projects its embeddings", "identity"):
        silent(convert, tmp_path / "other", tmp_path / "out", "google", verbose=0)
    silent(convert, tmp_path / "other", tmp_path / "out", "huggingface", verbose=0)


def test_families_without_original_code(tmp_path):
    sizes = tiny_config("google_bert", num_hidden_layers=1)
    for model in ("roberta", "distilbert"):
        config = {**sizes, "model_type": model, "hidden_act": "gelu", "pad_token_id": 1}
        made = build_transformer_model(config, model=model, with_mlm=True)
        save_pretrained(made, tmp_path / model, verbose=0)
        with refused(WeightMismatchError, model, "save_pretrained"):
            silent(convert, tmp_path / model, tmp_path / "out", "google", verbose=0)
        silent(convert, tmp_path / model, tmp_path / f"{model}.keras", "keras", verbose=0)
        silent(convert, tmp_path / f"{model}.keras", tmp_path / f"{model}2", "huggingface")
        old, new = (
            build_transformer_model(tmp_path / name, with_mlm=True, verbose=0).get_weights()
            for name in (model, f"{model}2")
        )
        for left, right in zip(old, new, strict=True):
            np.testing.assert_array_equal(left, right)


# ---- un-sharing and vocabularies -------------------------------------------------------------


@pytest.mark.parametrize("form", default_and_slow(FORMS, ["albert_zh", "huggingface"]))
@pytest.mark.parametrize("through", default_and_slow(["checkpoint", "keras"], ["keras"]))
def test_unshare(form, through, sources, tmp_path):
    name = "albert_zh" if form == "albert_zh" else "albert"
    source = sources(name)
    silent(convert, source, tmp_path / "shared.keras", "keras", verbose=0)
    source = tmp_path / "shared.keras" if through == "keras" else source
    out = place(tmp_path, form)
    silent(convert, source, out, form, unshare="feed_forward", unshare_layers=[1], verbose=0)
    twin = keras.models.load_model(tmp_path / "shared.keras")
    expected = as_dict(unshare(twin, "feed_forward", [1]))
    found = model_at(out)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value)


@pytest.mark.parametrize(
    ("words", "lower"),
    [
        (["<S>", "<T>", "[MASK]", "我", "##x"], True),
        (["C", "##Cl"], False),
        (["é", "##É"], False),
    ],
)
def test_the_case_of_a_vocabulary(words, lower, sources, tmp_path):
    rows = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words]
    (tmp_path / "v.txt").write_text("\n".join(rows) + "\n", "utf-8")
    out = tmp_path / "out"
    source = sources("bert")
    silent(convert, source, out, "huggingface", vocabulary=tmp_path / "v.txt", verbose=0)
    assert json.loads((out / "tokenizer_config.json").read_text())["do_lower_case"] is lower


def test_the_vocabulary_goes_through_keras(sources, tmp_path):
    source = sources("bert")
    silent(convert, source, tmp_path / "m.keras", "keras", verbose=0)
    (tmp_path / "stranger_vocab.txt").write_text("[PAD]\n")
    silent(convert, tmp_path / "m.keras", tmp_path / "out", "google", verbose=0)
    (words,) = (tmp_path / "out").glob("*vocab.txt")
    assert words.read_bytes() == (source / "vocab.txt").read_bytes()


@pytest.mark.parametrize("form", default_and_slow(["google", "huggingface", "keras"], ["google"]))
def test_keep_tokens_from_a_file(form, sources, tmp_path):
    kept = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "w9", "[MASK]", "w2"]
    save_vocab(tmp_path / "kept.txt", {token: i for i, token in enumerate(kept)})
    out = place(tmp_path, form)
    source = sources("bert")
    silent(convert, source, out, form, keep_tokens=tmp_path / "kept.txt", verbose=0)
    words = tmp_path / "keras_vocab.txt" if form == "keras" else out / "vocab.txt"
    assert list(load_vocab(words)) == kept
    ids = [load_vocab(source / "vocab.txt")[token] for token in kept]
    expected = silent(
        build_transformer_model, source, keep_tokens=ids, with_nsp=True, with_mlm=True, verbose=0
    )
    found = model_at(out)
    for key, value in as_dict(expected).items():
        np.testing.assert_array_equal(found[key], value)
    if form == "google":
        assert json.loads((out / "bert_config.json").read_text())["vocab_size"] == 7


def test_keep_tokens_simplified(tmp_path):
    config = tiny_config("google_bert", num_hidden_layers=1)
    words = ["[PAD]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "我", "##我", "abc", "##d"]
    words += [f"[unused{i}]" for i in range(2, config["vocab_size"] - 8)]
    write_checkpoint(tmp_path / "in/model.ckpt", make_arrays("google_bert", config, 3))
    write_config(tmp_path / "in/config.json", config)
    save_vocab(tmp_path / "in/vocab.txt", {word: i for i, word in enumerate(words)})
    silent(
        convert, tmp_path / "in", tmp_path / "out", "google", keep_tokens="simplified", verbose=0
    )
    left = list(load_vocab(tmp_path / "out/vocab.txt"))
    assert left[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert "我" in left and "##我" not in left and "[unused3]" not in left
    small = silent(build_transformer_model, tmp_path / "out", verbose=0)
    ids, _ = Tokenizer(str(tmp_path / "out/vocab.txt")).encode("我 abc")
    assert np.isfinite(to_numpy(small([np.array([ids]), np.zeros((1, len(ids)))]))).all()
