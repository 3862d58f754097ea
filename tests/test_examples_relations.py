"""The examples of relation extraction run, read, find places and measure rightly."""

import json
import re
import sys
from types import SimpleNamespace

import pytest

import fixtures
from relation_sentences import (
    CASREL,
    EXAMPLES,
    GPLINKER,
    PREDICATES,
    SENTENCES,
    SPECIAL,
    load,
    make_tokenizer,
)
from test_examples import command_line, run_script

both = pytest.mark.parametrize("name", [CASREL, GPLINKER])


@pytest.fixture(scope="module")
def relations():
    return load("relations")


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


@pytest.fixture(scope="module")
def sentences(relations, tokenizer):
    return relations.locate(SENTENCES, tokenizer, PREDICATES, 64)


@pytest.fixture
def files(tmp_path):
    """Arguments for a user's checkpoint, vocabulary and data."""
    config = fixtures.tiny_config("google_bert")
    tokens = [*SPECIAL, *"甲乙丙丁戊己的是和，父母"]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens), "utf-8")
    write(tmp_path / "train.json", SENTENCES * 4)
    write(tmp_path / "valid.json", [(f"{text}。", triples) for text, triples in SENTENCES])
    arrays = fixtures.make_arrays("google_bert", config, seed=0)
    return {
        "--config": fixtures.write_config(tmp_path / "bert_config.json", config),
        "--checkpoint": fixtures.write_checkpoint(tmp_path / "bert_model.ckpt", arrays),
        "--vocab": tmp_path / "vocab.txt",
        "--train": tmp_path / "train.json",
        "--valid": tmp_path / "valid.json",
        "--maxlen": 24,
        "--epochs": 1,
        "--output": tmp_path / "output",
    }


def write(path, pairs):
    """Writes a file in the form of DuIE."""
    lines = [
        {
            "text": text,
            "spo_list": [
                {"subject": s, "predicate": p, "object": {"@value": o}} for s, p, o in triples
            ],
        }
        for text, triples in pairs
    ]
    path.write_text("\n".join(json.dumps(line, ensure_ascii=False) for line in lines), "utf-8")


def start(name, arguments, monkeypatch):
    example = load(name)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *command_line(arguments)])
    example.main(f"{name}.py", example.run, **example.SETTINGS)


# ---- runs ------------------------------------------------------------------------------------


