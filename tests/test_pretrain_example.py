"""The command that pre-trains: it runs, goes on, and says in one line what is wrong."""

import json
import re

import pytest

from fixtures import read_checkpoint
from kerasbert import build_transformer_model
from test_examples import ROOT, run_script

SCRIPT = ROOT / "examples" / "pretrain.py"
QUICK = ("--quick", "--batch-size", 8)


def run(folder, *arguments):
    done = run_script(SCRIPT, *QUICK, "--output", folder, *arguments)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(autouse=True)
def _needs_matplotlib():
    pytest.importorskip("matplotlib", reason="needs the extra `examples`")


@pytest.mark.slow
def test_it_runs_and_does_not_run_again(tmp_path):
    printed = run(tmp_path, "--tensorboard", tmp_path / "board")
    assert re.search(r"^masked_lm_loss +\d", printed, re.M)
    assert (tmp_path / "pretrain.png").read_bytes().startswith(b"\x89PNG")
    history = json.loads((tmp_path / "history.json").read_text("utf-8"))
    assert [row["step"] for row in history] == [10, 20]
    assert list((tmp_path / "board").rglob("events.*"))
    model = build_transformer_model(
        tmp_path / "checkpoints" / "step-00000020", with_mlm=True, with_sop=True, verbose=0
    )
    assert model.get_layer("MLM-Bias")
    assert "step-00000020" in run(tmp_path)
    assert json.loads((tmp_path / "history.json").read_text("utf-8")) == history


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["electra", "word_order", "mask_proposal"])
def test_the_other_objectives(objective, tmp_path):
    printed = run(tmp_path, "--objective", objective)
    names = {"electra": "replaced", "word_order": "word_order", "mask_proposal": "proposal"}
    assert re.search(rf"^{names[objective]}_loss +\d", printed, re.M)
    (folder,) = (tmp_path / "checkpoints").glob("step-*20")
    written = read_checkpoint(folder / "model.ckpt")
    assert any(name.startswith("generator/") for name in written) == (objective == "electra")


@pytest.mark.slow
def test_a_checkpoint_goes_on_with_texts_of_ones_own(tmp_path):
    run(tmp_path / "first")
    folder = tmp_path / "first" / "checkpoints" / "step-00000020"
    text = tmp_path / "text.txt"
    text.write_text("房间很干净。\n电池用不久。\n很好。\n\n" * 30, "utf-8")
    files = {
        "--config": folder / "model_config.json",
        "--checkpoint": folder / "model.ckpt",
        "--vocab": tmp_path / "first" / "vocab.txt",
        "--data": text,
        "--start": "random",
    }
    run(tmp_path / "second", *[part for option in files.items() for part in option])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "nowhere.txt"], "nowhere.txt"),
        (["--checkpoint", "model.ckpt"], "needs --config and --vocab"),
        (["--vocab", "typo.txt"], "--vocab typo.txt: no such file"),
        (["--objective", "electra", "--sentences", "sop"], "no sentence head"),
        (["--steps", "10", "--every", "3"], "no multiple"),
        (["--maxlen", "7"], "--maxlen of at least 8"),
        (["--seed", "-1"], "--seed -1"),
    ],
)
def test_mistakes(arguments, message, tmp_path):
    done = run_script(SCRIPT, *arguments, "--output", tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert message in done.stderr.splitlines()[-1]
