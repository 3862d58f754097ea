"""Several workers only where Keras gives each batch once."""

import keras

from kerasbert.errors import ConfigError


def check_workers(dataset):
    """Refuses several workers of a `PyDataset` on backends where they would repeat batches.

    Args:
        dataset: the dataset, whose batches are found by their number.

    Raises:
        ConfigError: names the backend.
    """
    # Keras 3.15 takes batches before the first epoch there, and gives them out in it again.
    backend = keras.backend.backend()
    if backend != "tensorflow" and (dataset.workers > 1 or dataset.use_multiprocessing):
        raise ConfigError(
            f"workers={dataset.workers}, use_multiprocessing={dataset.use_multiprocessing} on the "
            f"backend {backend!r}.\n"
            "Expected one worker: with several, Keras would train with some texts twice and "
            "with others never in the first epoch.\n"
            "Leave workers= away: the texts are tokenised already, a batch is made quickly."
        )
