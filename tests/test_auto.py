"""`model="auto"`: what config keys and variable names tell, and what they leave open."""

import keras
import numpy as np
import pytest

from fixtures import DATA, make_arrays, tiny_config, write_checkpoint, write_config
from harness import default_and_slow, refused, silent
from kerasbert import build_transformer_model, model_report, save_pretrained
from kerasbert.errors import CheckpointError, ConfigError, WeightMismatchError
from kerasbert.models.view import find_encoder

SIZES = {
    "vocab_size": 50,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "hidden_act": "gelu",
    "max_position_embeddings": 20,
}
FAMILIES = ("bert", "albert", "electra", "electra_generator", "roberta", "distilbert")
KINDS = {
    "google_bert": "bert",
    "google_albert": "albert",
    "albert_zh": "albert",
    "albert_zh_unshared": "albert",
    "electra": "electra",
}


def family_of(model):
    return find_encoder(model).config.family


def saved(family, folder, **options):
    """A folder in Hugging Face form."""
    config = {**SIZES, "model_type": family.removesuffix("_generator")}
    if family == "distilbert":
        config["type_vocab_size"] = 0
    if family.startswith(("albert", "electra")):
        config["embedding_size"] = 4
    model = build_transformer_model(config, model=family, verbose=0, **options)
    return save_pretrained(model, folder, verbose=0)


# ---- from a checkpoint -----------------------------------------------------------------------


# ELECTRA was never put on TF-Hub with its TF1 names.
@pytest.mark.parametrize(
    ("kind", "prefix"),
    [
        (kind, prefix)
        for kind in KINDS
        for prefix in (False, True)
        if (kind, prefix) != ("electra", True)
    ],
)
def test_names_of_tf1_checkpoints(kind, prefix, capsys):
    config = tiny_config(kind, num_hidden_layers=2)
    arrays = make_arrays(kind, config, 1, module_prefix=prefix)
    model = silent(build_transformer_model, config, arrays)
    assert family_of(model) == KINDS[kind]
    name = "albert_unshared" if kind == "albert_zh_unshared" else KINDS[kind]
    said = f"model={name!r} was chosen by the names in the checkpoint"
    assert said in capsys.readouterr().out
    assert said in str(model_report(model))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("headed", default_and_slow([False, True], [True]))
def test_hugging_face_folders(family, headed, tmp_path, capsys):
    head = {"with_discriminator" if family == "electra" else "with_mlm": headed}
    folder = saved(family, tmp_path, **head)
    if family == "electra_generator" and not headed:
        # Without its head the generator is an ELECTRA like any other.
        assert family_of(build_transformer_model(folder)) == "electra"
        return
    model = silent(build_transformer_model, folder, **head)
    assert family_of(model) == family
    assert f"model={family!r} was chosen" in capsys.readouterr().out


@pytest.mark.parametrize("options", [{}, {"with_mlm": True}, {"with_discriminator": True}])
def test_the_tower_of_electra_follows_the_heads(options):
    folder = DATA / "golden/electra_same_dim"
    config = f"{'generator' if 'with_mlm' in options else 'discriminator'}_config.json"
    model = silent(
        build_transformer_model, folder / config, folder / "model.ckpt", verbose=0, **options
    )
    assert family_of(model) == ("electra_generator" if "with_mlm" in options else "electra")


@pytest.mark.parametrize(("types", "family"), [(1, "roberta"), (2, "bert")])
def test_bert_and_roberta_without_prefix_differ_in_their_segments(types, family, tmp_path):
    saved_as = {**SIZES, "model_type": family, "type_vocab_size": types, "pad_token_id": 1}
    model = build_transformer_model(saved_as, model=family, with_pool=True)
    save_pretrained(model, tmp_path, verbose=0)
    config = {key: value for key, value in saved_as.items() if key != "model_type"}
    assert (
        family_of(build_transformer_model(config, tmp_path / "model.safetensors", verbose=0))
        == family
    )


