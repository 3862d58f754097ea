"""Model configuration: one frozen object for all families, checked once, whatever its origin."""

import dataclasses
from dataclasses import dataclass

from kerasbert.config_file import fields_of
from kerasbert.depth import BlockSharing, Stack, depth_plan
from kerasbert.errors import ConfigError, check_integer, check_number

_CHOICES = {
    "ln_type": ("postln", "preln"),
    "embedding_order": ("project_last", "project_first"),
}

# The layers of a block, in the order of their calls, and how their names end.
_PARTS = {"attention": "MultiHeadSelfAttention", "feed_forward": "FeedForward"}
_DECODER_PARTS = {
    "attention": "MultiHeadSelfAttention",
    "cross_attention": "MultiHeadCrossAttention",
    "feed_forward": "FeedForward",
}
_GATED_PARTS = {"attention": "GatedAttentionUnit"}

# Their position vectors are computed, so texts may be as long as memory allows.
_WITHOUT_POSITION_TABLE = ("nezha", "roformer", "roformer_v2", "gau_alpha", "t5")

_SWITCHES = (
    "forces_projection",
    "residual_attention_scores",
    "shared_segment_embeddings",
    "tie_word_embeddings",
    "scale_decoder_outputs",
    "cross_position_bias",
)

# Share of the coarse position in bert4keras.
_COARSE_SHARE = 0.4

_COUNTS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "embedding_size",
    "max_position_embeddings",
    "num_hidden_groups",
    "inner_group_num",
    "sharing_groups",
    "attention_head_size",
    "attention_key_size",
    "max_relative_position",
    "num_decoder_layers",
    "relative_attention_num_buckets",
    "relative_attention_max_distance",
)
_RATES = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "initializer_range",
    "layer_norm_eps",
)

