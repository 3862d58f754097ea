"""Loads a checkpoint into a model: every variable and every name is accounted for."""

import math
import warnings

import numpy as np
from keras import ops
from tqdm.auto import tqdm

from kerasbert.errors import CheckpointError, WeightMismatchError, listing
from kerasbert.models.view import find_encoder
from kerasbert.weights import complaints
from kerasbert.weights.checkpoints import open_checkpoint
from kerasbert.weights.detect import detect, is_optimizer_slot
from kerasbert.weights.mapping import edges
from kerasbert.weights.report import LoadReport
from kerasbert.weights.transpose import turned_by_backend
from kerasbert.weights.vocabulary import VocabularySelection
from kerasbert.weights.waves import check_waves

_REPORT_ATTRIBUTE = "load_report"


def load_weights_from_checkpoint(model, checkpoint, strict=True, verbose=1):
    """Loads a TensorFlow checkpoint into a model that is already built.

    If the file does not fit or is damaged, the model keeps the weights it had.

    Args:
        model: a Keras model that holds one encoder of kerasbert, possibly with layers of
            your own on top.
        checkpoint: see `build_transformer_model`.
        strict: whether model variables that the file lacks are an error. With False, heads
            and layers of your own may be missing; variables of the encoder never.
        verbose: 0 prints nothing, 1 one line, 2 the whole report.

    Returns:
        A `LoadReport`, which `model_report(model)` returns later too.

    Raises:
        CheckpointError: if the checkpoint cannot be found or read.
        WeightMismatchError: if it does not fit the model.

    Example:
        >>> report = load_weights_from_checkpoint(model, "albert_model.ckpt")
        Google ALBERT: ... variables loaded, ... unused (albert_model.ckpt)
        >>> report.missing
        []
    """
    checkpoint = open_checkpoint(checkpoint)
    family = find_encoder(model).config.family
    loader = Loader(model, checkpoint, detect(checkpoint, family), strict=strict)
    loader.plan()
    return loader.run(verbose, try_first=True)


def model_report(model):
    """Returns the `LoadReport` of the last load into `model`, or into the one it was built on.

    Raises:
        CheckpointError: if no checkpoint was loaded into this model object.
        KerasbertError: if it holds no single encoder of kerasbert.

    Example:
        >>> print(model_report(model).headline())
        Google ALBERT: ... variables loaded, ...
    """
    report = getattr(find_encoder(model).mask_layer, _REPORT_ATTRIBUTE, None)
    if report is None:
        raise CheckpointError(
            f"No checkpoint was loaded into the model {model.name!r}.\n"
            "Expected a model from build_transformer_model(config, checkpoint), or a call of "
            "load_weights_from_checkpoint; a model reloaded from a .keras file has no report."
        )
    return report


