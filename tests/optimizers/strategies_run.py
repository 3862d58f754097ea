"""Trains under `tf.distribute` with two devices and without: for a process of its own.

Prints the largest difference of weights and slots for every policy and case.
"""

import keras
import numpy as np
import tensorflow as tf
from updates import cross_entropy, numbers, small_data, small_model

from kerasbert.optimizers import LAMB, AdamW, Averaging, Lazy, Lookahead, WarmupDecay, extend

Everything = extend(AdamW, Averaging, Lookahead, Lazy)
EXTRA = {
    "multipliers": {"head": 0.5},
    "steps_per_slow_update": 2,
    "include_in_lazy_optimization": ["table"],
}


def schedule():
    return WarmupDecay(0.1, total_steps=8, warmup_steps=2)


CASES = {
    "clipped": lambda: AdamW(schedule(), global_clipnorm=0.1),
    "lamb_accumulated": lambda: LAMB(schedule(), gradient_accumulation_steps=2),
    # Accumulation and scaled losses meet here too.
    "everything": lambda: Everything(schedule(), gradient_accumulation_steps=2, **EXTRA),
}
# What is scaled is the loss, whatever is done with the gradients: clipped, added up, both.
POLICIES = {"float32": list(CASES), "mixed_float16": ["clipped", "everything"]}


def trained(strategy, make):
    ids, labels = small_data(24)
    with strategy.scope():
        model = small_model()
        model.compile(make(), cross_entropy(), jit_compile=False)
    model.fit(ids, labels, batch_size=12, epochs=2, shuffle=False, verbose=0)
    return numbers(model.trainable_variables + model.optimizer.variables)


def main():
    """Prints a line for every policy and case."""
    (cpu,) = tf.config.list_physical_devices("CPU")
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)
    mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    for policy, names in POLICIES.items():
        keras.config.set_dtype_policy(policy)
        for name in names:
            alone = trained(tf.distribute.get_strategy(), CASES[name])
            together = trained(mirrored, CASES[name])
            worst = max(np.abs(a - b).max() for a, b in zip(alone, together, strict=True))
            print(policy, name, worst)


if __name__ == "__main__":
    main()
