"""Batches as `tf.data`; TensorFlow is imported when such a dataset is asked for."""

import keras


def batches_to_tf_data(dataset):
    """Returns a finite `tf.data.Dataset` of the batches of a `PyDataset`.

    Args:
        dataset: it has a length; its `on_epoch_end` is called after each pass. All axes but those
            of one size for every text, such as that of one-hot labels, may differ.
    """
    import tensorflow as tf

    def batches():
        for index in range(len(dataset)):
            yield dataset[index]
        dataset.on_epoch_end()

    def spec(array, other):
        same = zip(array.shape[1:], other.shape[1:], strict=True)
        shape = (None, *(n if n == m else None for n, m in same))
        return tf.TensorSpec(shape, array.dtype)

    first, second = dataset[0], dataset[min(1, len(dataset) - 1)]
    signature = keras.tree.map_structure(spec, first, second)
    made = tf.data.Dataset.from_generator(batches, output_signature=signature)
    counted = made.apply(tf.data.experimental.assert_cardinality(len(dataset)))
    return counted.prefetch(tf.data.AUTOTUNE)


def samples_to_tf_data(passes, types, shapes, batch_size, padded):
    """Returns an endless `tf.data.Dataset` of batches, made of single samples.

    Args:
        passes: function that returns an iterator over all samples once.
        types: nest of their dtypes.
        shapes: nest of their shapes.
        batch_size: how many samples a batch has; the last one of a pass has what is left.
        padded: whether samples have different lengths, where `shapes` says None.
    """
    import tensorflow as tf

    signature = _specs(tf, types, shapes)

    def one_pass():
        return (_like(types, sample) for sample in passes())

    samples = tf.data.Dataset.from_generator(one_pass, output_signature=signature)
    made = samples.padded_batch(batch_size) if padded else samples.batch(batch_size)
    # Repeated as a whole, so that no batch holds samples of two passes.
    return made.repeat().prefetch(tf.data.AUTOTUNE)


def _specs(tf, types, shapes):
    """Joins a nest of dtypes and one of shapes, each of which is a list or tuple itself."""
    if isinstance(types, dict):
        return {name: _specs(tf, types[name], shapes[name]) for name in types}
    if isinstance(types, (tuple, list)):
        pairs = zip(types, shapes, strict=True)
        return tuple(_specs(tf, one, shape) for one, shape in pairs)
    return tf.TensorSpec(shapes, types)


def _like(types, sample):
    """Returns a sample with tuples where there are lists in it: TensorFlow would stack them."""
    if isinstance(types, dict):
        return {name: _like(types[name], sample[name]) for name in types}
    if isinstance(types, (tuple, list)):
        return tuple(_like(own, part) for own, part in zip(types, sample, strict=True))
    return sample
