"""Training by steps, from the last checkpoint on."""

from itertools import islice

import keras

from kerasbert.errors import ConfigError, check_integer, listing

# Inputs that can be made of what a batch has as targets and weights.
_FROM_TARGETS = {"masked_lm_ids": "masked_lm"}
_FROM_WEIGHTS = {"masked_lm_weights": "masked_lm"}


def train_steps(
    model, batches, steps, checkpoint, *, validation=None, callbacks=(), verbose=1, **options
):
    """Trains a compiled model until it has seen so many batches, in this run and before.

    A run that was stopped or killed is called again with the same arguments: it goes on from
    the last checkpoint, with the batch that comes next, to the same losses.

    Args:
        model: the model, compiled.
        batches: `(x, y, sample_weight)`, dicts of arrays, of which what the model does not take
            is left out. A `keras.utils.PyDataset`, which is told its epoch by the attribute
            `epoch`, if it has one; or a function that takes a number of batches to leave out
            and returns an iterable of the others; or an iterable that gives the same batches
            each time it is begun. The first and the last are gone through again and again.
        steps: number of all batches, a multiple of those from checkpoint to checkpoint.
        checkpoint: a `PretrainingCheckpoint`; what Keras calls an epoch goes from one
            checkpoint to the next.
        validation: batches, a list or a `PyDataset`, on which the model is evaluated before each
            checkpoint.
        callbacks: list of further Keras callbacks.
        verbose: of `fit`.
        **options: further ones of `fit`.

    Returns:
        `checkpoint.history`: a list of a dict of numbers for each checkpoint.

    Raises:
        ConfigError: if `steps` is no such number, or the batches lack what the model takes, or
            end.
        CheckpointError: if the last checkpoint is of another model.

    Example:
        >>> from kerasbert.pretraining import compile_objectives, masked_lm_model
        >>> from kerasbert.pretraining import PretrainingCheckpoint, train_steps
        >>> trained = compile_objectives(masked_lm_model(masked_lm), AdamW(1e-4))
        >>> x = {name: np.ones((2, 8), "int32") for name in trained.input}
        >>> batch = x, {"masked_lm": np.ones((2, 8))}, {"masked_lm": np.ones((2, 8))}
        >>> checkpoint = PretrainingCheckpoint("out/steps", every=2)
        >>> history = train_steps(trained, [batch], 4, checkpoint, verbose=0)
        >>> [row["step"] for row in history], checkpoint.latest().name
        ([2, 4], 'step-00000004')

    Source: google-research/albert `run_pretraining.py`, which also counts steps.
    """
    check_integer("steps", steps, minimum=1)
    if steps % checkpoint.every:
        raise ConfigError(
            f"steps={steps}, with a checkpoint every {checkpoint.every}.\n"
            f"Expected a multiple, such as {steps - steps % checkpoint.every or checkpoint.every}."
        )
    done = checkpoint.restore(model)
    if done < steps:
        model.fit(
            for_model(model, _from(batches, done)),
            steps_per_epoch=checkpoint.every,
            initial_epoch=done // checkpoint.every,
            epochs=steps // checkpoint.every,
            callbacks=[checkpoint, *callbacks],
            verbose=verbose,
            validation_data=None if validation is None else _Validation(model, validation),
            **options,
        )
    return checkpoint.history


def for_model(model, batches):
    """Yields batches with all that a model takes and nothing else.

    Args:
        model: such as of `masked_lm_model`.
        batches: iterable of `(x, y, sample_weight)`.

    Raises:
        ConfigError: if a batch lacks something; says what.

    Example:
        >>> from kerasbert.pretraining import for_model, masked_lm_model
        >>> x = {name: np.ones((2, 8), "int32") for name in masked_lm_model(masked_lm).input}
        >>> y = {"masked_lm": np.ones((2, 8)), "next_sentence": np.ones(2)}
        >>> found, = for_model(masked_lm_model(masked_lm), [(x, y, y)])
        >>> list(found[1])
        ['masked_lm']

    Returns:
        A generator of such batches.

    Source: no paper.
    """
    targets = [name for name in model.output if name in ("masked_lm", "next_sentence")]
    if "word_order" in model.output:
        targets.append("word_order")
    for x, y, weights in batches:
        x = {
            **{name: y[of] for name, of in _FROM_TARGETS.items() if of in y},
            **{name: weights[of] for name, of in _FROM_WEIGHTS.items() if of in weights},
            **x,
        }
        yield (
            _chosen(x, model.input, "inputs"),
            _chosen(y, targets, "targets"),
            _chosen(weights, targets, "weights"),
        )


class _Validation(keras.utils.PyDataset):
    """Batches that are gone through again and again, fitted to a model."""

    def __init__(self, model, batches):
        super().__init__()
        self.model, self.batches = model, batches

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return next(for_model(self.model, [self.batches[index]]))


def _chosen(values, names, what):
    if missing := [name for name in names if name not in values]:
        raise ConfigError(
            f"A batch has no {listing(missing)} among its {what}.\n"
            f"Expected all of: {listing(names)}.\n"
            "Make the data with what the model learns, or build the model without that head."
        )
    return {name: values[name] for name in names}


def _from(batches, done):
    """Yields the batches after the first ones, for ever."""
    if isinstance(batches, keras.utils.PyDataset):
        yield from _epochs(batches, done)
    elif callable(batches):
        yield from batches(done)
    else:
        yield from islice(_again(batches), done, None)
    raise ConfigError(
        "The batches ended before the training.\n"
        "Expected as many as there are steps.\n"
        "Pass an iterable that can be begun again, or fewer steps."
    )


def _epochs(dataset, done):
    """Yields the batches of a dataset after the first ones, epoch after epoch."""
    epoch, first = divmod(done, len(dataset))
    while True:
        if hasattr(dataset, "epoch"):
            dataset.epoch = epoch
        yield from (dataset[number] for number in range(first, len(dataset)))
        epoch, first = epoch + 1, 0


def _again(batches):
    empty = False
    while not empty:
        empty = True
        for batch in batches:
            empty = False
            yield batch
