"""Batches in which the order of some words was changed, to learn the right one.

Shapes: B batch, L length, M masked places of a row, K places where the order was changed.
"""

from itertools import permutations

import numpy as np

from kerasbert.errors import ConfigError, check_integer, check_number


def shuffle_words(batch, rng, *, special_ids, share=0.05, size=3):
    """Returns a batch in which the tokens of some trigrams stand in another order.

    The trigrams do not overlap, lie in one segment, and hold neither masked places nor special
    tokens. Each gets one of its five other orders.

    Args:
        batch: `(x, y, sample_weight)`, dicts of arrays, as for `masked_lm_model`; left as it is.
        rng: a `numpy.random.Generator`.
        special_ids: ids of tokens that stay where they are, such as [CLS], [SEP] and [MASK].
        share: of the real tokens of a row, how many are moved, rounded to whole trigrams; at
            least one, if there is room for it.
        size: how many tokens are one unit of it; 3 is a trigram.

    Returns:
        A batch with, in addition, the input `word_order_positions` (B, K), the target
        `word_order` (B, K), the right tokens there, and its weight, 0 where a row has fewer
        places. K depends on L alone.

    Raises:
        ConfigError: if an argument is out of range.

    Example:
        >>> from kerasbert.pretraining import shuffle_words
        >>> x = {"input_ids": [[2, 7, 8, 9, 3]], "input_mask": [[1] * 5],
        ...      "segment_ids": [[0] * 5], "masked_lm_positions": [[0]]}
        >>> none = {"masked_lm": np.zeros((1, 1))}
        >>> x, y, _ = shuffle_words((x, none, none), np.random.default_rng(1), special_ids=[2, 3])
        >>> x["word_order_positions"].tolist(), y["word_order"].tolist()
        ([[1, 2, 3]], [[7, 8, 9]])

    Source: Wang et al. 2019 (arXiv:1908.04577), the word structural objective: 5 % of the
    trigrams.
    """
    check_number("share", share, above=0, most=1)
    check_integer("size", size, minimum=2)
    x, y, weights = ({name: np.asarray(value) for name, value in part.items()} for part in batch)
    ids = x["input_ids"]
    if ids.shape[1] < size:
        raise ConfigError(
            f"The rows have {ids.shape[1]} tokens.\n"
            f"Expected at least {size}, as many as change places with each other."
        )
    free = _free(x, weights["masked_lm"], special_ids)
    starts, real = _chosen_starts(free, x, rng, share, size)  # (B, T) each
    places = starts[:, :, None] + np.arange(size)  # (B, T, size)
    orders = np.array(list(permutations(range(size)))[1:])
    orders = orders[rng.integers(len(orders), size=starts.shape)]
    rows = np.arange(len(ids))[:, None, None]
    right = ids[rows, places]
    shuffled = ids.copy()
    moved = np.take_along_axis(right, orders, axis=2)
    chosen = np.broadcast_to(real[:, :, None], places.shape)
    shuffled[np.broadcast_to(rows, places.shape)[chosen], places[chosen]] = moved[chosen]
    flat = (len(ids), -1)
    places, right = (np.where(chosen, one, 0).reshape(flat) for one in (places, right))
    own = {"word_order": chosen.reshape(flat).astype("float32")}
    x = x | {"input_ids": shuffled, "word_order_positions": places.astype("int32")}
    return x, y | {"word_order": right.astype("int32")}, weights | own


def shuffled_batches(batches, *, special_ids, seed=0, start=0, share=0.05, size=3):
    """Yields the batches that `shuffle_words` makes of others.

    Args:
        batches: iterable of batches.
        special_ids: see `shuffle_words`.
        seed: of the random numbers.
        start: the number of the first of the batches. Batch n is shuffled alike whichever the
            first was, so that training can go on in the middle.
        share: see `shuffle_words`.
        size: see `shuffle_words`.

    Returns:
        A generator of batches.

    Raises:
        ConfigError: if an argument is out of range.

    Example:
        >>> from kerasbert.pretraining import shuffled_batches
        >>> list(shuffled_batches([], special_ids=[2, 3]))
        []

    Source: as `shuffle_words`.
    """
    check_integer("start", start, minimum=0)
    for number, batch in enumerate(batches, start=start):
        rng = np.random.default_rng([seed, number])
        yield shuffle_words(batch, rng, special_ids=special_ids, share=share, size=size)


def _free(x, weights, special_ids):
    """Whether a token (B, L) may be moved: it is real, ordinary, and not masked."""
    ids, places = x["input_ids"], x["masked_lm_positions"]
    free = (x["input_mask"] != 0) & ~np.isin(ids, list(special_ids))
    rows = np.broadcast_to(np.arange(len(ids))[:, None], places.shape)
    masked = weights != 0
    free[rows[masked], places[masked]] = False
    return free


def _chosen_starts(free, x, rng, share, size):
    """Where the chosen units begin (B, T), and which of them are real."""
    count = free.shape[1] - size + 1
    segments = x["segment_ids"]
    windows = np.stack([free[:, n : n + count] for n in range(size)]).all(0)
    windows &= segments[:, :count] == segments[:, size - 1 :]
    scores = np.where(windows, rng.random(windows.shape), -1.0)
    wanted = np.maximum(np.rint(share * (x["input_mask"] != 0).sum(1) / size), 1)
    most = max(round(share * free.shape[1] / size), 1)
    rows, starts, real = np.arange(len(free)), [], []
    for number in range(most):
        start = scores.argmax(1)
        real.append((scores[rows, start] >= 0) & (number < wanted))
        starts.append(start)
        near = np.abs(np.arange(count) - start[:, None]) < size
        scores[near] = -1.0
    return np.stack(starts, 1), np.stack(real, 1)
