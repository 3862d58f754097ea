"""What adversarial training and R-Drop have in common: a step with further passes.

Shapes: B batch, L length, E width of the token table.
"""

import keras
from keras import ops

from kerasbert.errors import ConfigError
from kerasbert.models.copying import functional
from kerasbert.training.gradients import needs_every_value, random_numbers_apart, random_state
from kerasbert.training.shifts import ShiftedGraph


class RegularizedModel(keras.Model):
    """A functional model, over the same layers as another, whose training loss has more terms.

    Evaluation and prediction are those of the other model. Subclasses say in `training_loss`
    what `fit` minimises. All that a further pass would change, as the state of dropout, is as
    after a plain step.

    Args:
        model: functional model with one encoder of ours.
    """

    def __init__(self, model):
        if not isinstance(model, keras.Model) or not hasattr(model, "inputs"):
            raise ConfigError(
                f"model={model!r}.\nExpected a functional Keras model.\n"
                "Pass one from build_transformer_model, with your layers on its output."
            )
        model = functional(model)
        graph = ShiftedGraph(model)
        super().__init__(model.input, model.output, name=model.name)
        # Keras would count its layers a second time.
        self.__dict__["_shifted"] = graph
        self.__dict__["_before"] = ([], None)

    def training_loss(self, step):
        """Returns the loss of a `Step`, a scalar."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it minimises.")

    def call(self, inputs, training=None, mask=None, **kwargs):
        """Computes what the model computes."""
        if training:
            seeds = [v for v in self.non_trainable_variables if "seed_generator" in v.path]
            values = [(seed, ops.copy(seed.value)) for seed in seeds]
            self.__dict__["_before"] = (values, random_state())
        return super().call(inputs, training=training, mask=mask, **kwargs)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """Returns the loss: that of the model, or in training that of `training_loss`."""
        if not training:
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        return self.training_loss(Step(self, x, y, y_pred, sample_weight))

    def plain_loss(self, x, y, y_pred, sample_weight):
        """Returns the loss that the model has without further terms."""
        return super().compute_loss(x, y, y_pred, sample_weight, True)

    def plain(self):
        """Returns the model without the further terms, with the same layers and optimizer."""
        plain = keras.Model(self.input, self.output, name=self.name)
        if self.compiled:
            plain.compile_from_config(self.get_compile_config())
            plain.optimizer = self.optimizer
        return plain

    def save(self, filepath, *args, **kwargs):
        """Saves the plain model, which loads without this class."""
        self.plain().save(filepath, *args, **kwargs)


class Step:
    """One batch on its way, and further passes over it that leave no trace.

    Args:
        model: the `RegularizedModel`.
        x: inputs.
        y: targets, or None.
        outputs: of the first pass.
        sample_weight: or None.

    Attributes:
        outputs: of the first pass.
        loss: its plain loss.
    """

    def __init__(self, model, x, y, outputs, sample_weight):
        self._model = model
        self._x = x
        self._y = y
        self._weight = sample_weight
        self.outputs = outputs
        # A further pass clears what layers added in this one.
        self.loss = model.plain_loss(x, y, outputs, sample_weight)

    def again(self, shifts=None, *, new_dropout=False):
        """Returns (loss, outputs) of a further pass.

        Args:
            shifts: what is added to the vectors of the tokens.
            new_dropout: whether dropout drops others than in the first pass.
        """
        model = self._model
        state = []
        if needs_every_value():
            variables = (
                *model.trainable_variables,
                *model.non_trainable_variables,
                *model.metrics_variables,
            )
            state = [(variable, variable.value) for variable in variables]
        seeds, random = ([], None) if new_dropout else model._before
        losses, model._losses_override = model._losses_override, []
        try:
            with (
                random_numbers_apart(random),
                keras.StatelessScope(state_mapping=state + seeds, collect_losses=True),
            ):
                outputs = model._shifted(self._x, shifts, training=True)
                return model.plain_loss(self._x, self._y, outputs, self._weight), outputs
        finally:
            model._losses_override = losses

    def zeros(self):
        """Returns shifts of nothing, and 1 or 0 for real tokens or padding."""
        return self._model._shifted.zeros(self._x)
