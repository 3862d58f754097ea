"""The rules that the code of the package keeps to, read from its source."""

import ast
import functools
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import keras
import pytest

import kerasbert
from fixtures import tiny_config

PACKAGE = Path(kerasbert.__file__).parent
ROOT = PACKAGE.parent
FILES = sorted(PACKAGE.rglob("*.py"))
TREES = {path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text("utf-8")) for path in FILES}
each_file = pytest.mark.parametrize("file", TREES)

# Longer than 40 lines for a reason, which stands here.
LONG_FUNCTIONS = {}
LONG_FILES = {}


def module_of(file):
    parts = ["kerasbert", *Path(file).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(file, late=True):
    """Absolute names of all modules a file imports; ``late`` counts those inside functions."""
    nodes = list(ast.walk(TREES[file])) if late else TREES[file].body
    package = module_of(file).split(".")
    package = package if file.endswith("__init__.py") else package[:-1]
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *filter(None, [node.module])])
            found |= {source} | {f"{source}.{alias.name}" for alias in node.names}
    return found


def functions_of(file):
    """Pairs (qualified name, node) of all functions and methods, nested ones not counted."""

    def walk(body, prefix):
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{prefix}{node.name}", node
            elif isinstance(node, ast.ClassDef):
                yield from walk(node.body, f"{prefix}{node.name}.")

    return list(walk(TREES[file].body, ""))


@functools.cache
def docstrings_of(file):
    """The nodes that are docstrings."""
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        id(node.body[0].value)
        for node in ast.walk(TREES[file])
        if isinstance(node, owners) and ast.get_docstring(node) is not None
    }


# ---- who imports whom ------------------------------------------------------------------------

# A file may import what stands in its own line or below.
LAYERS_OF_THE_HOUSE = [
    ("errors",),
    ("activations", "compilation", "depth", "config", "config_file", "conventions", "losses"),
    ("layers",),
    ("models",),
    ("weights",),
    ("folders", "registry", "request", "arguments", "optimizers"),
    ("adapters", "data", "distribution", "training"),
    (
        "factory",
        "generation",
        "inspection",
        "prediction",
        "pretraining",
        "refold",
        "vocabulary_files",
    ),
    ("convert", "snippets"),
    ("cli",),
    ("__main__",),
]
LEVEL = {name: level for level, names in enumerate(LAYERS_OF_THE_HOUSE) for name in names}
APART = {"tokenizers"}


def part_of(module):
    """``kerasbert.layers.block`` belongs to "layers"; the package itself to ""."""
    return [*module.split("."), ""][1]


@each_file
def test_direction_of_imports(file):
    own = part_of(module_of(file))
    if own == "":
        return
    assert own in LEVEL or own in APART, f"say in LAYERS_OF_THE_HOUSE where {own} stands"
    others = {
        part_of(name) for name in imports_of(file, late=False) if name.split(".")[0] == "kerasbert"
    }
    others -= {own, ""}
    if own in APART:
        assert others <= {"errors"}
    else:
        # What joins models and texts stands beside the factory.
        level = LEVEL | dict.fromkeys(APART, LEVEL["factory"])
        wrong = {name for name in others if level.get(name, 99) > LEVEL[own]}
        assert not wrong, f"{file} looks up to {wrong}"


def test_only_one_import_goes_against_the_direction():
    late = {
        (file, name)
        for file in TREES
        for name in imports_of(file) - imports_of(file, late=False)
        if name.startswith("kerasbert")
    }
    assert late <= {
        ("models/__init__.py", "kerasbert.factory"),
        ("models/__init__.py", "kerasbert.factory.build_transformer_model"),
        # A builder offers its users what bert4keras' has: to load, save and name its weights.
        ("models/checkpoints.py", "kerasbert.weights"),
    }


@each_file
def test_inside_weights(file):
    names = {name for name in imports_of(file) if name.startswith("kerasbert.")}
    if file.startswith("weights/checkpoints/"):
        allowed = ("kerasbert.errors", "kerasbert.weights.checkpoints")
        assert all(name.startswith(allowed) for name in names), "a reader knows files only"
    if file.startswith("weights/dialects/"):
        allowed = ("kerasbert.weights.mapping", "kerasbert.weights.dialects")
        assert all(name.startswith(allowed) for name in names), "a dialect is a table only"
    if file.startswith("layers/"):
        assert not {"kerasbert.config"} & names, "layers know sizes, never a config"


@each_file
def test_keras_only_where_models_are(file):
    heavy = {name.split(".")[0] for name in imports_of(file)}
    if part_of(module_of(file)) in APART | {"errors", "depth"}:
        assert not heavy & {"keras", "tensorflow", "torch", "jax"}
    # TensorFlow only reads and writes files, whatever computes, and takes over what was read;
    # and each backend compiles in its own way, for which Keras has no function.
    if file == "compilation.py":
        heavy -= {"tensorflow", "torch", "jax"}
    # Keras has no gradient function: each backend takes a gradient by a name of its own.
    if file == "training/gradients.py":
        heavy -= {"tensorflow", "torch", "jax"}
    # Records are tf.train.Example; TensorFlow makes and reads them, whatever computes.
    if file == "pretraining/examples.py":
        heavy -= {"tensorflow"}
    # Keras takes tf.data on all backends; it is imported when such a dataset is asked for.
    if file == "data/tf_data.py":
        heavy -= {"tensorflow"}
    if not file.startswith("weights/checkpoints/") and file != "weights/transpose.py":
        assert "tensorflow" not in heavy
    assert not heavy & {"tf_keras", "torch", "jax", "transformers", "keras_hub"}


