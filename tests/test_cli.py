"""`kerasbert inspect` and `kerasbert convert`: what they print, and how they refuse."""

import json
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from fixtures import DATA, make_arrays, tiny_config, write_checkpoint, write_config
from harness import refused, silent
from kerasbert import build_transformer_model, inspect_checkpoint, save_pretrained
from kerasbert.cli import main
from kerasbert.errors import CheckpointError

KINDS = {
    "google_bert": ("bert", {}),
    "google_albert": ("albert", {"num_hidden_groups": 2, "num_hidden_layers": 4}),
    "albert_zh": ("albert", {}),
    "electra": ("electra", {}),
}
TITLES = {
    "google_bert": "Google BERT",
    "google_albert": "Google ALBERT",
    "albert_zh": "early albert_zh",
    "electra": "Google ELECTRA (discriminator)",
}


def source(kind, folder, **options):
    config = tiny_config(kind, **KINDS[kind][1])
    write_checkpoint(folder / "model.ckpt", make_arrays(kind, config, 1, **options))
    write_config(folder / "config.json", config)
    return folder


def run(*arguments):
    return main([str(argument) for argument in arguments])


# ---- inspect ---------------------------------------------------------------------------------


# transformers has no early albert_zh; its folded form is Google's.
@pytest.mark.parametrize(
    ("kind", "form"),
    [
        (k, f)
        for k in KINDS
        for f in ("tf1", "huggingface")
        if (k, f) != ("albert_zh", "huggingface")
    ],
)
def test_inspection_agrees_with_the_model(kind, form, tmp_path, capsys):
    family, sizes = KINDS[kind]
    source(kind, tmp_path / "tf1", slots=True)
    if form == "huggingface":
        assert run("convert", tmp_path / "tf1", tmp_path / form, "--to", form) == 0
    capsys.readouterr()
    assert run("inspect", tmp_path / form) == 0
    shown = capsys.readouterr().out
    found = inspect_checkpoint(tmp_path / form)
    assert shown.strip() == str(found)
    assert found.family == found.model == family
    assert (TITLES[kind] if form == "tf1" else f"Hugging Face {family}") in shown
    for key, value in sizes.items():
        assert f"{key}={value}" in shown
    assert ("slots" in shown) == (form == "tf1" or "no slots" in shown)
    # The line that is printed loads all heads, and the numbers are those of Keras.
    names = {"build_transformer_model": build_transformer_model}
    model = silent(eval, found.line, names)
    assert model.count_params() == found.parameters + sum(found.heads.values())
    body = build_transformer_model(tmp_path / form, verbose=0)
    assert body.count_params() == found.parameters
    if family == "albert":
        wide = build_transformer_model(tmp_path / form, model="albert_unshared", verbose=0)
        assert wide.count_params() == found.unshared
        assert f"{found.unshared:,}" in shown
    else:
        assert found.unshared is None


def test_published_numbers_of_parameters():
    config = tiny_config(
        "google_albert",
        vocab_size=300,
        hidden_size=768,
        embedding_size=128,
        intermediate_size=3072,
        num_hidden_layers=12,
        num_attention_heads=12,
        max_position_embeddings=512,
    )
    found = inspect_checkpoint(make_arrays("google_albert", config, 1), config)
    published = {"shared": 11_683_584, "un-shared": 89_650_176}
    smaller_table = (30000 - 300) * 128
    pooler = found.heads["pooler"]
    assert found.parameters + pooler + smaller_table == published["shared"]
    assert found.unshared + pooler + smaller_table == published["un-shared"]


def test_without_a_config(tmp_path, capsys):
    config = tiny_config("google_bert", hidden_size=64, num_attention_heads=1)
    prefix = write_checkpoint(tmp_path / "m.ckpt", make_arrays("google_bert", config, 1))
    assert run("inspect", prefix) == 0
    shown = capsys.readouterr().out
    assert "none beside it" in shown
    assert "assumed: num_attention_heads=1 (64 wide each)" in shown
    with pytest.warns(UserWarning, match="No config was given"):
        eval(inspect_checkpoint(prefix).line, {"build_transformer_model": build_transformer_model})


