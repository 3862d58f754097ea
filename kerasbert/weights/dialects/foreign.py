"""Files that look like ours and are not: how to tell them, and what to say."""

import re

# For each: pattern of a name, what the file is, what to do. Names made by Keras are partly
# Google's, so they are looked for first.
KERAS_MADE = (
    re.compile(
        r"group_\d+_\d+/layer_\d+/inner_group_\d+/|"
        r"(^|/)bert/(embeddings|encoder)/(.*/)?layer_normalization(_\d+)?/(gamma|beta)$"
    ),
    "an ALBERT checkpoint with names made by Keras, not by Google's code",
    "Rename its variables to Google's and pass them as a dict of arrays.",
)

FOREIGN = tuple(
    (re.compile(pattern), kind, advice)
    for pattern, kind, advice in (
        (
            r"(^|/)(electra|generator)/(embeddings|encoder)/",
            "only a part of an ELECTRA checkpoint",
            "Its word embeddings or all of its blocks are missing.",
        ),
        (
            r"^(bert|albert|electra|transformer)\.|^encoder\.layer\.\d|"
            r"^embeddings\.word_embeddings\.|^h\.\d|^wte\.",
            "only a part of a Hugging Face model",
            "Its word embeddings or all of its blocks are missing, or its family is another one.",
        ),
        (
            r"^(gpt|newslm)/",
            "only a part of a GPT checkpoint",
            "Its word embeddings or all of its blocks are missing.",
        ),
        (
            r"^(shared|encoder|decoder)/(embedding|block_)",
            "only a part of a T5 checkpoint",
            "Its shared embedding or all of its blocks are missing.",
        ),
    )
)

OPTIMIZER_SLOT = re.compile(
    # T5 calls the kernels of its values "…Attention/v".
    r"((?<!Attention)/(adam_m|adam_v|lamb_m|lamb_v|Adam|Adam_1|AdamW\w*|LAMB\w*|Momentum|RMSProp\w*|"
    r"AdafactorOptimizer\w*|vr|vc|v|m)$)|_slot_(vr|vc|v|m)$|(^|/)(global_step|beta1_power|beta2_power|"
    r"loss_scale|good_steps|learning_rate|LAMBOptimizer.*|AdamWeightDecayOptimizer.*)$"
)

# The feed-forward kernels of albert_zh's modeling_google_fast.py have three axes.
GROUPED_KERNEL = re.compile(r"/ffn_1/intermediate/(output/)?dense/kernel$")
