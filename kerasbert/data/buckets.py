"""Few lengths for many texts: each shape of a batch costs a compilation.

Shapes: N texts, K lengths.
"""

import numpy as np

# Lengths are multiples of it.
STEP = 8

# What a step costs grows by the square of the length too, by attention: a text of so many tokens
# costs twice what its tokens alone would.
_ATTENTION = 1024

# The shortest length of those that do not depend on the texts.
_SHORTEST = 16


def bucket_lengths(lengths, most, limit=None):
    """Returns the lengths to pad texts to, so that the least is computed in vain.

    Args:
        lengths: int array (N,), at least one.
        most: how many lengths there may be.
        limit: none is longer, if the texts are not.

    Returns:
        Int array (K,), ascending, K at most `most`; each text fits into the last.

    Example:
        >>> bucket_lengths(np.array([5, 6, 7, 30, 100]), most=2).tolist()
        [32, 104]
    """
    rounded = -(-lengths // STEP) * STEP
    rounded = np.minimum(rounded, limit) if limit else rounded
    sizes, counts = np.unique(rounded, return_counts=True)
    below = np.concatenate([[0], np.cumsum(counts)])
    # best[k, j]: the least cost of the texts of the first j sizes with k lengths.
    best = np.full((min(most, len(sizes)) + 1, len(sizes) + 1), np.inf)
    best[:, 0] = 0
    chosen = np.zeros(best.shape, int)
    for k in range(1, len(best)):
        for j, size in enumerate(sizes, start=1):
            costs = best[k - 1, :j] + (below[j] - below[:j]) * size * (1 + size / _ATTENTION)
            chosen[k, j] = costs.argmin()
            best[k, j] = costs.min()
    found, j = [], len(sizes)
    for k in range(len(best) - 1, 0, -1):
        if j:
            found.append(sizes[j - 1])
            j = chosen[k, j]
    return np.array(found[::-1])


def common_length(length, limit=None, few=False):
    """Returns one of a few lengths that are the same whatever the texts.

    Args:
        length: of a text.
        limit: the longest length, if there is one.
        few: only powers of two, rather than four lengths from one to the next.

    Returns:
        An integer, not below `length`.

    Example:
        >>> [common_length(n) for n in (5, 40, 70, 130)]
        [16, 48, 96, 192]
    """
    power = 1 << max(int(length) - 1, _SHORTEST - 1).bit_length()
    step = power if few else max(_SHORTEST, power // 4)
    found = -(-max(int(length), 1) // step) * step
    return found if limit is None else min(found, limit)