@pytest.mark.slow
@both
def test_quick(name, tmp_path):
    done = run_script(EXAMPLES / f"{name}.py", "--quick", "--output", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "30 texts to train on, 6 to score" in done.stdout
    figures = json.loads((tmp_path / f"{name}.json").read_text("utf-8"))
    assert set(figures["scores"]) == {"F1", "precision", "recall"}
    assert figures["missed_in_training"] == figures["missed_in_scored"] == 0
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@both
def test_the_sample_is_learned_by_heart(name, tmp_path):
    done = run_script(EXAMPLES / f"{name}.py", "--output", tmp_path)
    assert done.returncode == 0, done.stderr
    # Thirty sentences are too few for others to be understood: their score says nothing.
    losses = [float(loss) for loss in re.findall(r" loss: (\S+)", done.stdout)]
    assert losses[-1] < losses[0] / 10


@pytest.mark.slow
@both
def test_a_checkpoint(name, files, monkeypatch, capsys):
    start(name, files, monkeypatch)
    printed = capsys.readouterr().out
    assert "12 texts to train on, 3 to score" in printed
    assert json.loads((files["--output"] / f"{name}.json").read_text("utf-8"))["epochs"] == 1


# ---- data ------------------------------------------------------------------------------------


def test_the_sample_is_what_it_says(relations):
    pairs = relations.read_relations(relations.SAMPLE)
    assert len(pairs) == len({text for text, _ in pairs}) == 36
    for text, triples in pairs:
        assert triples and all(s in text and o in text for s, _, o in triples)
    assert {p for _, triples in pairs for _, p, _ in triples} == {"作者", "导演", "主演", "歌手"}
    args = SimpleNamespace(train=relations.SAMPLE, valid=relations.SAMPLE)
    train, valid, predicates = relations.read_data(args)
    assert sorted([*train, *valid], key=pairs.index) == pairs and len(predicates) == 4
    assert valid == pairs[::6]


def test_texts_that_are_scored_are_not_trained_on(relations, tmp_path, capsys):
    write(tmp_path / "train.json", SENTENCES)
    write(tmp_path / "valid.json", SENTENCES[1:2])
    args = SimpleNamespace(train=tmp_path / "train.json", valid=tmp_path / "valid.json")
    train, valid, _ = relations.read_data(args)
    assert train == [SENTENCES[0], SENTENCES[2]] and valid == SENTENCES[1:2]
    assert "1 texts of --train stand in --valid too" in capsys.readouterr().out


def test_links_and_triples_are_each_others_reverse(sentences):
    for sentence, (text, triples) in zip(sentences, SENTENCES, strict=True):
        assert sentence.text == text and sentence.triples == triples
        assert {sentence.triple(link, PREDICATES) for link in sentence.links} == triples


def test_places(relations, tokenizer):
    pairs = [
        # The nearest two of several places; a name that stands there once serves twice.
        ("甲，甲乙的父是丙丁，丙", {("甲", "父", "丙"), ("丙", "父", "甲乙")}),
        # In the middle of a token, as a part of one, and with spaces between tokens.
        ("ABC 的父是甲  乙", {("BC", "父", "甲"), ("ABC", "父", "甲  乙"), ("ABC", "母", "B")}),
        # Cut off: [CLS], 10 characters, [SEP].
        (
            "甲乙的父是丙丁和戊己，己的父是甲",
            {("甲", "父", "丙"), ("己的", "父", "甲"), ("甲乙", "父", "戊己")},
        ),
    ]
    near, parts, cut = relations.locate(pairs, tokenizer, PREDICATES, 12)
    assert near.links == {((3, 3), 1, (8, 8)), ((8, 8), 1, (3, 4))}
    assert parts.links == {((1, 2), 1, (6, 7))}
    assert cut.links == {((1, 1), 1, (6, 6)), ((1, 2), 1, (9, 10))}
    (link,) = parts.links
    assert parts.triple(link, PREDICATES) == ("ABC", "父", "甲  乙")


def test_f1_by_hand(relations):
    one, two, three = ("a", "p", "b"), ("a", "q", "b"), ("a", "p", "c")
    expected, found = [{one, two}, {three}, set()], [{one}, {one}, {two, three}]
    assert relations.measure(found, expected) == {"F1": 2 / 7, "precision": 1 / 4, "recall": 1 / 3}
    assert relations.measure(expected, expected) == dict.fromkeys(("F1", "precision", "recall"), 1)
    nothing = [set()]
    assert relations.measure(nothing, nothing)["F1"] == 0


def test_known_triples(relations):
    train = [("", {("甲", "父", "乙"), ("乙", "母", "丙")}), ("", {("甲", "母", "乙")})]
    guesses = relations.known_triples(train, ["乙和甲", "甲", "丙乙"])
    assert guesses == [{("甲", "父", "乙"), ("甲", "母", "乙")}, set(), {("乙", "母", "丙")}]


# ---- mistakes --------------------------------------------------------------------------------


def data(option, content):
    def replace(files):
        files[option].write_bytes(content.encode() if isinstance(content, str) else content)
        return files

    return replace


def valid_of(pairs):
    def replace(files):
        write(files["--valid"], pairs)
        return files

    return replace


def without(*options):
    return lambda files: {key: value for key, value in files.items() if key not in options}


LINK = '{"text": "甲", "spo_list": [{"subject": "甲", "predicate": "父", "object": %s}]}'
MISTAKES = {
    "half a model": (without("--vocab"), "--config and --checkpoint and --vocab belong together"),
    "half the data": (without("--valid"), "--train and --valid belong together"),
    "no file": (lambda files: {**files, "--train": "nowhere.json"}, "No such file .*nowhere.json"),
    "no JSON": (data("--train", '{"text": "a", "spo_list": []} x'), "train.json, object 2: "),
    "no list": (data("--train", '{"text": "a"}'), "train.json, object 1: .*'spo_list'"),
    "no object": (data("--train", "[1, 2]"), "train.json, object 1: "),
    "object no dict": (data("--valid", LINK % '"乙"'), "valid.json, object 1: "),
    "object empty": (data("--valid", LINK % '{"@value": ""}'), "valid.json, object 1: .*not empty"),
    "not UTF-8": (data("--train", "甲".encode("gbk")), "train.json is not UTF-8"),
    "no triple": (data("--train", '{"text": "a", "spo_list": []}'), "--train .* gives no triple"),
    "nothing to score": (valid_of([("甲", set())]), "--valid .* gives no triple"),
    "nothing is left": (valid_of(SENTENCES), "--train .* gives no triple"),
    "new predicate": (
        valid_of([("甲的子是乙", {("甲", "子", "乙")})]),
        "predicates of --valid that --train has not: 子",
    ),
    "too short": (lambda files: {**files, "--maxlen": 2}, "--maxlen of at least 3"),
    "no epoch": (lambda files: {**files, "--epochs": 0}, "expected positive numbers"),
    "negative seed": (lambda files: {**files, "--seed": -1}, "--seed -1: expected a number from 0"),
}


def too_long(files):
    pairs = [(text + "甲" * 40, triples) for text, triples in SENTENCES]
    return {**valid_of(pairs)(files), "--maxlen": 42}


# These need a model.
LATER = {
    "foreign vocabulary": (
        data("--vocab", "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *map(str, range(99))])),
        "--vocab has 103 tokens, .* only 100",
    ),
    "too long": (too_long, "has 42 tokens.* at most 32"),
    "all cut off": (lambda files: {**files, "--maxlen": 3}, "no triple of --train stands within 3"),
}


def check_mistake(name, change, message, files, monkeypatch, capsys):
    with pytest.raises(SystemExit) as stop:
        start(name, change(files), monkeypatch)
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{name}.py: error: ")
    assert re.search(message, line)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(mistake, files, monkeypatch, capsys):
    check_mistake(CASREL, *MISTAKES[mistake], files, monkeypatch, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("mistake", LATER)
def test_mistakes_in_what_a_model_takes(mistake, files, monkeypatch, capsys):
    check_mistake(CASREL, *LATER[mistake], files, monkeypatch, capsys)


def test_too_few_places(files, monkeypatch, capsys):
    change = lambda files: {**files, "--places": 1}  # noqa: E731
    check_mistake(GPLINKER, change, "--places 1: expected at least 2", files, monkeypatch, capsys)
