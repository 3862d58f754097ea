"""The heads that can stand on an encoder.

Shapes: B batch, L length, V vocabulary, E embedding size, H hidden size, C labels.
"""

import keras

from kerasbert import activations
from kerasbert.errors import ConfigError, check_integer
from kerasbert.layers import BiasAdd, FirstToken, TakeFeature
from kerasbert.models.options import check_head


class Heads:
    """The steps of `Encoder` that turn the last hidden state (B, L, H) into outputs."""

    supported_heads = ("with_pool", "with_nsp", "with_mlm", "with_classifier")

    def make_heads(self, hidden):
        """Returns the outputs of the heads that were asked for, as bert4keras orders them."""
        options = self.options
        outputs = []
        if options.with_pool or options.with_nsp:
            outputs.append(self.pooled(hidden))
        if options.with_nsp:
            outputs = [self.next_sentence(outputs[0])]
        if options.with_mlm:
            outputs.append(self.masked_lm(hidden))
        if options.with_discriminator:
            outputs.append(self.discriminator(hidden))
        if options.classifier:
            outputs.extend(self.classifier(hidden))
        return outputs

    def pooled(self, hidden):
        """Returns the pooled output (B, H)."""
        activation = self.head_activation("with_pool", self.options.with_pool, default="tanh")
        dense = self.dense("Pooler-Dense", self.config.hidden_size, activation=activation)
        return dense(self.layer(FirstToken, "Pooler")(hidden))

    def next_sentence(self, pooled):
        """Returns the next-sentence or sentence-order output (B, 2); 0 means in order."""
        activation = self.head_activation("with_nsp", self.options.with_nsp, default="softmax")
        return self.dense("NSP-Proba", 2, activation=activation, dtype="float32")(pooled)

    def masked_lm(self, hidden):
        """Returns the masked-LM output (B, L, V)."""
        activation = self.head_activation("with_mlm", self.options.with_mlm, default="softmax")
        transform = self.dense(
            "MLM-Dense", self.config.norm_width, activation=self.mlm_transform_activation()
        )
        hidden = self.normalize("MLM-Norm", transform(hidden))
        logits = self.layers["Embedding-Token"](self.to_token_width(hidden), mode="dense")
        logits = self.layer(BiasAdd, "MLM-Bias")(logits)
        return self.float32_activation("MLM-Activation", activation)(logits)

    def mlm_transform_activation(self):
        """Returns the activation inside the masked-LM head."""
        return activations.get(self.config.hidden_act)

    def to_token_width(self, hidden):
        """Brings the transformed hidden state to the width E of the token table."""
        return hidden

    def discriminator(self, hidden):
        """Returns the replaced-token output (B, L)."""
        activation = self.head_activation(
            "with_discriminator", self.options.with_discriminator, default="sigmoid"
        )
        dense = self.dense(
            "Discriminator-Dense",
            self.config.hidden_size,
            activation=activations.get(self.config.hidden_act),
        )
        score = self.dense("Discriminator-Prediction", 1, dtype="float32")(dense(hidden))
        score = self.layer(TakeFeature, "Discriminator-Score", index=0)(score)
        return self.float32_activation("Discriminator-Activation", activation)(score)

    def classifier(self, hidden):
        """Returns the outputs of a fine-tuned head.

        They are [(B, C)] for "sequence", [(B, L, C)] for "token", and for "span" the start
        and the end [(B, L), (B, L)].
        """
        if self.options.classifier == "span":
            return self.span_classifier(hidden)
        labels = self.options.num_labels
        if labels is None:
            raise ConfigError(
                "with_classifier= is set, but the number of labels is unknown.\n"
                "Expected num_labels=, or a checkpoint or config that tells it."
            )
        check_integer("num_labels", labels, minimum=1)
        name = "Token-Classifier"
        if self.options.classifier == "sequence":
            name, hidden = "Classifier", self.sequence_features(hidden)  # (B, H)
        hidden = self.classifier_dropout(hidden)
        logits = self.dense(name, labels, dtype="float32")(hidden)
        # A single label is a score, as in regression; its softmax would always be 1.
        activation = "linear" if labels == 1 else self.options.classifier_activation
        activation = self.head_activation("classifier_activation", activation, default="softmax")
        return [self.float32_activation("Classifier-Activation", activation)(logits)]

    def span_classifier(self, hidden):
        """Returns start and end of a span, each (B, L), by default probabilities over L."""
        logits = self.dense("Span-Classifier", 2, dtype="float32")(self.classifier_dropout(hidden))
        outputs = []
        for index, name in enumerate(("Start", "End")):
            score = self.layer(TakeFeature, f"Span-{name}-Score", index=index)(logits)
            if self.options.classifier_activation == "softmax":
                # Keras' softmax layer leaves padding out, by the mask that score carries.
                score = self.layer(keras.layers.Softmax, f"Span-{name}", dtype="float32")(score)
            outputs.append(score)
        return outputs

    def sequence_features(self, hidden):
        """Returns what the classifier of whole texts sees (B, H)."""
        return self.pooled(hidden)

    def first_token_features(self, hidden, activation):
        """Returns the first token (B, H), after a dense layer unless the checkpoint has none."""
        first = self.layer(FirstToken, "Pooler")(hidden)
        if self.options.plain_classifier:
            return first
        units = self.config.hidden_size
        return self.dense("Classifier-Dense", units, activation=activation)(first)

    def classifier_dropout(self, hidden):
        """Drops out before the last layer of a classifier."""
        rate = self.options.classifier_dropout
        return self.layer(keras.layers.Dropout, "Classifier-Dropout", rate=rate)(hidden)

    def float32_activation(self, name, activation):
        """Returns an activation in float32, in which a softmax keeps its small values."""
        return self.layer(keras.layers.Activation, name, activation=activation, dtype="float32")

    def head_activation(self, option, value, default):
        """Returns the activation function of a head from the option that switched it on."""
        check_head(option, value)
        return activations.get(default if isinstance(value, bool) else value)

    def lm_activation(self):
        """Returns the activation of the head that predicts the next token."""
        default = self.options.final_activation
        return self.head_activation("with_lm", self.options.with_lm, default=default)

    def refuse_other_heads(self, options):
        """Refuses heads that the family does not have.

        Raises:
            ConfigError: names the option and those that would do.
        """
        for option in (
            "with_pool",
            "with_nsp",
            "with_mlm",
            "with_discriminator",
            "with_classifier",
        ):
            value = getattr(options, option)
            if value and option not in self.supported_heads:
                raise ConfigError(
                    f"{option}={value!r}, but the {self.family} family has no such head.\n"
                    f"Expected one of: {', '.join(self.supported_heads)}."
                )