def test_names_that_several_families_have(tmp_path):
    saved("bert", tmp_path)  # neither prefix nor pooler
    config = dict(SIZES)
    with refused(ConfigError, "bert, electra", "model_type", "model=", "model.safetensors"):
        build_transformer_model(config, tmp_path / "model.safetensors")
    for model in ("bert", "electra"):
        made = build_transformer_model(
            config, tmp_path / "model.safetensors", model=model, verbose=0
        )
        assert family_of(made) == model


def test_config_and_checkpoint_of_different_families():
    arrays = make_arrays("google_bert", tiny_config("google_bert"), 1)
    config = {**tiny_config("google_bert"), "model_type": "albert"}
    with refused(WeightMismatchError, "albert family", "dict of arrays", "bert"):
        build_transformer_model(config, arrays)


def test_a_file_of_no_family():
    with refused(WeightMismatchError, "no encoder", "Google BERT"):
        build_transformer_model(SIZES, {"resnet/conv": np.zeros((2, 2))})


def test_the_result_is_the_one_that_was_named():
    config = tiny_config("google_albert")
    arrays = make_arrays("google_albert", config, 1)
    auto, named = (
        build_transformer_model(config, arrays, verbose=0, **model)
        for model in ({}, {"model": "albert"})
    )
    for left, right in zip(auto.get_weights(), named.get_weights(), strict=True):
        np.testing.assert_array_equal(left, right)
    assert model_report(named).chosen is None
    assert "chosen" not in model_report(named).headline()


def test_an_unshared_file_comes_back_unshared(tmp_path):
    config = tiny_config("google_albert")
    arrays = make_arrays("google_albert", config, 1)
    wide = build_transformer_model(config, arrays, model="albert_unshared", verbose=0)
    save_pretrained(wide, tmp_path, verbose=0)
    again = build_transformer_model(tmp_path, verbose=0)
    assert again.count_params() == wide.count_params()


# ---- from a config alone ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "family", "because"),
    [
        ({}, "bert", "no other family"),
        ({"num_hidden_groups": 1}, "albert", "num_hidden_groups"),
        ({"inner_group_num": 1}, "albert", "inner_group_num"),
        ({"ln_type": "postln", "embedding_size": 4}, "albert", "ln_type"),
        *(({"model_type": name}, name, "model_type") for name in FAMILIES if "gen" not in name),
        (
            {"model_type": "electra", "architectures": ["ElectraForMaskedLM"]},
            "electra_generator",
            "model_type",
        ),
        ({"embedding_size": 8}, "bert", "no other family"),
    ],
)
def test_keys_of_a_config(keys, family, because, capsys):
    model = silent(build_transformer_model, {**SIZES, **keys})
    assert family_of(model) == family
    (line,) = capsys.readouterr().out.splitlines()
    assert f"model={family!r}" in line
    assert because in line
    silent(build_transformer_model, {**SIZES, **keys}, verbose=0)
    assert capsys.readouterr().out == ""


def test_a_config_that_two_families_may_have():
    with refused(ConfigError, "embedding_size=4", "hidden_size=8", "model='albert'", "electra"):
        build_transformer_model({**SIZES, "embedding_size": 4})


@pytest.mark.parametrize("name", ["albrt", "xlm-roberta", "longt5"])
def test_a_model_type_we_do_not_know(name):
    words = ["Did you mean 'albert'"] if name == "albrt" else []
    with refused(ConfigError, f"model_type={name!r}", "distilbert", *words):
        build_transformer_model({**SIZES, "model_type": name})


# ---- where the config is looked for ----------------------------------------------------------


def test_a_folder_as_checkpoint_brings_its_config(tmp_path):
    config = tiny_config("google_albert")
    write_checkpoint(tmp_path / "model.ckpt", make_arrays("google_albert", config, 1))
    write_config(tmp_path / "albert_config.json", config)
    silent(build_transformer_model, None, tmp_path, verbose=0)
    silent(build_transformer_model, tmp_path, verbose=0)
    write_config(tmp_path / "other_config.json", config)
    with refused(ConfigError, "2 config files", "other_config.json"):
        build_transformer_model(None, tmp_path)


