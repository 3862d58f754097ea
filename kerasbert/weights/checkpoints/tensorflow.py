"""Reads and writes name-based TensorFlow checkpoints, without sessions or graphs."""

import contextlib
import os
import re
import tempfile
from pathlib import Path

from kerasbert.errors import CheckpointError
from kerasbert.weights.checkpoints.replacement import Replacement
from kerasbert.weights.checkpoints.tensorflow_index import check_index

# What TensorFlow puts around its messages.
_OF_TENSORFLOW = re.compile(r"^\{\{.*?\}\} | \[Op:\w+\]$")

_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


class TensorFlowCheckpoint:
    """A TensorFlow checkpoint as a lazy mapping.

    Args:
        prefix: path without `.index`.

    Attributes:
        source: the prefix.
        shapes: dict from variable name to shape.

    Raises:
        CheckpointError: if the index cannot be read, or the file is object-based.
    """

    def __init__(self, prefix):
        self.source = prefix
        # Imported late: it takes seconds, and with other backends nothing else needs it.
        import tensorflow as tf

        self._tf_error = tf.errors.OpError
        with self._explained("open"):
            check_index(f"{prefix}.index")
            # Not tf.train.load_checkpoint: it looks into a folder of the same name instead.
            self._reader = tf.compat.v1.train.NewCheckpointReader(self._plain_path(prefix))
            self.shapes = {
                name: tuple(shape)
                for name, shape in self._reader.get_variable_to_shape_map().items()
            }
            self._dtypes = self._reader.get_variable_to_dtype_map()
        if _OBJECT_GRAPH in self.shapes:
            raise CheckpointError(
                f"{prefix} is an object-based TF2 checkpoint (tf.train.Checkpoint, or save_weights "
                "of an old Keras): its names say nothing about the layers.\n"
                "Expected a name-based checkpoint, as Google's TF1 code writes them.\n"
                "Load it with the code that wrote it and save with save_weights_as_checkpoint, or "
                "pass the weights as a dict from Google's names to arrays."
            )
        self._check_size()

    def read(self, name):
        """Reads one variable as a numpy array.

        Raises:
            CheckpointError: if the data file is truncated or damaged.
        """
        with self._explained(f"read {name} from"):
            return self._reader.get_tensor(name)

    def _plain_path(self, prefix):
        """Returns a path to the same files that TensorFlow does not take for a pattern."""
        if not set(prefix) & set("*?[]\\"):
            return prefix
        self._links = tempfile.TemporaryDirectory(prefix="kerasbert-")
        folder, name = os.path.split(os.path.abspath(prefix))
        for entry in Path(folder).iterdir():
            if entry.name.startswith((f"{name}.index", f"{name}.data-")):
                link = Path(self._links.name, f"model{entry.name.removeprefix(name)}")
                link.symlink_to(entry)
        return os.path.join(self._links.name, "model")

    def _check_size(self):
        # Found out now, not after half of the variables of a model have been overwritten.
        expected = 0
        for name, shape in self.shapes.items():
            dtype = self._dtypes[name]
            size = 0 if dtype.name == "string" else dtype.size
            for length in shape:
                size *= length
            expected += size
        folder, name = os.path.split(self.source)
        found = sum(
            entry.stat().st_size
            for entry in Path(folder or ".").iterdir()
            if entry.name.startswith(f"{name}.data-")
        )
        if found < expected:
            raise CheckpointError(
                f"The data of {self.source} is truncated: {found} bytes, but the index lists "
                f"{expected}.\nExpected a complete file.\nDownload or copy it again."
            )

    @contextlib.contextmanager
    def _explained(self, action):
        try:
            yield
        except (
            self._tf_error,
            ValueError,
            RuntimeError,
            OSError,
            TypeError,
            IndexError,
        ) as error:  # the last two: an unknown type, and a place past the end of the data
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise CheckpointError(
                f"Cannot {action} the checkpoint {self.source}: {reason}.\n"
                "Expected an undamaged TensorFlow checkpoint (NAME.index and NAME.data-…).\n"
                "Download or copy it again."
            ) from error


def write_checkpoint(prefix, arrays, texts=None):
    """Writes arrays as a name-based TensorFlow checkpoint, whole or not at all.

    Args:
        prefix: path without `.index`; its folder is made if needed.
        arrays: dict from variable names to numpy arrays.
        texts: dict from paths in the same folder to texts that belong to the checkpoint.

    Raises:
        CheckpointError: if the files cannot be written.

    Source: the format of `tf.compat.v1.train.Saver`.
    """
    import tensorflow as tf

    names = sorted(arrays)
    try:
        with Replacement(Path(prefix).parent) as files:
            tf.raw_ops.SaveV2(
                prefix=str(files.stem),
                tensor_names=names,
                shape_and_slices=[""] * len(names),
                tensors=[tf.constant(arrays[name]) for name in names],
            )
            # The index comes after its data: a new one is never seen beside old data alone.
            for suffix in (".data-00000-of-00001", ".index"):
                files.take(f"{files.stem}{suffix}", f"{prefix}{suffix}")
            for path, text in (texts or {}).items():
                files.aside(path).write_text(text, encoding="utf-8")
    except (OSError, ValueError, tf.errors.OpError) as error:
        reason = _OF_TENSORFLOW.sub("", str(error).splitlines()[0])
        raise CheckpointError(
            f"Cannot write the checkpoint {prefix!r}: {reason}.\n"
            "An earlier checkpoint of that name is untouched.\n"
            "Check that the folder is writable and the disk not full."
        ) from error
