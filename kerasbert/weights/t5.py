"""What only a T5 checkpoint can say of the model's head."""

import numpy as np

HEAD = "Decoder-Output-LM/embeddings"
TABLE = "Embedding-Token/embeddings"


def head_of_t5(checkpoint, match, values):
    """Tells whether a checkpoint has a head of its own, as T5 1.1 and mT5 do.

    Files of the transformers library may repeat the token table in its place.

    Args:
        checkpoint: an opened checkpoint.
        match: what `detect` found in it.
        values: keys of the configuration.

    Returns:
        A dict of keys of the configuration.
    """
    head, table = _name_of(HEAD, checkpoint, match), _name_of(TABLE, checkpoint, match)
    tied = head is None or (
        match.dialect.hugging_face
        and checkpoint.shapes[head] == checkpoint.shapes[table]
        and np.array_equal(checkpoint.read(head), checkpoint.read(table))
    )
    scales = values.get("scale_decoder_outputs")
    return {
        "layout": match.dialect.name,
        "tie_word_embeddings": bool(tied),
        "scale_decoder_outputs": bool(tied) if scales is None else scales,
    }


def _name_of(ours, checkpoint, match):
    names = (n for row in match.dialect.top_rows if row.ours == ours for n in row.names(""))
    return next((name for name in names if name in checkpoint.shapes), None)
