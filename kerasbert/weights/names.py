"""Under which names a model would be found in a checkpoint."""

from kerasbert.models.view import find_encoder
from kerasbert.weights.detect import dialects_of
from kerasbert.weights.grouping import config_of_file
from kerasbert.weights.pairing import edges
from kerasbert.weights.pretrained import hugging_face_dialect
from kerasbert.weights.save import ORIGINAL_FAMILIES, dialect_to_write


def variable_mapping(model, dialects=None):
    """Lists the name of every variable in the checkpoint that would be written.

    It is that of `save_weights_as_checkpoint`, or where the family has no original TF1 code, of
    `save_pretrained`.

    Args:
        model: a Keras model that holds one encoder of kerasbert.
        dialects: see `save_weights_as_checkpoint`.

    Returns:
        A dict from the path of each variable, prefix not counted, to the list of its names.

    Raises:
        KerasbertError: if the model holds no single encoder.

    Example:
        >>> variable_mapping(model)["Embedding-Token/embeddings"]
        ['bert/embeddings/word_embeddings']
    """
    view = find_encoder(model)
    config = config_of_file(view.config)
    own = dialects_of(view, dialects)
    if own or config.family in ORIGINAL_FAMILIES:
        dialect, prefix = dialect_to_write(config, own), ""
    else:
        dialect = hugging_face_dialect(config.family)
        prefix = dialect.prefixes[0]
    names = {}
    for edge in edges(view, dialect, prefix, config):
        names.setdefault(edge.path, []).append(edge.name)
    return names