def test_tokenizers_alone_load_neither_keras_nor_tensorflow():
    # The package itself imports Keras, to register its layers; so its __init__ is left out.
    code = (
        "import sys, types; package = types.ModuleType('kerasbert');"
        f"package.__path__ = [{str(PACKAGE)!r}]; sys.modules['kerasbert'] = package;"
        "import kerasbert.tokenizers; print(sorted({'keras', 'tensorflow'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.backends
def test_importing_the_package_does_not_load_what_other_backends_do_without():
    pytest.importorskip("jax", reason="needs JAX, which Keras loads instead of TensorFlow")
    code = (
        "import os, sys; os.environ['KERAS_BACKEND'] = 'jax'; import kerasbert;"
        "print('tensorflow' in sys.modules and hasattr(sys.modules['tensorflow'], 'train'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "False", done.stdout + done.stderr[-500:]


# ---- what stands in the source ---------------------------------------------------------------

CHECKPOINT_NAME = re.compile(
    r"bert/|electra/|cls/|embeddings/|(?<!tie_)word_embeddings|token_type_embeddings|(?<!max_)position_embeddings"
    r"|layer_shared|layer_\{|attention_1|ffn_1|inner_group_\{|inner_group_\d|group_\d|\bLayerNorm\b"
    r"|seq_relationship|output_weights|output_bias|adam_m|global_step|embedding_hidden_mapping_in"
)


@each_file
def test_checkpoint_names_stand_in_the_dialects_only(file):
    if file.startswith("weights/dialects/"):
        return
    texts = [
        node.value
        for node in ast.walk(TREES[file])
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in docstrings_of(file)
    ]
    assert not [text for text in texts if CHECKPOINT_NAME.search(text)]


@each_file
def test_no_file_is_longer_than_350_lines(file):
    lines = (PACKAGE / file).read_text("utf-8").count("\n")
    assert lines <= LONG_FILES.get(file, 350)


def code_lines(node):
    """Lines of a function without its docstring and its signature."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


@each_file
def test_no_function_is_longer_than_40_lines(file):
    sizes = {f"{file}:{name}": code_lines(node) for name, node in functions_of(file)}
    assert not {name: n for name, n in sizes.items() if n > LONG_FUNCTIONS.get(name, 40)}


@each_file
def test_everything_public_has_a_docstring(file):
    tree = TREES[file]
    assert ast.get_docstring(tree)
    bare = [
        name
        for name, node in functions_of(file)
        if not any(part.startswith("_") for part in name.split(".")) and not ast.get_docstring(node)
    ]
    bare += [
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ]
    assert not bare


@each_file
def test_habits(file):
    source = (PACKAGE / file).read_text("utf-8")
    for node in ast.walk(TREES[file]):
        if isinstance(node, ast.ExceptHandler):
            caught = ast.unparse(node.type) if node.type else "everything"
            names = set(re.findall(r"\w+", caught))
            assert "everything" not in names and "Exception" not in names, f"line {node.lineno}"
            # The rollback of a load has to see a keyboard interrupt too, and raises it again.
            if "BaseException" in names:
                assert isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None
        assert not isinstance(node, ast.Assert), f"line {node.lineno}: assert is for tests"
        assert not isinstance(node, ast.Global), f"line {node.lineno}: no module-wide switch"
        if isinstance(node, ast.Attribute | ast.Name):
            assert getattr(node, "attr", getattr(node, "id", "")) not in {"Lambda", "exec", "eval"}
    # A path of the machine it was written on.
    assert not re.search(r"/(home|root|Users|tmp|work|mnt|var)/\w|[A-Z]:\\\\", source)
    assert not re.search(r"\b(TODO|FIXME|XXX|HACK)\b", source)


# ---- what is public --------------------------------------------------------------------------

MODULES = [kerasbert.__name__] + [
    info.name for info in pkgutil.walk_packages(kerasbert.__path__, "kerasbert.")
]


@pytest.mark.parametrize("name", MODULES)
def test_names_in_all_exist(name):
    module = importlib.import_module(name)
    for public in getattr(module, "__all__", []):
        assert getattr(module, public, None) is not None
        assert getattr(module, public).__doc__
    assert len(set(getattr(module, "__all__", []))) == len(getattr(module, "__all__", []))


def test_the_public_surface_is_short():
    assert 5 <= len(kerasbert.__all__) <= 15
    assert re.fullmatch(r"\d+\.\d+\.\d+\w*", kerasbert.__version__)
    assert kerasbert.models.build_transformer_model is kerasbert.build_transformer_model


def layer_classes():
    for name in MODULES:
        for value in vars(importlib.import_module(name)).values():
            own = getattr(value, "__module__", "").startswith("kerasbert")
            if own and isinstance(value, type) and issubclass(value, keras.layers.Layer):
                yield value


def test_every_layer_is_registered():
    abstract = {
        "CompletedModel",
        "CompositeLayer",
        "ConditionalLayer",
        "LabelLayer",
        "MergingLayer",
        "RegularizedModel",
        "ResidualLayer",
        "TableLayer",
    }
    found = {cls for cls in layer_classes() if cls.__name__ not in abstract}
    assert len(found) >= 8
    for cls in found:
        assert keras.saving.get_registered_name(cls) == f"kerasbert>{cls.__name__}"
        assert keras.saving.get_registered_object(f"kerasbert>{cls.__name__}") is cls


def test_importing_the_package_is_enough_to_load(tmp_path):
    config = tiny_config("google_albert")
    model = kerasbert.build_transformer_model(config, model="albert", with_mlm=True, with_nsp=True)
    model.save(tmp_path / "model.keras")
    code = (
        "import keras, kerasbert, sys; model = keras.models.load_model(sys.argv[1]);"
        "print(model.count_params(), kerasbert.hidden_state(model, -1).shape)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "model.keras")],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.stdout.strip() == f"{model.count_params()} (None, None, 32)", done.stderr[-500:]
