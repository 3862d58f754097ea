"""Writes texts with a model: in one piece, or token by token."""

from dataclasses import fields

import keras

from kerasbert.compilation import made_for
from kerasbert.errors import ConfigError, did_you_mean
from kerasbert.generation.cached import CachedModel
from kerasbert.generation.graph import DecodingGraph
from kerasbert.generation.prompts import read_prompts
from kerasbert.generation.search import NOTHING, search, steps
from kerasbert.generation.settings import SearchSettings
from kerasbert.generation.streaming import text_pieces
from kerasbert.generation.uncached import UncachedModel


def generate(model, inputs, max_new_tokens, method="greedy", *, use_cache=True, **settings):
    """Goes on with texts, for all models that predict the next token.

    The model is compiled at its first call with prompts of about this length and number, which
    takes some seconds; later calls with such prompts start at once. Keys and values of earlier
    tokens are kept, rows that ended are not computed any more.

    Args:
        model: a functional model of `build_transformer_model` with `application="lm"` or
            "unilm" and `with_mlm`, or a GPT or T5; built as it is, extended, or reloaded.
        inputs: the texts to go on with, as token ids. One row for each text: a list of lists of
            different lengths, or an int array (rows, length) with padding on either side; a flat
            list is a single text. Models with several inputs take a list of such values in the
            order of `model.inputs`, or a dict by their names. What may be left out: segment ids
            (all 0), position ids (0, 1, 2, …), the mask (all real), the decoder's tokens of a T5
            (its start token). With "unilm" new tokens are of segment 1.
        max_new_tokens: how many tokens to write at most.
        method: "greedy" (always the most probable token), "beam" or "sample".
        use_cache: False runs the whole model anew for every token: slow, but right for layers
            of any kind.
        **settings: those of `SearchSettings`:
            end_id: token, or tokens, that end a text; None writes `max_new_tokens` always.
            min_length: how many new tokens there are at least before the end.
            allowed_tokens: function of (number of the row, int array of its new tokens) that
                returns the ids which may follow, or None for all.
            repetition_penalty: above 1, tokens that the text holds already get less probable.
            no_repeat_ngram_size: no sequence of so many tokens is written twice. For both the
                text is what the model writes, and with "lm" also the prompt.
            beam_size: how many texts a beam search follows at a time, default 4.
            length_penalty: a beam search ranks finished texts by the sum of their log p,
                divided by (their number of new tokens) ** length_penalty; default 0.
            temperature: divides the logits before a token is drawn; below 1 less is left to
                chance.
            top_k: draw among so many most probable tokens only.
            top_p: draw among the fewest tokens only that have this probability together.
            seed: makes the drawing repeatable. The text of a row depends on its number, not on
                the other rows.
            num_return: how many texts of each row, default 1.

    Returns:
        List with the new tokens of each row: an int32 array, with the end token if the text came
        to its end. With `num_return` above 1 a list of such arrays for each row, in a beam search
        the best first.

    Raises:
        ConfigError: if the model cannot go on with a text, or for inputs and settings that are
            wrong, contradictory or too long.

    Example:
        >>> [len(text) for text in generate(gpt2, [[5, 3], [7]], max_new_tokens=4)]
        [4, 4]

    Source: Vaswani et al. 2017 (arXiv:1706.03762) for beam search; Fan et al. 2018
    (arXiv:1805.04833) for top_k; Holtzman et al. 2019 (arXiv:1904.09751) for top_p; the meaning
    of all settings is that of `generate` in Hugging Face transformers.
    """
    settings = _settings(max_new_tokens, method, settings)
    decoding, prompts = _start(model, inputs, settings, use_cache)
    banned = _banned(prompts.graph, settings)
    found = search(decoding, prompts.written(), settings, banned, scored=False)
    texts = [[tokens for tokens, _ in row] for row in found]
    return texts if settings.num_return > 1 else [row[0] for row in texts]


def stream(
    model, inputs, max_new_tokens, method="greedy", *, tokenizer=None, use_cache=True, **settings
):
    """Goes on with one text, and gives every new token as soon as it is known.

    Args:
        model: see `generate`.
        inputs: see `generate`; of a single text.
        max_new_tokens: see `generate`.
        method: "greedy" or "sample".
        tokenizer: a tokenizer of `kerasbert.tokenizers`; with it the text comes in pieces.
        use_cache: see `generate`.
        **settings: see `generate`.

    Returns:
        Iterator over the new token ids, the end token included; with a tokenizer over pieces of
        text, which joined are `tokenizer.decode` of these ids.

    Raises:
        ConfigError: as `generate`, and if there is more than one text; at once, not at the first
            token.

    Example:
        >>> len(list(kerasbert.generation.stream(gpt2, [5, 3], max_new_tokens=4)))
        4
    """
    settings = _settings(max_new_tokens, method, settings)
    decoding, prompts = _start(model, inputs, settings, use_cache)
    texts = len(prompts) * settings.num_return
    if texts > 1:
        raise ConfigError(
            f"{len(prompts)} rows and num_return={settings.num_return} to stream.\n"
            "Expected a single text.\nUse generate for several at a time."
        )
    found = steps(decoding, prompts.written(), settings, _banned(prompts.graph, settings))
    tokens = (int(step.tokens[0, 0]) for step in found if step.tokens[0, 0] != NOTHING)
    return tokens if tokenizer is None else text_pieces(tokens, tokenizer)


def _settings(max_new_tokens, method, given):
    known = [field.name for field in fields(SearchSettings) if field.init]
    for name in given:
        if name not in known:
            raise ConfigError(
                f"{name}= is no argument of generate.{did_you_mean(name, known)}\n"
                f"Expected some of: {', '.join(known)}, use_cache."
            )
    return SearchSettings(max_new_tokens, method, **given)


def _start(model, inputs, settings, use_cache):
    """Returns the `Decoding`, not begun yet, and the `Prompts` that it goes on with."""
    compiled = _compiled(model, _cached if use_cache else _uncached)
    prompts = read_prompts(compiled.graph, inputs)
    prompts.check_room(settings.max_new_tokens)
    settings.check_vocabulary(compiled.graph.vocab_size)
    return compiled.start(prompts, settings.slots, settings.max_new_tokens), prompts


def _banned(graph, settings):
    """The ids that are never written: a model does not see padding among its tokens."""
    return {graph.pad_id} - {None, *settings.end_ids}


def _compiled(model, kind):
    """Returns what was compiled for a model before, unless it has changed since."""
    if not isinstance(model, keras.Model):
        raise ConfigError(
            f"Got a {type(model).__name__}.\n"
            "Expected a Keras model, as build_transformer_model returns it."
        )
    return made_for(model, kind)


def _cached(model):
    return CachedModel(DecodingGraph(model))


def _uncached(model):
    return UncachedModel(DecodingGraph(model))
