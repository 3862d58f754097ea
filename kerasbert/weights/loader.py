"""Loads a checkpoint into a model: every variable and every name is accounted for."""

import math
import warnings

import numpy as np
from tqdm.auto import tqdm

from kerasbert.errors import WeightMismatchError, listing
from kerasbert.models.view import find_encoder
from kerasbert.weights import complaints
from kerasbert.weights.detect import is_optimizer_slot
from kerasbert.weights.grouping import config_of_file
from kerasbert.weights.pairing import conditional_weights, edges
from kerasbert.weights.report import LoadReport
from kerasbert.weights.resize import resized, why_not
from kerasbert.weights.transpose import turned_by_backend
from kerasbert.weights.vocabulary import VocabularySelection
from kerasbert.weights.waves import check_waves

REPORT_ATTRIBUTE = "load_report"


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
        autoresize: whether to resize variables of another width, see `resize.py`.
        ignore_invalid: whether variables of the encoder may keep their initial values, where
            the file lacks them or has them in another shape.
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
        autoresize=False,
        ignore_invalid=False,
    ):
        self.model = model
        self.checkpoint = checkpoint
        self.match = match
        self.strict = strict
        self.autoresize = autoresize
        self.ignore_invalid = ignore_invalid
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
        self.config = self._config_of_file()
        self.edges = edges(
            self.view,
            self.match.dialect,
            self.match.prefix,
            self.config,
            present=self.checkpoint.shapes.keys(),
        )
        self._account_for_places()
        self._account_for_variables()
        self._account_for_names()
        self._account_for_shapes()
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
        setattr(self.view.mask_layer, REPORT_ATTRIBUTE, self.report)
        self._speak(verbose)
        return self.report

    # --- accounts ---

    def _account_for_places(self):
        """Blocks of the file that the model does not have."""
        dialect, config = self.match.dialect, self.config
        expected = dialect.places(config, self.match.prefix)
        built = self._built_places()
        foreign = sorted(built - expected)
        beyond = [place for place in foreign if self._is_layer_beyond(place)]
        if foreign != beyond:
            complaints.foreign_places(config, self.match, foreign, self.checkpoint.source)
        self.report.skipped_layers = [
            name for name in sorted(self.match.known) if beyond and name.startswith(tuple(beyond))
        ]

    def _config_of_file(self):
        """The model's configuration, with the groups of the file if un-sharing changed them."""
        config, as_written = self.view.config, config_of_file(self.view.config)
        groups = {place[1] for place in self.match.places.values()}
        return as_written if len(groups) == as_written.num_hidden_groups else config

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
        self.edges = [edge for edge in self.edges if edge.name in self.checkpoint.shapes]
        conditions = conditional_weights(self.view, [*self.edges, *absent])
        known = {id(edge.variable) for edge in [*self.edges, *absent]} | conditions.keys()
        strangers = [weight.path for weight in self.model.weights if id(weight) not in known]
        self.report.conditions = sorted(conditions.values())
        for edge in self.edges:
            self.report.loaded.setdefault(edge.path, []).append(edge.name)
        missing = {edge.path for edge in absent} - self.report.loaded.keys()
        self.report.missing = sorted(missing) + strangers
        complaints.check_missing(self, absent, strangers)

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

    def _account_for_shapes(self):
        """Variables whose array in the file has another shape."""
        wrong = []
        for edge in self.edges:
            found, shape = self._shape_here(edge), tuple(edge.variable.shape)
            if found == shape:
                continue
            if self.autoresize and not why_not(edge.row, found, shape):
                self.report.resized[edge.path] = (found, shape)
            else:
                wrong.append(edge)
        if self.report.resized:
            complaints.check_resizable(self)
        if wrong and not self.ignore_invalid:
            complaints.misshapen(self, wrong)
        self.report.misshapen = sorted({edge.path for edge in wrong})
        for path in self.report.misshapen:
            del self.report.loaded[path]
        self.edges = [edge for edge in self.edges if edge.path in self.report.loaded]
        complaints.check_blocks(self)

    def _shape_here(self, edge):
        """The shape that an array of the file has by the time it is laid out our way."""
        found = edge.row.shape_here(tuple(self.checkpoint.shapes[edge.name]))
        if edge.row.vocab:
            found = (self.vocabulary.size(found[0]) if found else 0, *found[1:])
        if self._is_cut(edge) and found:
            found = (min(found[0], edge.variable.shape[0]), *found[1:])
        return found

    def _is_cut(self, edge):
        """Whether this is a table of which only the first positions were asked for."""
        return edge.row.dims.startswith("P ") and self.fewer_positions

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
        if self._is_cut(edge):
            array = array[: edge.variable.shape[0]]
        array = self.vocabulary.apply(array) if edge.row.vocab else array
        if edge.path not in self.report.resized:
            return array
        layer_name = edge.path.partition("/")[0]
        return resized(edge.row, self.view, layer_name, array, edge.variable.shape)

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
        for fresh, what in (
            (self.report.missing, "are not in"),
            (self.report.misshapen, "have another shape in"),
        ):
            if fresh:
                warnings.warn(
                    f"{len(fresh)} variables {what} {self.checkpoint.source} and keep their "
                    f"initial values: {listing(fresh)}.",
                    stacklevel=4,
                )
        if verbose >= 2:
            print(self.report)
        elif verbose:
            print(self.report.headline())