# No tensor has longer axes, and no computer runs deeper models; a damaged file may say so.
_LARGEST = 2**31 - 1
_MOST_DEPTHS = 10_000


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Sizes and conventions of one encoder, with the words of BERT's config files.

    Build it with `from_dict`, which also reads bert4keras' names and knows the defaults
    of each family.

    Attributes:
        family: what names the architecture and the original code: "bert", "albert", ….
        hidden_act: an unambiguous activation name (`gelu_tanh`, `gelu_erf`, `relu`, …), or a
            tuple of them for a gated feed-forward layer.
        embedding_size: width E of the token table; differs from H where a projection follows.
        embedding_order: "project_last" (Google: sum, norm, projection) or "project_first"
            (brightmart's early albert_zh: projection, sum, norm).
        ln_type: "postln" or "preln".
        num_hidden_groups: groups of layers that the names of the checkpoint tell apart.
        sharing_groups: groups of layers that share a block before any un-sharing. Equal to
            `num_hidden_groups` but in the configuration of an un-shared checkpoint, whose
            names have a group for every layer.
        unshare, unshare_layers: which parts of which layers have a copy of their own.
        forces_projection: whether the projection E -> H exists even if E == H.
        pad_token_id: the id of padding, where it is not 0 (RoBERTa); None for a GPT-2 that has
            none, which a file or an argument can also say by -1.
        attention_head_size: width of the values of a head; default hidden_size divided by
            the number of heads.
        attention_key_size: width of its queries and keys; default that of the values.
        residual_attention_scores: whether each block adds the attention scores of the one
            before (RealFormer).
        shared_segment_embeddings: whether segments are looked up in the token table.
        hierarchical_position: None, or the share alpha, between 0 and 1, of the coarse
            position: then the table of n rows serves n * n positions.
        max_relative_position: the distance from which NEZHA tells no more.
        stacks_built: which of "encoder" and "decoder" the model has.
        num_decoder_layers: layers of the decoder, if the model has one.
        relative_attention_num_buckets, relative_attention_max_distance: of T5's position bias.
        tie_word_embeddings: whether T5's head is the token table.
        scale_decoder_outputs: whether T5's decoder is divided by the root of hidden_size.
        cross_position_bias: whether T5's decoder also adds its position bias where it attends to
            the encoder, as bert4keras' does.
        layout: name of the table of names, where checkpoints of the family have several.

    Raises:
        ConfigError: on values that are missing, of the wrong type or contradictory.

    Example:
        >>> sizes = dict(vocab_size=100, hidden_size=32, num_hidden_layers=2,
        ...              num_attention_heads=4, intermediate_size=64, hidden_act="gelu")
        >>> ModelConfig.from_dict(sizes, family="bert").hidden_act
        'gelu_tanh'
    """

    family: str
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    hidden_act: str | tuple
    embedding_size: int
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    ln_type: str = "postln"
    embedding_order: str = "project_last"
    num_hidden_groups: int = 1
    inner_group_num: int = 1
    sharing_groups: int = 1
    unshare: str | None = None
    unshare_layers: tuple | None = None
    forces_projection: bool = False
    pad_token_id: int | None = 0
    attention_head_size: int | None = None
    attention_key_size: int | None = None
    residual_attention_scores: bool = False
    shared_segment_embeddings: bool = False
    hierarchical_position: float | None = None
    max_relative_position: int = 64
    stacks_built: tuple = ("encoder",)
    num_decoder_layers: int | None = None
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    tie_word_embeddings: bool = True
    scale_decoder_outputs: bool = False
    layout: str | None = None
    cross_position_bias: bool = False

    def __post_init__(self):
        self._fill_in_sizes()
        for key in _COUNTS:
            check_integer(key, getattr(self, key), minimum=1)
        for key in self._from_zero:
            check_integer(key, getattr(self, key), minimum=0)
        for key in (*_COUNTS, *self._from_zero):
            _check_limit(key, getattr(self, key), _LARGEST)
        for key in _SWITCHES:
            check_switch(key, getattr(self, key))
        depths = self.num_hidden_layers * self.inner_group_num
        _check_limit("num_hidden_layers * inner_group_num", depths, _MOST_DEPTHS)
        for key in _RATES:
            bound = {"least": 0} if "dropout" in key else {"above": 0}
            check_number(key, getattr(self, key), **bound, below=1)
        if self.hierarchical_position is not None:
            check_number("hierarchical_position", self.hierarchical_position, above=0, below=1)
        for key, choices in _CHOICES.items():
            if getattr(self, key) not in choices:
                raise ConfigError(
                    f"{key}={getattr(self, key)!r}.\nExpected one of: {', '.join(choices)}."
                )
        # Checked whatever the family, which decides whether they are used.
        BlockSharing(self.depths, self.unshare, self.unshare_layers)
        self._use_plain_numbers()

    def _fill_in_sizes(self):
        """Gives the sizes that follow from others their values."""
        if self.attention_head_size is None:
            for key in ("hidden_size", "num_attention_heads"):
                check_integer(key, getattr(self, key), minimum=1)
            if self.hidden_size % self.num_attention_heads:
                raise ConfigError(
                    f"hidden_size={self.hidden_size} is not a multiple of "
                    f"num_attention_heads={self.num_attention_heads}.\n"
                    "Expected every head to have the same width.\n"
                    "Check both values against the config file that belongs to the checkpoint, or "
                    "give attention_head_size."
                )
            size = self.hidden_size // self.num_attention_heads
            object.__setattr__(self, "attention_head_size", size)
        if self.attention_key_size is None:
            object.__setattr__(self, "attention_key_size", self.attention_head_size)
        if self.num_decoder_layers is None:
            object.__setattr__(self, "num_decoder_layers", self.num_hidden_layers)
        if self.hierarchical_position is True:
            object.__setattr__(self, "hierarchical_position", _COARSE_SHARE)

    @property
    def _from_zero(self):
        """The keys of numbers that may be 0."""
        without_padding = self.family == "gpt2" and self.pad_token_id is None
        return ("type_vocab_size",) if without_padding else ("type_vocab_size", "pad_token_id")

    def _use_plain_numbers(self):
        """Turns numpy's numbers into Python's, which Keras and JSON insist on."""
        for key in (*_COUNTS, *self._from_zero):
            object.__setattr__(self, key, int(getattr(self, key)))
        for key in _RATES:
            object.__setattr__(self, key, float(getattr(self, key)))
        if self.unshare_layers is not None:
            object.__setattr__(self, "unshare_layers", tuple(map(int, self.unshare_layers)))

    @classmethod
    def from_dict(cls, values, family, source="the configuration"):
        """Builds a configuration from the keys of a config file and bert4keras' arguments.

        Args:
            values: dict of keys; unknown ones are ignored unless they would change the maths.
            family: family of the architecture, such as "bert".
            source: what to call `values` in errors, such as a path.

        Returns:
            A `ModelConfig`.

        Raises:
            ConfigError: if a key is missing, contradictory or cannot be honoured.
        """
        fields = fields_of(values, family, source)
        known = {field.name for field in dataclasses.fields(cls)}
        try:
            return cls(**{key: value for key, value in fields.items() if key in known})
        except ConfigError as error:
            raise ConfigError(f"{error}\nFound in {source}.") from error

    @property
    def depths(self):
        """The calls of a block in order, each with its layer, inner position and group."""
        return depth_plan(self.num_hidden_layers, self.inner_group_num, self.sharing_groups)

    @property
    def sharing(self):
        """`BlockSharing` of the encoder: which block serves which depth."""
        if self.family != "albert":
            return BlockSharing(self.depths, unshare="all")
        return BlockSharing(self.depths, self.unshare, self.unshare_layers)

    @property
    def stacks(self):
        """Dict from "encoder" and "decoder" to the `Stack`s that the model has."""
        stacks = {}
        both = self.family == "t5"
        if "encoder" in self.stacks_built:
            parts = _GATED_PARTS if self.family == "gau_alpha" else _PARTS
            prefix = "Encoder-" if both else ""
            stacks["encoder"] = Stack("encoder", prefix, self.sharing, parts)
        if "decoder" in self.stacks_built:
            depths = depth_plan(self.num_decoder_layers, 1, 1)
            sharing = BlockSharing(depths, unshare="all")
            stacks["decoder"] = Stack("decoder", "Decoder-", sharing, _DECODER_PARTS)
        return stacks

    @property
    def position_limit(self):
        """The number of positions that the model can tell apart, None if there is no limit."""
        if self.family in _WITHOUT_POSITION_TABLE:
            return None
        rows = self.max_position_embeddings
        return rows if self.hierarchical_position is None else rows**2

    @property
    def first_position(self):
        """The row of the position table for the first token."""
        return self.pad_token_id + 1 if self.family == "roberta" else 0

    @property
    def projects_first(self):
        """Whether tokens are projected to H before positions and segments are added."""
        return self.embedding_order == "project_first"

    @property
    def has_projection(self):
        """Whether a projection E -> H exists; some files keep it even if E == H."""
        forced = self.projects_first or self.forces_projection
        return forced or self.embedding_size != self.hidden_size

    @property
    def norm_width(self):
        """Width of the embedding norm, of the position and segment tables and the MLM norm."""
        return self.hidden_size if self.projects_first else self.embedding_size

    def replace(self, **changes):
        """Returns a checked copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def to_dict(self):
        """Returns the fields as JSON-serialisable values; `from_label` reads them back."""
        values = dataclasses.asdict(self)
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}

    @classmethod
    def from_label(cls, values):
        """The inverse of `to_dict`."""
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def check_switch(key, value):
    """Refuses what is neither True nor False.

    Raises:
        ConfigError: names the key and the value.
    """
    if not isinstance(value, bool):
        raise ConfigError(f"{key}={value!r}.\nExpected true or false.")


def _check_limit(key, value, limit):
    if value > limit:
        raise ConfigError(
            f"{key}={str(value)[:20]} is too large.\nExpected at most {limit}.\n"
            "Check it against the config file that belongs to the checkpoint."
        )