def test_what_the_user_must_fill_in(tmp_path):
    config = tiny_config("google_albert")
    prefix = write_checkpoint(tmp_path / "m.ckpt", make_arrays("google_albert", config, 1))
    found = inspect_checkpoint(prefix)
    assert "num_hidden_layers=..." in found.line
    assert "num_attention_heads=..." in found.line
    assert found.unshared is None
    assert "num_hidden_layers is not visible" in str(found)


def test_a_config_that_contradicts(tmp_path, capsys):
    folder = source("google_albert", tmp_path / "in")
    write_config(folder / "config.json", tiny_config("google_albert", hidden_size=64))
    assert run("inspect", folder) == 0
    shown = capsys.readouterr().out
    assert "hidden_size is 64 in the configuration, 32 in the file" in shown


def test_the_other_tower_is_listed(capsys):
    folder = DATA / "golden/electra_untied_gen"
    config = ("--config", folder / "generator_config.json")
    assert run("inspect", folder / "model.ckpt", "--model", "electra_generator", *config) == 0
    shown = capsys.readouterr().out
    assert "mlm (" in shown
    assert "electra/e" in shown


def test_slots_and_unknown_names(tmp_path):
    config = tiny_config("google_bert")
    arrays = make_arrays("google_bert", config, 1, slots=True)
    slots = sum(name.endswith(("adam_m", "adam_v")) or "global" in name for name in arrays)
    found = inspect_checkpoint({**arrays, "mine/kernel": np.zeros((2, 2))}, config)
    assert found.optimizer_slots == slots
    assert found.others == ["mine/kernel"]


def test_buffers_and_aliases_are_no_strangers(tmp_path):
    model = build_transformer_model(tiny_config("google_bert"), with_mlm=True, verbose=0)
    save_pretrained(model, tmp_path, verbose=0)
    from safetensors.numpy import load_file, save_file

    arrays = load_file(tmp_path / "model.safetensors")
    arrays["bert.embeddings.position_ids"] = np.arange(32)[None]
    arrays["cls.predictions.decoder.weight"] = arrays["bert.embeddings.word_embeddings.weight"]
    arrays["cls.predictions.decoder.bias"] = arrays["cls.predictions.bias"]
    save_file(arrays, tmp_path / "model.safetensors")
    found = inspect_checkpoint(tmp_path)
    assert found.others == []
    assert found.parameters + sum(found.heads.values()) == model.count_params()


@pytest.mark.parametrize("name", ["nowhere", "empty", "vocab.txt"])
def test_nothing_to_inspect(name, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    assert run("inspect", tmp_path / name) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("kerasbert: error: ")
    assert name in said.err
    with refused(CheckpointError, name):
        inspect_checkpoint(tmp_path / name)


# ---- convert ---------------------------------------------------------------------------------


def test_convert_with_every_option(tmp_path, capsys):
    folder = source("google_albert", tmp_path / "in")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(95))]
    (tmp_path / "words.txt").write_text("\n".join(words) + "\n")
    (tmp_path / "kept.txt").write_text("\n".join(words[:9]) + "\n")
    options = ["--unshare", "feed_forward", "--unshare-layers", "0,3"]
    options += ["--keep-tokens", tmp_path / "kept.txt", "--vocabulary", tmp_path / "words.txt"]
    options += ["--config", folder / "config.json", "--model", "albert", "--to", "huggingface"]
    assert run("convert", folder / "model.ckpt", tmp_path / "out", *options) == 0
    assert str(tmp_path / "out") in capsys.readouterr().out
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        "config.json",
        "model.safetensors",
        "tokenizer_config.json",
        "vocab.txt",
    }
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert (config["vocab_size"], config["unshare_layers"]) == (9, [0, 3])


def test_options_may_stand_first(tmp_path):
    folder = source("google_albert", tmp_path / "in")
    options = ("--unshare", "all", "--unshare-layers", "0,1,2,3", "--to", "keras")
    assert run("convert", *options, folder, tmp_path / "m.keras") == 0
    wide = keras.models.load_model(tmp_path / "m.keras")
    names = [layer.name for layer in wide.layers]
    assert sum(name.endswith("MultiHeadSelfAttention") for name in names) == 4