def test_the_only_config_beside_a_prefix(tmp_path):
    config = tiny_config("google_bert", hidden_act="relu")
    prefix = write_checkpoint(tmp_path / "m.ckpt", make_arrays("google_bert", config, 1))
    path = write_config(tmp_path / "my_config.json", config)
    model = silent(build_transformer_model, None, prefix, verbose=0)
    assert find_encoder(model).config.hidden_act == "relu"
    assert path in str(model_report(model))
    write_config(tmp_path / "other.json", config)
    with pytest.warns(UserWarning, match="No config was given"):
        build_transformer_model(None, prefix, num_attention_heads=4, verbose=0)


def test_two_forms_in_one_folder(tmp_path):
    config = tiny_config("google_bert")
    prefix = write_checkpoint(tmp_path / "m.ckpt", make_arrays("google_bert", config, 1))
    saved("bert", tmp_path)
    with refused(CheckpointError, "several checkpoints", "model.safetensors", prefix):
        build_transformer_model(tmp_path)


def test_a_checkpoint_as_config(tmp_path):
    saved("bert", tmp_path)
    with refused(ConfigError, "model.safetensors", "pass it as checkpoint="):
        build_transformer_model(tmp_path / "model.safetensors")
    (tmp_path / "config.json").unlink()
    with refused(ConfigError, "0 config files", "config=None"):
        build_transformer_model(tmp_path)


def test_a_config_of_a_bert_for_an_albert():
    arrays = make_arrays("google_albert", tiny_config("google_albert"), 1)
    config = tiny_config("google_bert")
    with pytest.warns(UserWarning, match=r"has no embedding_size; 16 was taken.*num_hidden_layers"):
        build_transformer_model(config, arrays, verbose=0)


def test_what_a_short_config_leaves_out(capsys):
    config = tiny_config("google_bert", max_position_embeddings=16, type_vocab_size=3)
    arrays = make_arrays("google_bert", config, 1)
    del config["max_position_embeddings"], config["type_vocab_size"]
    report = str(model_report(silent(build_transformer_model, config, arrays, verbose=0)))
    assert "max_position_embeddings=16 was taken from the file" in report
    assert "type_vocab_size=3 was taken from the file" in report
    capsys.readouterr()
    build_transformer_model(config)
    assert "the weights are random" in capsys.readouterr().out


@pytest.mark.parametrize("typo", ["ALBERT", "Albert_Unshard", "BERT"])
def test_capital_letters_in_a_name(typo):
    with refused(ConfigError, f"Unknown model={typo!r}", "Did you mean"):
        build_transformer_model(SIZES, model=typo)


def test_a_hugging_face_file_has_its_config_beside_it(tmp_path):
    saved("bert", tmp_path, with_pool=True)
    silent(build_transformer_model, None, tmp_path / "model.safetensors", verbose=0)
    (tmp_path / "config.json").unlink()
    with pytest.warns(UserWarning, match="No config was given"):
        build_transformer_model(
            None, tmp_path / "model.safetensors", num_attention_heads=2, verbose=0
        )


def test_electra_says_why_it_is_no_language_model():
    for application in ("lm", "unilm"):
        with refused(ConfigError, f"application={application!r}", "electra", "masked-LM"):
            build_transformer_model({**SIZES, "model_type": "electra"}, application=application)


@pytest.mark.parametrize("family", default_and_slow(FAMILIES, ["electra_generator", "roberta"]))
def test_every_family_saves_as_keras(family, tmp_path):
    head = {"with_discriminator" if family == "electra" else "with_mlm": True}
    model = build_transformer_model(saved(family, tmp_path, **head), verbose=0, **head)
    model.save(tmp_path / "m.keras")
    again = keras.models.load_model(tmp_path / "m.keras")
    ids = np.array([[5, 7, 9, 1, 1]], "int32")
    batch = [ids] * len(model.inputs) if len(model.inputs) > 1 else ids
    if len(model.inputs) > 1:
        batch[1] = np.zeros_like(ids)
    np.testing.assert_array_equal(
        keras.ops.convert_to_numpy(model(batch)), keras.ops.convert_to_numpy(again(batch))
    )
