"""Every reference of this folder's zoo under the names that ``build_transformer_model`` takes.

Float64, plain numpy, written from the papers and independent of the package: variables are read
by their checkpoint names. A call is ``run(model, arrays, config, ids, segments, **options)``;
the options and what comes back stand with each function:

* ``zoo_bert``: bert (also "lm" and "unilm", hierarchical positions, conditional normalisation,
  shared segments, residual scores, other head sizes), nezha, roformer;
* ``zoo_bare``: roformer_v2, gau_alpha;
* ``zoo_gpt``: gpt, gpt2, gpt2_ml;
* ``zoo_t5``: t5 in three layouts, where the decoder's ids take the segments' place.

Random variables for all of them: ``zoo_weights``.
"""

from functools import partial

from reference.zoo_bare import gau_alpha, roformer_v2
from reference.zoo_bert import bert, nezha, roformer
from reference.zoo_gpt import gpt, gpt2, gpt2_ml
from reference.zoo_t5 import LAYOUTS, t5

WITHOUT_SEGMENTS = ("gpt2", "gpt2_ml")

MODELS = {
    "bert": bert,
    "nezha": nezha,
    "roformer": roformer,
    "roformer_v2": roformer_v2,
    "gau_alpha": gau_alpha,
    "gpt": gpt,
    "gpt2": gpt2,
    "gpt2_ml": gpt2_ml,
    **{layout: partial(t5, layout=layout) for layout in LAYOUTS},
}


def run(model, arrays, config, ids, segments=None, **options):
    """Run the reference of that name; see the module."""
    if model in WITHOUT_SEGMENTS:
        return MODELS[model](arrays, config, ids, **options)
    return MODELS[model](arrays, config, ids, segments, **options)
