"""Notices when training has failed in a way that the loss alone does not show."""

import warnings
from contextlib import suppress

import keras
import numpy as np

from kerasbert.errors import ConfigError, KerasbertError, check_integer, check_number
from kerasbert.training.recipes import recipe_for


class CollapseWarning(keras.callbacks.Callback):
    """Warns when a classifier gives all texts the same class, as after too high a rate.

    After each epoch the model predicts a sample. It has collapsed if one class gets (nearly)
    all of the sample though the labels have more, or if the predictions are no numbers. Silent
    otherwise. The warning says which rate and warm-up to try.

    Args:
        x: inputs of a sample, as for `predict`, of some hundred texts.
        y: their labels: class numbers (N,) or (N, 1), or one-hot (N, C).
        stop: whether to end the training then.
        patience: how many collapsed epochs in a row are let pass; 1 or 2 for a model that starts
            from random weights, which learns little in its first epoch.
        share: from which share of one class on predictions count as collapsed.
        batch_size: for the prediction.

    Raises:
        ConfigError: if the labels are all of one class, of another number than the inputs, or
            no classes of texts.

    Example:
        >>> from kerasbert.training import CollapseWarning
        >>> sample = np.array([[2, 7, 3], [2, 9, 3]]), np.zeros((2, 3))
        >>> watch = CollapseWarning(sample, np.array([0, 1]), stop=True)
        >>> watch.collapsed
        False

    Source: google-research/albert issues 54 and 207, keras-team/keras-hub issue 831, where
    ALBERT fell back to the majority class with BERT's rates.
    """

    def __init__(self, x, y, *, stop=False, patience=0, share=0.99, batch_size=32):
        super().__init__()
        check_integer("batch_size", batch_size, minimum=1)
        check_integer("patience", patience, minimum=0)
        check_number("share", share, least=0.5, most=1.0)
        self.x = x
        self.labels = _classes(y)
        counts = np.unique(self.labels, return_counts=True)[1]
        if len(counts) < 2 or counts.max() / counts.sum() >= share:
            raise ConfigError(
                f"{counts.max()} of {counts.sum()} labels of the sample are of one class.\n"
                f"Expected at least two classes, and less than {share:.0%} of each: a model that "
                "is right would look like one that has collapsed.\nPass a sample of all classes."
            )
        self.stop = stop
        self.patience = patience
        self.share = share
        self.batch_size = batch_size
        self.collapsed = False
        self._in_a_row = 0

    def on_train_begin(self, logs=None):
        """Forgets the epochs of an earlier training."""
        self._in_a_row = 0

    def on_epoch_end(self, epoch, logs=None):
        """Predicts the sample, and warns if the predictions have collapsed."""
        scores = self.model.predict(self.x, batch_size=self.batch_size, verbose=0)
        what = self._what_collapsed(np.asarray(scores, "float64"))
        self.collapsed = what is not None
        self._in_a_row = self._in_a_row + 1 if self.collapsed else 0
        if self._in_a_row <= self.patience:
            return
        if self.stop:
            self.model.stop_training = True
        warnings.warn(f"After epoch {epoch + 1} {what}.\n{self._advice()}", stacklevel=2)

    def _what_collapsed(self, scores):
        if not np.isfinite(scores).all():
            return "its predictions are no numbers (NaN or infinite)"
        if scores.shape[0] != self.labels.shape[0] or scores.ndim != 2:
            raise ConfigError(
                f"The predictions have the shape {scores.shape} for {len(self.labels)} labels.\n"
                "Expected one row of scores for a text.\n"
                "Pass the callback to the fit of a classifier of texts."
            )
        found = (scores[:, 0] > 0.5) if scores.shape[1] == 1 else scores.argmax(-1)
        classes, counts = np.unique(found.astype(int), return_counts=True)
        if counts.max() / counts.sum() >= self.share:
            most = classes[counts.argmax()]
            return f"{counts.max()} of {counts.sum()} texts are predicted to be of class {most}"
        return None

    def _advice(self):
        rate, schedule = _highest_rate(self.model.optimizer)
        lower = rate / 4
        # A model without an encoder of ours has no recipe.
        with suppress(KerasbertError):
            lower = min(lower, recipe_for(self.model).learning_rate)
        warmup = "a tenth of all steps"
        if getattr(schedule, "warmup_steps", 0):
            warmup = f"{2 * schedule.warmup_steps} steps for {schedule.warmup_steps}"
        return (
            f"The model has most likely fallen back to one class at the rate {rate:.2g}.\n"
            f"Build it anew and train it with a rate of {lower:.1g} and a warm-up of {warmup}: "
            "WarmupDecay(rate, total_steps, warmup_steps) of kerasbert.optimizers.\n"
            "If that does not help, look whether the checkpoint was loaded: training from random "
            "numbers looks the same."
        )


def _classes(labels):
    labels = np.asarray(labels)
    one_hot = labels.ndim == 2 and labels.shape[1] > 1
    if labels.ndim not in (1, 2) or not labels.size:
        raise ConfigError(
            f"y has the shape {labels.shape}.\n"
            "Expected the classes of texts: (N,), (N, 1), or one-hot (N, C)."
        )
    return labels.argmax(-1) if one_hot else labels.reshape(-1)


def _highest_rate(optimizer):
    """The highest rate of an optimizer, and its schedule or None."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    schedule = getattr(optimizer, "_learning_rate", None)
    if isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
        steps = getattr(schedule, "total_steps", 1000)
        rates = [float(schedule(step)) for step in np.linspace(0, steps, 41, dtype="int32")]
        return max(rates), schedule
    return float(optimizer.learning_rate), None
