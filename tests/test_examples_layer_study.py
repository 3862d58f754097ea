"""The study of layers measures the distances that it says, and only those of real tokens."""

import csv

import numpy as np
import pytest

from example_scripts import EXAMPLES, check_mistake, load
from test_examples import run_script

NAME = "layer_study"


@pytest.fixture(scope="module")
def study():
    return load(NAME)


def test_distances_by_hand(study):
    # Two texts of two tokens, one of which is padding.
    real = np.array([[True, True], [True, False]])
    first = np.array([[[3, 4], [1, 0]], [[0, 2], [9, 9]]])
    second = np.array([[[4, -3], [2, 0]], [[0, -2], [0, 0]]])
    third = np.array([[[3, 4], [1, 0]], [[0, 2], [np.nan, 5]]])
    found = study.distances([first, second, third], real)
    cosine, l2, two = (found[name] for name in study.MEASURES)
    # At right angles, in the same direction, in the opposite one.
    assert cosine == pytest.approx([(1 + 0 + 2) / 3] * 2)
    assert l2 == pytest.approx([(np.sqrt(50) + 1 + 4) / 3] * 2)
    # The states go to and fro.
    assert np.isnan(two[0]) and two[1] == 0


def test_distances_against_loops(study):
    rng = np.random.default_rng(0)
    states = rng.normal(size=(5, 3, 4, 6)).astype("float32")
    real = rng.random((3, 4)) < 0.7
    found = study.distances(list(states), real)
    places = [place for place in np.ndindex(3, 4) if real[place]]
    for k in range(4):
        a, b = ([states[n][place].astype("float64") for place in places] for n in (k, k + 1))
        lengths = [np.sqrt(sum((x - y) ** 2)) for x, y in zip(a, b, strict=True)]
        cosines = [x @ y / np.sqrt(x @ x) / np.sqrt(y @ y) for x, y in zip(a, b, strict=True)]
        assert found["L2 distance"][k] == pytest.approx(sum(lengths) / len(places))
        assert found["cosine distance"][k] == pytest.approx(1 - sum(cosines) / len(places))


def test_files(study, tmp_path, capsys):
    curve = dict(zip(study.MEASURES, ([0.5, 0.25], [2, 1], [np.nan, 1.5]), strict=True))
    curves = {("albert", "before"): curve}
    study.write(curves, 1, tmp_path)
    with (tmp_path / f"{NAME}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[1:] == [
        ["albert", "before", "1", "1", "0.5", "2", ""],
        ["albert", "before", "2", "0", "0.25", "1", "1.5"],
    ]
    study.show(curves, 1)
    assert capsys.readouterr().out.split("\n")[2].split()[-3:] == ["0.50000", "2.00000", "nan"]
    study.plot(curves, 1, tmp_path)
    assert (tmp_path / f"{NAME}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data", "nowhere"], "sentiment.train.data: no such file"),
        (["--vocab", "v"], "--config and --checkpoint and --vocab belong together"),
        (["--layers", "0"], "--layers 0: expected a number above 0"),
        (["--measured", "-1"], "--measured -1: expected a number above 0"),
        (["--seed", "-1"], "seed -1: expected a number from 0"),
    ],
)
def test_mistakes(tmp_path, monkeypatch, capsys, options, message):
    check_mistake(NAME, [*options, "--output", tmp_path], message, monkeypatch, capsys)


@pytest.mark.slow
def test_quick(tmp_path):
    done = run_script(EXAMPLES / f"{NAME}.py", "--quick", "--layers", 5, "--output", tmp_path)
    assert done.returncode == 0, done.stderr
    with (tmp_path / f"{NAME}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    found = {
        (row["variant"], row["training"], int(row["layer"])): float(row["L2 distance"])
        for row in rows
    }
    assert len(found) == 2 * 5 + 2 * 2
    for layer in (1, 2):
        shared, unshared = (found[name, "before", layer] for name in ("albert", "albert_unshared"))
        assert shared == pytest.approx(unshared, rel=1e-3)
        assert shared != found["albert", "after", layer]
