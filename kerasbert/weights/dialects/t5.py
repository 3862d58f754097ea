"""Names of T5: of Google's checkpoints in three layouts, and of Hugging Face's.

Google's table of relative positions is [heads, buckets], its head [hidden, vocabulary].
"""

from kerasbert.weights.mapping import Blocks, Dialect, Row


def _attention(part, theirs):
    return tuple(
        Row(f"{part}/{ours}/kernel", f"{theirs}/{name}", dims)
        for ours, name, dims in (
            ("query", "q", "H K"),
            ("key", "k", "H K"),
            ("value", "v", "H K"),
            ("output", "o", "K H"),
        )
    )


def _feed_forward(layer):
    scope = f"layer_{layer:03d}/DenseReluDense"
    return (
        Row("feed_forward/intermediate/kernel", f"{scope}/wi/kernel", "H I"),
        Row("feed_forward/intermediate_0/kernel", f"{scope}/wi_0/kernel", "H I"),
        Row("feed_forward/intermediate_1/kernel", f"{scope}/wi_1/kernel", "H I"),
        Row("feed_forward/output/kernel", f"{scope}/wo/kernel", "I H"),
    )


def _blocks(norm):
    """The tables of both stacks; `norm` is how the layout calls its norms."""

    def norm_row(part, layer):
        return Row(f"{part}/norm/gamma", f"layer_{layer:03d}/{norm}/scale", "H")

    encoder = (
        *_attention("attention", "layer_000/SelfAttention"),
        norm_row("attention", 0),
        *_feed_forward(1),
        norm_row("feed_forward", 1),
    )
    decoder = (
        *_attention("attention", "layer_000/SelfAttention"),
        norm_row("attention", 0),
        *_attention("cross_attention", "layer_001/EncDecAttention"),
        norm_row("cross_attention", 1),
        *_feed_forward(2),
        norm_row("feed_forward", 2),
    )
    return {
        "encoder": Blocks("encoder/block_{layer:03d}/", encoder),
        "decoder": Blocks("decoder/block_{layer:03d}/", decoder),
    }


def _top_rows(final_norm):
    positions = "block_000/layer_000/SelfAttention/relative_attention_bias"
    rows = [Row("Embedding-Token/embeddings", "shared/embedding", "V H", vocab=True)]
    for ours, theirs in (("Encoder", "encoder"), ("Decoder", "decoder")):
        table = f"{ours}-Embedding-Relative-Position/embeddings"
        rows.append(Row(table, f"{theirs}/{positions}", "N R", transpose=True))
        rows.append(Row(f"{ours}-Output-Norm/gamma", f"{theirs}/{final_norm}/scale", "H"))
    head = "Decoder-Output-LM/embeddings"
    rows.append(Row(head, "decoder/logits/kernel", "H V", "lm", transpose=True, vocab=True))
    return tuple(rows)


def _google(name, title, norm, final_norm):
    return Dialect(
        name=name,
        title=title,
        family="t5",
        top_rows=_top_rows(final_norm),
        required=("shared/embedding",),
        blocks=_blocks(norm),
        scopes=(),
        prefixes=("",),
    )


T5 = _google("t5", "Google T5", "layer_norm", "final_layer_norm")
MT5 = _google("mt5", "Google mT5", "rms_norm", "rms_norm")


def _turned(ours, theirs, dims):
    return Row(f"{ours}/kernel", f"{theirs}.weight", dims, transpose=True)


def _hugging_face_attention(part, theirs):
    return (
        *(_turned(f"{part}/{ours}", f"{theirs}.{ours[0]}", "K H") for ours in _PROJECTIONS),
        _turned(f"{part}/output", f"{theirs}.o", "H K"),
    )


_PROJECTIONS = ("query", "key", "value")


def _hugging_face_feed_forward(layer):
    scope = f"layer.{layer}.DenseReluDense"
    return (
        _turned("feed_forward/intermediate", f"{scope}.wi", "I H"),
        _turned("feed_forward/intermediate_0", f"{scope}.wi_0", "I H"),
        _turned("feed_forward/intermediate_1", f"{scope}.wi_1", "I H"),
        _turned("feed_forward/output", f"{scope}.wo", "H I"),
        Row("feed_forward/norm/gamma", f"layer.{layer}.layer_norm.weight", "H"),
    )


def _hugging_face_positions(ours, theirs):
    name = f"{theirs}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    return Row(f"{ours}-Embedding-Relative-Position/embeddings", name, "R N")


_SELF_ATTENTION = (
    *_hugging_face_attention("attention", "layer.0.SelfAttention"),
    Row("attention/norm/gamma", "layer.0.layer_norm.weight", "H"),
)
_CROSS_ATTENTION = (
    *_hugging_face_attention("cross_attention", "layer.1.EncDecAttention"),
    Row("cross_attention/norm/gamma", "layer.1.layer_norm.weight", "H"),
)

HUGGING_FACE_T5 = Dialect(
    name="huggingface_t5",
    title="Hugging Face t5",
    family="t5",
    top_rows=(
        Row(
            "Embedding-Token/embeddings",
            ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"),
            "V H",
            vocab=True,
        ),
        _hugging_face_positions("Encoder", "encoder"),
        _hugging_face_positions("Decoder", "decoder"),
        Row("Encoder-Output-Norm/gamma", "encoder.final_layer_norm.weight", "H"),
        Row("Decoder-Output-Norm/gamma", "decoder.final_layer_norm.weight", "H"),
        Row("Decoder-Output-LM/embeddings", "lm_head.weight", "V H", "lm", vocab=True),
    ),
    required=("shared.weight",),
    blocks={
        "encoder": Blocks(
            "encoder.block.{layer}.", (*_SELF_ATTENTION, *_hugging_face_feed_forward(1))
        ),
        "decoder": Blocks(
            "decoder.block.{layer}.",
            (*_SELF_ATTENTION, *_CROSS_ATTENTION, *_hugging_face_feed_forward(2)),
        ),
    },
    scopes=(),
    prefixes=("",),
    # Files of the first versions hold this one, which no version ever used.
    buffers=("EncDecAttention.relative_attention_bias.weight",),
    hugging_face=True,
    class_stem="T5",
)
