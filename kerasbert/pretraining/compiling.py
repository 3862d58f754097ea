"""Losses, metrics and optimizers of pre-training."""

import keras

from kerasbert.errors import ConfigError, check_integer, check_number, did_you_mean, listing
from kerasbert.optimizers import LAMB, AdamW, WarmupDecay
from kerasbert.pretraining.electra import ReplacedAccuracy, ReplacedFound

_TOKENS = ("masked_lm", "word_order", "proposal")
_KNOWN = (*_TOKENS, "next_sentence", "replaced")

# ELECTRA's loss of finding is much smaller than that of predicting.
_WEIGHTS = {"replaced": 50.0}

# For each optimizer the highest rate and the share of all steps in which it rises.
_OPTIMIZERS = {
    # google-research/albert: batches of 4096, 125,000 steps of which 3125.
    "lamb": (LAMB, 0.00176, 0.025, "replaces"),
    # google-research/bert: batches of 256, 1,000,000 steps of which 10,000.
    "adamw": (AdamW, 1e-4, 0.01, "replaces"),
    # google-research/electra, small: batches of 128, 1,000,000 steps of which 10,000.
    "electra": (AdamW, 5e-4, 0.01, "multiplies"),
}


def compile_objectives(model, optimizer, *, loss_weights=None, jit_compile=None, **options):
    """Compiles a model for pre-training with the losses and metrics of its outputs.

    The loss of each output is the mean over all places of the batch that count, not over rows:
    what only fills up takes no part. Metrics: the accuracy of each output, and of ELECTRA also
    the share of the replaced tokens that was found.

    Args:
        model: such as of `masked_lm_model`, `electra_model` or `mask_proposal_model`.
        optimizer: a Keras optimizer.
        loss_weights: dict from outputs to weights of their losses; default 1, and 50 for
            `replaced`.
        jit_compile: whether XLA compiles the steps; None for True where it is the quicker way:
            on TensorFlow and JAX, unless a strategy of TensorFlow has several replicas.
        **options: further ones of `keras.Model.compile`.

    Returns:
        The model.

    Raises:
        ConfigError: if it has no output that is an objective, or a weight is for none.

    Example:
        >>> from kerasbert.pretraining import compile_objectives, masked_lm_model
        >>> trained = compile_objectives(masked_lm_model(masked_lm), AdamW(1e-4))
        >>> batch = {name: np.ones((2, 8), "int32") for name in trained.input}
        >>> logs = trained.evaluate(batch, {"masked_lm": np.ones((2, 8))}, verbose=0,
        ...                         return_dict=True)
        >>> sorted(logs)
        ['loss', 'masked_lm_accuracy']

    Source: google-research/albert `run_pretraining.py`; google-research/electra.
    """
    names = [name for name in _KNOWN if isinstance(model.output, dict) and name in model.output]
    if not names:
        raise ConfigError(
            f"{model.name!r} has no output that is an objective of pre-training.\n"
            f"Expected a dict of outputs with one of: {', '.join(_KNOWN)}.\n"
            "Make it with masked_lm_model(model)."
        )
    loss_weights = dict(loss_weights or {})
    if unknown := loss_weights.keys() - set(names):
        raise ConfigError(
            f"loss_weights has {listing(unknown)}.{did_you_mean(unknown.pop(), names)}\n"
            f"Expected outputs of the model: {', '.join(names)}."
        )
    weights = {name: loss_weights.get(name, _WEIGHTS.get(name, 1.0)) for name in names}
    if jit_compile is None:
        jit_compile = _gains_by_compilation(model)
    model.compile(
        optimizer,
        loss={name: _loss(name) for name in names},
        loss_weights=weights,
        weighted_metrics={name: _metrics(name, len(names) == 1) for name in names},
        jit_compile=jit_compile,
        **options,
    )
    return model


def pretraining_optimizer(steps, name="lamb", *, learning_rate=None, warmup=None, **options):
    """Returns an optimizer with the numbers that the authors of the models used.

    Args:
        steps: number of all updates, after which the rate is 0.
        name: "lamb" (ALBERT: rate 0.00176 for batches of 4096, rising for 2.5 % of the steps),
            "adamw" (BERT: 1e-4 for 256, 1 %) or "electra" (ELECTRA small: 5e-4 for 128, 1 %).
            None of them corrects the bias of the moments; decay 0.01 of all but biases and
            norms, gradients clipped to a common norm of 1. For small batches, rates of LAMB
            go with the root of the size.
        learning_rate: the highest rate, in place of that.
        warmup: the share of the steps in which it rises, in place of that.
        **options: further ones of `kerasbert.optimizers.AdamW`.

    Returns:
        A Keras optimizer.

    Raises:
        ConfigError: for an unknown name, or numbers out of range.

    Example:
        >>> optimizer = pretraining_optimizer(125000)
        >>> type(optimizer).__name__, optimizer.get_config()["weight_decay"]
        ('LAMB', 0.01)

    Source: google-research/albert README and `lamb_optimizer.py`; google-research/bert
    README; google-research/electra `configure_pretraining.py`.
    """
    check_integer("steps", steps, minimum=1)
    if name not in _OPTIMIZERS:
        raise ConfigError(
            f"name={name!r}.{did_you_mean(name, _OPTIMIZERS)}\n"
            f"Expected one of: {', '.join(_OPTIMIZERS)}."
        )
    made, rate, share, kind = _OPTIMIZERS[name]
    rate = rate if learning_rate is None else learning_rate
    share = share if warmup is None else warmup
    check_number("learning_rate", rate, above=0)
    check_number("warmup", share, least=0, most=1)
    schedule = WarmupDecay(rate, total_steps=steps, warmup_steps=round(share * steps), warmup=kind)
    return made(schedule, **options)


def _loss(name):
    made = keras.losses.SparseCategoricalCrossentropy
    if name == "replaced":
        made = keras.losses.BinaryCrossentropy
    return made(from_logits=True, reduction="mean_with_sample_weight", name=f"{name}_loss")


def _metrics(name, alone):
    # Of a single output Keras does not put its name before that of the metric.
    accuracy = f"{name}_accuracy" if alone else "accuracy"
    if name == "replaced":
        return [ReplacedAccuracy(accuracy), ReplacedFound("found")]
    return [keras.metrics.SparseCategoricalAccuracy(accuracy)]


def _gains_by_compilation(model):
    strategy = getattr(model, "distribute_strategy", None)
    alone = getattr(strategy, "num_replicas_in_sync", 1) < 2
    return keras.backend.backend() in ("tensorflow", "jax") and alone