class Loader:
    """One load of one checkpoint into one model.

    Args:
        model: the Keras model.
        checkpoint: an opened checkpoint.
        match: what `detect` found.
        strict: see `load_weights_from_checkpoint`.
        vocabulary: `VocabularySelection` for the rows marked `vocab`.
        asked_for: keys of the configuration that came as keyword arguments: fewer layers or
            positions than the file has are then no mistake.
        notes: sentences for the report.
        chosen: see `LoadReport`.
    """

    def __init__(
        self,
        model,
        checkpoint,
        match,
        strict=True,
        vocabulary=None,
        asked_for=(),
        notes=(),
        chosen=None,
    ):
        self.model = model
        self.checkpoint = checkpoint
        self.match = match
        self.strict = strict
        self.vocabulary = vocabulary or VocabularySelection()
        self.fewer_layers = "num_hidden_layers" in asked_for
        self.fewer_positions = "max_position_embeddings" in asked_for
        self.view = find_encoder(model)
        self.report = LoadReport(
            checkpoint.source, match.dialect.title, notes=list(notes), chosen=chosen
        )

    def plan(self):
        """Checks everything that can be checked without reading a weight."""
        source = self.checkpoint.source
        complaints.check_family(self.view.config.family, self.match, source)
        complaints.check_architecture(self.view.config, self.match, source)
        self.edges = edges(
            self.view,
            self.match.dialect,
            self.match.prefix,
            present=self.checkpoint.shapes.keys(),
        )
        self._account_for_places()
        self._account_for_variables()
        self._account_for_names()
        complaints.check_shapes(self)
        check_waves(self)

    def run(self, verbose, try_first):
        """Reads every name and fills its variables.

        Args:
            verbose: see `load_weights_from_checkpoint`.
            try_first: whether to read the whole file once before touching the model, so that a
                damaged file leaves the model as it was. A backup of the old weights would do
                too, but takes the memory of a second model.
        """
        self._check_equal_names()
        targets = self._by_name()
        if try_first:
            for name in targets:
                self.read(name)
        bar = tqdm(targets, "loading", unit=" variables", disable=not verbose, leave=False, delay=2)
        for name in bar:
            self._fill(name, targets[name])
        # On a layer, which models that extend this one share.
        setattr(self.view.mask_layer, _REPORT_ATTRIBUTE, self.report)
        self._speak(verbose)
        return self.report

    # --- accounts ---

    def _account_for_places(self):
        """Blocks of the file that the model does not have."""
        dialect, config = self.match.dialect, self.view.config
        expected = dialect.places(config, self.match.prefix)
        built = self._built_places()
        foreign = sorted(built - expected)
        beyond = [place for place in foreign if self._is_layer_beyond(place)]
        if foreign != beyond:
            complaints.foreign_places(config, self.match, foreign, self.checkpoint.source)
        self.report.skipped_layers = [
            name for name in sorted(self.match.known) if beyond and name.startswith(tuple(beyond))
        ]

    def _built_places(self):
        """The places in the file of the stacks that the model has."""
        stacks = self.view.config.stacks
        return {place for place, stack in self.match.stacks.items() if stack in stacks}

    def _is_layer_beyond(self, place):
        """Whether a block of the file comes after the last layer that was asked for."""
        layer = self.match.places[place][0]
        beyond = layer is not None and layer >= self.view.config.num_hidden_layers
        return self.fewer_layers and beyond

    def _account_for_variables(self):
        """Model variables without a name, or whose name the file lacks."""
        absent = [edge for edge in self.edges if edge.name not in self.checkpoint.shapes]
        known = {id(edge.variable) for edge in self.edges}
        strangers = [weight.path for weight in self.model.weights if id(weight) not in known]
        self.report.missing = sorted({edge.path for edge in absent}) + strangers
        complaints.check_missing(self, absent, strangers)
        self.edges = [edge for edge in self.edges if edge.name in self.checkpoint.shapes]
        for edge in self.edges:
            self.report.loaded.setdefault(edge.path, []).append(edge.name)

    def _account_for_names(self):
        """Names of the file that no variable is read from."""
        dialect, prefix = self.match.dialect, self.match.prefix
        heads = {name for row in dialect.top_rows if row.head for name in row.names(prefix)}
        scopes = tuple(prefix + scope for scope in dialect.scopes)
        used = {edge.name for edge in self.edges} | set(self.report.skipped_layers)
        unread = []
        for name in sorted(self.checkpoint.shapes.keys() - used):
            if is_optimizer_slot(name):
                self.report.optimizer_slots.append(name)
            elif name.endswith(dialect.buffers):
                self.report.buffers.append(name)
            elif name in heads or (not scopes and name in self.match.known):
                self.report.unused_heads.append(name)
            else:
                self.report.unused.append(name)
                if name.startswith(scopes) and not self._is_segment_table(name):
                    unread.append(name)
        if unread and self.strict:
            complaints.unread_encoder_variables(self.match, unread, self.checkpoint.source)

    def _is_segment_table(self, name):
        """Whether the file's segment table is unread because the user removed that input."""
        rows = self.match.dialect.top_rows
        prefix = self.match.prefix
        segment = [n for row in rows if row.dims.startswith("T ") for n in row.names(prefix)]
        return self.view.config.type_vocab_size == 0 and name in segment

    # --- values ---

    def read(self, name):
        """Returns an array of the file, if it is one of numbers that may be weights."""
        array = self.checkpoint.read(name)
        # Kind "V" is bfloat16, a type that numpy does not know by itself.
        if array.dtype.kind not in "fV":
            raise WeightMismatchError(
                f"{name} in {self.checkpoint.source} is of type {array.dtype}.\n"
                "Expected floating-point numbers; integers may be quantised weights.\n"
                "Convert the checkpoint to float32 with the program that wrote it."
            )
        return array

    def _by_name(self):
        """The edges of every name, large arrays first.

        What reading and converting takes besides the model is as large as the array: so it
        is least when most of the model is there. Equal shapes follow each other, as the
        zeros that the variables of one shape start from are freed with the last of them.
        """
        targets = {}
        for edge in self.edges:
            targets.setdefault(edge.name, []).append(edge)
        shapes = {name: tuple(self.checkpoint.shapes[name]) for name in targets}
        order = sorted(targets, key=lambda n: (math.prod(shapes[n]), shapes[n]), reverse=True)
        return {name: targets[name] for name in order}

    def _fill(self, name, edges_of_name):
        # A method, so that the array is gone before the next one is read.
        array = self.read(name)
        for edge in edges_of_name:
            edge.variable.assign(turned_by_backend(self._value(edge, array)))

    def _value(self, edge, array):
        array = edge.row.from_file(array)
        if edge.row.dims.startswith("P ") and self.fewer_positions:
            array = array[: edge.variable.shape[0]]
        return self.vocabulary.apply(array) if edge.row.vocab else array

    def _check_equal_names(self):
        """Several names may fill one variable only if they hold the same numbers."""
        for path, names in self.report.loaded.items():
            first, *others = names
            if not others:
                continue
            array = self.read(first)
            for name in others:
                if not np.array_equal(array, self.read(name), equal_nan=True):
                    raise WeightMismatchError(
                        f"{self.checkpoint.source}: {path} serves several layers of the model, but "
                        f"{first} and {name} differ.\n"
                        "Expected equal values for a variable that is shared.\n"
                        "Build the model with model='albert_unshared', or with the unshare= and "
                        "unshare_layers= with which the checkpoint was written."
                    )

    def _speak(self, verbose):
        fresh = self.report.missing
        if fresh:
            warnings.warn(
                f"{len(fresh)} variables are not in {self.checkpoint.source} and keep their "
                f"initial values: {listing(fresh)}.",
                stacklevel=4,
            )
        if verbose >= 2:
            print(self.report)
        elif verbose:
            print(self.report.headline())


def to_numpy(variable):
    """Returns the value of a variable as a float32 numpy array, as checkpoints store it."""
    value = ops.convert_to_numpy(variable.value)
    return np.asarray(value, dtype="float32")