def test_refusals_go_to_stderr(tmp_path, capsys):
    folder = source("google_bert", tmp_path / "in")
    assert run("convert", folder, tmp_path / "out", "--to", "albert_zh") == 2
    said = capsys.readouterr().err
    assert said.startswith("kerasbert: error: ")
    assert "Traceback" not in said
    assert not (tmp_path / "out").exists()


def test_keys_that_no_shape_shows_come_by_set(tmp_path, capsys):
    config = tiny_config("google_albert")
    prefix = write_checkpoint(tmp_path / "m.ckpt", make_arrays("google_albert", config, 1))
    assert run("convert", prefix, tmp_path / "out", "--to", "google") == 2
    assert "--set num_hidden_layers=" in capsys.readouterr().err
    sizes = ["--set", "num_hidden_layers=3", "--set", "num_attention_heads=4"]
    sizes += ["--set", "hidden_act=gelu"]
    assert run("inspect", prefix, *sizes) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert "num_hidden_layers=3, num_attention_heads=4, hidden_act='gelu'" in line
    with pytest.warns(UserWarning, match="No config was given"):
        assert run("convert", prefix, tmp_path / "out", "--to", "google", *sizes) == 0
    again = json.loads((tmp_path / "out/albert_config.json").read_text())
    assert (again["num_hidden_layers"], again["num_attention_heads"]) == (3, 4)
    for wrong, said in (("verbose=0", "verbose"), ("num_hiden_layers=3", "Did you mean")):
        assert run("inspect", prefix, "--set", wrong) == 2
        assert said in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run("inspect", prefix, "--set", "num_hidden_layers")


def test_an_interruption_leaves_nothing(tmp_path, monkeypatch, capsys):
    folder = source("google_bert", tmp_path / "in")

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.rename", interrupt)
    assert run("convert", folder, tmp_path / "out", "--to", "google") == 130
    assert "Traceback" not in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_model_of_another_family(capsys):
    assert run("inspect", DATA / "golden/albert", "--model", "bert") == 2
    assert "Google ALBERT" in capsys.readouterr().err


def test_a_folder_with_several_configs():
    found = inspect_checkpoint(DATA / "golden/electra")
    assert found.config is None
    assert str(DATA / "golden/electra/model.ckpt") in found.line
    assert "generator is in the file too: model='electra_generator'" in str(found)
    for tower in ("discriminator", "generator"):
        config = DATA / f"golden/electra/{tower}_config.json"
        family = "electra" if tower == "discriminator" else "electra_generator"
        assert inspect_checkpoint(DATA / "golden/electra", config).family == family


def test_where_norms_stand_is_shown(tmp_path):
    for ln_type in ("preln", "postln"):
        config = tiny_config("albert_zh", ln_type=ln_type)
        found = inspect_checkpoint(make_arrays("albert_zh", config, 1), config)
        assert f"ln_type={ln_type}" in str(found)
    assert "ln_type" not in str(inspect_checkpoint(DATA / "golden/albert"))


@pytest.mark.parametrize("arguments", [[], ["inspect"], ["convert", "a", "b"], ["conver"]])
def test_usage(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: kerasbert" in capsys.readouterr().err


def test_help(capsys):
    for command in ("inspect", "convert"):
        with pytest.raises(SystemExit) as caught:
            main([command, "--help"])
        assert caught.value.code == 0
        assert "--config" in capsys.readouterr().out


@pytest.mark.slow
def test_as_a_program(tmp_path):
    folder = source("google_bert", tmp_path)
    # The command of an installed package, and the module of one that only lies there.
    installed = Path(sys.executable).with_name("kerasbert")
    commands = [[sys.executable, "-m", "kerasbert"]] + [[str(installed)]] * installed.exists()
    for command in commands:
        done = subprocess.run(
            [*command, "inspect", str(folder)], capture_output=True, text=True, check=True
        )
        assert "Google BERT" in done.stdout
        done = subprocess.run([*command, "inspect", "nowhere"], capture_output=True, text=True)
        assert done.returncode == 2
        assert "nowhere" in done.stderr
