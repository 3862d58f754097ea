"""Named entities in the examples: their files, and the way to tokens and back."""

import json

import pytest

from example_scripts import EXAMPLES, load
from kerasbert.tokenizers import Tokenizer

pytest.importorskip("seqeval", reason="needs the extra `examples`")
MAXLEN = 12


@pytest.fixture(scope="module")
def entities():
    return load("entities")


def tokenizer():
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"在北京大学", "abc", "##d"]
    return Tokenizer({token: n for n, token in enumerate(tokens)}, do_lower_case=True)


# ---- files -----------------------------------------------------------------------------------


def test_both_forms_of_data_say_the_same(entities, tmp_path):
    (tmp_path / "tags.txt").write_text("张 B-P\n伟 E-P\n在 O\n京\tS-L\n\n\n好 O", "utf-8")
    items = [
        {"text": "张伟在京", "label": {"P": {"张伟": [[0, 1]]}, "L": {"京": [[3, 3]]}}},
        {"text": "好", "label": {}},
    ]
    lines = "\n".join(json.dumps(item, indent=2) for item in items)
    (tmp_path / "stream.json").write_text(lines + "\n", "utf-8")
    expected = [("张伟在京", {("P", 0, 1), ("L", 3, 3)}), ("好", set())]
    assert entities.read_entities(tmp_path / "tags.txt") == expected
    assert entities.read_entities(tmp_path / "stream.json") == expected


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("B-X I-X O B-X B-X", {("X", 0, 1), ("X", 3, 3), ("X", 4, 4)}),
        ("B-X M-X E-X O S-Y", {("X", 0, 2), ("Y", 4, 4)}),
        ("B-X M-X M-X O O", {("X", 0, 2)}),
        ("O I-X I-Y I-Y O", {("X", 1, 1), ("Y", 2, 3)}),
        ("B-M E-M B-M M-M E-M", {("M", 0, 1), ("M", 2, 4)}),
    ],
)
def test_tags_of_all_forms_are_read(entities, tmp_path, tags, expected):
    lines = [f"{char} {tag}" for char, tag in zip("一二三四五", tags.split(), strict=True)]
    (tmp_path / "tags.txt").write_text("\n".join(lines), "utf-8")
    assert entities.read_entities(tmp_path / "tags.txt") == [("一二三四五", expected)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("张 B-P\n伟 B-P x\n", "line 2: expected a character and its tag"),
        ("张 B-P\n伟 P\n", "line 2: expected a character and its tag"),
        ("张伟 B-P\n", "line 1: expected a character and its tag"),
        ("张 O\n", "1 texts without any entity"),
        ("", "0 texts without any entity"),
        ('{"text": "张", "label": {}}', "1 texts without any entity"),
        ('{"label": {}}', "object 1: KeyError.*text"),
        ('{"text": "张", "label": {}} x', "object 2: JSONDecodeError"),
        ('{"text": "张", "label": ["B"]}', "object 1: AttributeError"),
        ('{"text": "北京", "label": {"L": {"北京": [[0, 2]]}}}', "no characters 0 to 2 in '北京'"),
    ],
)
def test_mistakes_in_files(entities, tmp_path, content, message):
    (tmp_path / "data.txt").write_text(content, "utf-8")
    with pytest.raises(entities.UsageError, match=message):
        entities.read_entities(tmp_path / "data.txt")


def test_types_that_cannot_be_learned_are_refused(entities):
    train = [("", {("b", 0, 1), ("a", 0, 0)}), ("", set())]
    assert entities.types_of(train, [("", {("a", 1, 1)})]) == ["a", "b"]
    with pytest.raises(entities.UsageError, match="but in --valid: c, d"):
        entities.types_of(train, [("", {("d", 1, 1), ("a", 0, 0)}), ("", {("c", 0, 0)})])


def test_the_samples_are_what_they_say(entities):
    folder = EXAMPLES / "data"
    parts = [
        entities.read_entities(folder / f"entities_{part}.jsonl") for part in ("train", "valid")
    ]
    assert [len(part) for part in parts] == [40, 8]
    assert len({text for part in parts for text, _ in part}) == 48
    assert entities.types_of(*parts) == ["organization", "person", "place"]
    nested = 0
    for text, found in parts[0] + parts[1]:
        for kind, first, last in found:
            assert not set(text[first : last + 1]) & set("，。的了")
            nested += any(first <= i and j <= last and k != kind for k, i, j in found)
    assert nested >= 20
    for line in (folder / "entities_train.jsonl").read_text("utf-8").splitlines():
        entry = json.loads(line)
        for names in entry["label"].values():
            for name, spans in names.items():
                assert all(entry["text"][a : b + 1] == name for a, b in spans)
    tagged = [entities.read_entities(folder / f"ner_{part}.txt") for part in ("train", "valid")]
    assert [len(part) for part in tagged] == [24, 8]
    assert entities.types_of(*tagged) == ["LOC", "ORG", "PER"]


# ---- tokens ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found", "lost"),
    [
        ("在北京大学", {("校", 1, 4), ("地", 1, 2), ("字", 0, 0)}, set()),
        ("ABCD  北京", {("地", 6, 7), ("校", 0, 3)}, set()),
        # The lost ones are in the middle of a token, or cut off.
        ("abcd北京在北京在北京在北京大学", {("地", 4, 5)}, {("地", 1, 5), ("校", 13, 16)}),
    ],
)
def test_entities_go_to_tokens_and_back(entities, text, found, lost):
    (characters,) = entities.characters_of([text], tokenizer(), MAXLEN)
    assert len(characters) <= MAXLEN and not characters[0] and not characters[-1]
    tokens = entities.in_tokens(found | lost, characters)
    assert len(tokens) == len(found) and all(0 < first <= last for _, first, last in tokens)
    assert entities.in_characters(tokens, characters) == found


def test_places_of_tokens_by_hand(entities):
    (characters,) = entities.characters_of(["ABCD 北京大"], tokenizer(), MAXLEN)
    assert characters == [[], [0, 1, 2], [3], [5], [6], [7], []]
    assert entities.in_tokens({("a", 0, 3), ("b", 5, 6)}, characters) == {("a", 1, 2), ("b", 3, 4)}


def test_special_tokens_are_no_entities(entities):
    (characters,) = entities.characters_of(["北京"], tokenizer(), MAXLEN)
    spans = [("地", i, j) for i in range(4) for j in range(4)]
    expected = {("地", i, j) for i in range(2) for j in range(2)}
    assert entities.in_characters(spans, characters) == expected


def test_tags_are_those_of_the_longest(entities):
    found = {("a", 0, 1), ("b", 3, 5), ("c", 4, 4), ("a", 5, 5), ("d", 7, 7)}
    assert entities.tags_of(found, 8) == ["B-a", "I-a", "O", "B-b", "I-b", "I-b", "O", "B-d"]
    assert entities.tags_of(set(), 2) == ["O", "O"]


def test_known_names_by_hand(entities):
    train = [
        ("在北京大学", {("校", 1, 4), ("地", 1, 2), ("字", 0, 0)}),
        ("北京a+", {("地", 0, 1), ("符", 2, 3)}),
        ("北京", {("人", 0, 1)}),
    ]
    found = entities.known_names(train, ["去北京大学在北京", "a+aa+", "好", ""])
    # The longest wins, the commonest type; one character is too little.
    assert found == [{("校", 1, 4), ("地", 6, 7)}, {("符", 0, 1), ("符", 3, 4)}, set(), set()]
    assert entities.known_names([("", set())], ["在"]) == [set()]
