"""The processes of decode_peers.py: one model of one library, which decodes when it is told to.

A process is started with its task as JSON and answers on its standard output, a line of JSON
for each line it reads: first the versions of what it uses, then the seconds of a call. It runs
in the environment of its library, so that nothing else is imported before it is known which.
"""

import importlib.metadata
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
from decode_cases import (
    OLD,
    OURS,
    SIZES,
    TORCH,
    UNCACHED,
    VOCABULARY,
    block_matrices,
    head_matrices,
)

FIRST_TOKEN = 106  # those below are [PAD], [CLS] and the like


def config_of(size):
    """The config file of a size, as both Keras libraries read it."""
    config = {
        **SIZES[size],
        "vocab_size": VOCABULARY,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.02,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
    }
    if size == "base":
        del config["embedding_size"]  # BERT has none
    return config


def kerasbert_decoder(size, beam, use_cache=True):
    """`generate` of a UniLM model."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # works from a plain checkout too
    import keras

    from kerasbert import build_transformer_model
    from kerasbert.generation import generate

    keras.utils.set_random_seed(0)
    kind = "albert" if size == "tiny" else "bert"
    model = build_transformer_model(
        config_of(size), model=kind, application="unilm", with_mlm=True, verbose=0
    )
    options = {"method": "greedy"} if beam == 1 else {"method": "beam", "beam_size": beam}

    def decode(tokens, new):
        inputs = [tokens, np.zeros_like(tokens)]
        return generate(model, inputs, new, use_cache=use_cache, **options)

    return decode, versions("kerasbert", "keras", keras.backend.backend())


def uncached_decoder(size, beam):
    """The same, with the whole text run again for every token."""
    return kerasbert_decoder(size, beam, use_cache=False)


def bert4keras_decoder(size, beam):
    """A decoder as the examples of bert4keras have it: `last_token` of a UniLM model."""
    os.environ.update(TF_KERAS="1", TF_USE_LEGACY_KERAS="1")
    from bert4keras.models import build_transformer_model
    from bert4keras.snippets import AutoRegressiveDecoder

    kind = "albert" if size == "tiny" else "bert"
    model = build_transformer_model(
        model=kind, application="unilm", with_mlm=True, **config_of(size)
    )

    class Decoder(AutoRegressiveDecoder):
        @AutoRegressiveDecoder.wraps(default_rtype="probas")
        def predict(self, inputs, output_ids, states):
            tokens, segments = inputs
            tokens = np.concatenate([tokens, output_ids], 1)
            segments = np.concatenate([segments, np.ones_like(output_ids)], 1)
            return self.last_token(model).predict([tokens, segments], verbose=0)

    decoder = Decoder(start_id=None, end_id=-1, maxlen=None)

    def decode(tokens, new):
        decoder.maxlen = new
        return [decoder.beam_search([row, np.zeros_like(row)], topk=beam) for row in tokens]

    return decode, versions("bert4keras", "tf_keras", "tensorflow")


def transformers_decoder(size, beam):
    """A causal decoder with the same matrices.

    ALBERT is none there. ELECTRA has its smaller embeddings and the same head, and differs in
    that every layer has weights of its own.
    """
    import torch
    from transformers import BertConfig, BertLMHeadModel, ElectraConfig, ElectraForCausalLM

    torch.manual_seed(0)
    kinds = {
        "tiny": (ElectraConfig, ElectraForCausalLM),
        "base": (BertConfig, BertLMHeadModel),
    }
    config_class, model_class = kinds[size]
    model = model_class(config_class(is_decoder=True, **config_of(size))).eval()
    options = {"num_beams": beam, "do_sample": False, "use_cache": True}
    options |= {"pad_token_id": 0, "eos_token_id": None}

    def decode(tokens, new):
        tokens = torch.from_numpy(tokens)
        lengths = {"min_new_tokens": new, "max_new_tokens": new}
        mask = torch.ones_like(tokens)
        with torch.inference_mode():
            texts = model.generate(tokens, attention_mask=mask, **lengths, **options)
        return texts[:, tokens.shape[1] :].numpy()

    return decode, versions("transformers", "torch")


DECODERS = {
    OURS: kerasbert_decoder,
    UNCACHED: uncached_decoder,
    OLD: bert4keras_decoder,
    TORCH: transformers_decoder,
}


def versions(*names):
    """The versions of some libraries, "" for one that runs from a plain checkout."""
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = ""
    return found


def memory_limit(size, runs=40):
    """Bytes of the weights that a step reads, and the least seconds numpy takes to read them.

    Each matrix is multiplied by a vector, in the order of a step; ALBERT's block is one that is
    read once per layer, from the processor's cache if it fits in there.
    """
    rng = np.random.default_rng(0)
    shapes, layers = block_matrices(size), SIZES[size]["num_hidden_layers"]
    if size == "tiny":
        matrices = matrices_of(shapes, rng) * layers
    else:
        matrices = matrices_of(shapes * layers, rng)
    matrices += matrices_of(head_matrices(size), rng)
    vectors = {matrix.shape[1]: rng.standard_normal(matrix.shape[1], "f4") for matrix in matrices}
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        for matrix in matrices:
            matrix @ vectors[matrix.shape[1]]
        seconds.append(time.perf_counter() - start)
    return {"bytes": sum(matrix.nbytes for matrix in matrices), "seconds": min(seconds)}


def matrices_of(shapes, rng):
    return [rng.standard_normal(shape[::-1], "f4") for shape in shapes]


def serve(task, answer):
    """Answers with the versions, and then with the seconds of a call for each line read.

    A line is the number of new tokens.
    """
    try:
        decode, found = DECODERS[task["peer"]](task["size"], task["beam"])
    except ImportError as error:
        if task["peer"] in (OURS, UNCACHED):
            raise  # this is not what is compared, but what is broken
        answer({"absent": str(error).strip().splitlines()[0]})
        return
    answer({"versions": found})
    rng = np.random.default_rng(0)
    for line in sys.stdin:
        new = int(line)
        tokens = rng.integers(FIRST_TOKEN, VOCABULARY, (task["batch"], task["prompt"]))
        start = time.perf_counter()
        texts = decode(tokens, new)
        seconds = time.perf_counter() - start
        lengths = [len(text) for text in texts]
        if lengths != [new] * task["batch"]:
            raise SystemExit(f"{task['batch']} x {new} tokens expected, got {lengths}")
        answer({"seconds": seconds})


def main():
    task = json.loads(sys.argv[1])
    # What libraries print goes elsewhere.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(values):
        print(json.dumps(values), file=answers, flush=True)

    if "peer" in task:
        serve(task, answer)
    else:
        answer(memory_limit(task["size"]))


if __name__ == "__main__":
    main()
