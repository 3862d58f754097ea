"""The searches against `generate` of transformers on torch, row by row, over the same models."""

import numpy as np
import pytest

from kerasbert.generation.protocol import Decoding
from kerasbert.generation.search import search
from kerasbert.generation.settings import SearchSettings

torch = pytest.importorskip("torch", reason="parity needs the extra [parity]")
transformers = pytest.importorskip("transformers", reason="parity needs the extra [parity]")

pytestmark = pytest.mark.parity

VOCABULARY = 24
ENDS = [3, 11, 17]
LONGEST = 12
IDS = {"bos_token_id": 1, "eos_token_id": 3, "pad_token_id": 0, "decoder_start_token_id": 0}


def gpt2():
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 40}
    config = transformers.GPT2Config(vocab_size=VOCABULARY, **IDS, **sizes)
    model = randomised(transformers.GPT2LMHeadModel(config))
    with torch.no_grad():
        model.transformer.wpe.weight *= 4
        model.transformer.ln_f.bias.zero_()
        model.lm_head.weight[ENDS] *= 1.5
    return model


def t5():
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    config = transformers.T5Config(vocab_size=VOCABULARY, dropout_rate=0.0, **IDS, **sizes)
    model = randomised(transformers.T5ForConditionalGeneration(config))
    with torch.no_grad():
        model.lm_head.weight[ENDS] *= 1.25
    return model


def randomised(model):
    """Weights so large that texts depend on what came before."""
    torch.manual_seed(2)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            scale = "norm.weight" in name or ("ln_" in name and "weight" in name)
            wide = "relative" in name
            parameter.normal_(float(scale), 0.9 if wide else 0.4)
    return model.eval()


class Dice(transformers.PreTrainedModel, transformers.GenerationMixin):
    """Random logits for every text; they forget nothing, so no two texts are alike."""

    config_class = transformers.PretrainedConfig
    main_input_name = "input_ids"

    def __init__(self, config):
        super().__init__(config)
        self.nothing = torch.nn.Parameter(torch.zeros(1))
        self.post_init()

    def forward(self, input_ids, **_):
        rows = [np.random.default_rng(row).normal(0, 1.5, VOCABULARY) for row in input_ids.numpy()]
        logits = torch.tensor(np.array(rows, "float32"))[:, None]
        return transformers.modeling_outputs.CausalLMOutput(logits=logits)


def dice():
    return Dice(transformers.PretrainedConfig(vocab_size=VOCABULARY, **IDS)).eval()


@pytest.fixture(scope="module", params=[gpt2, t5, dice], ids=["gpt2", "t5", "dice"])
def network(request):
    transformers.logging.set_verbosity_error()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield request.param()
    torch.set_num_threads(threads)


def prompts(seed, number):
    random = np.random.default_rng(seed)
    return [random.integers(4, VOCABULARY, random.integers(2, 9)) for _ in range(number)]


class OnTorch(Decoding):
    """All texts are computed anew by the network of theirs, without a cache."""

    def __init__(self, network, prompts):
        self.network = network
        self.prompts = prompts
        self.texts = np.zeros((len(prompts), 1, 0), "int64")

    def first(self):
        return self._logits()[:, 0]

    def step(self, rows, parents, tokens):
        self.prompts = [self.prompts[row] for row in rows]
        old = np.take_along_axis(self.texts[rows], parents[..., None], axis=1)
        self.texts = np.concatenate([old, tokens[..., None]], axis=-1)
        return self._logits()

    def _logits(self):
        with torch.no_grad():
            return np.stack(
                [self._row(*pair) for pair in zip(self.prompts, self.texts, strict=True)]
            )

    def _row(self, prompt, texts):
        given = torch.tensor(np.tile(prompt, (len(texts), 1)))
        if not self.network.config.is_encoder_decoder:
            whole = torch.cat([given, torch.tensor(texts)], dim=1)
            return self.network(input_ids=whole, use_cache=False).logits[:, -1].numpy()
        written = torch.tensor(np.pad(texts, ((0, 0), (1, 0))))
        outputs = self.network(input_ids=given, decoder_input_ids=written, use_cache=False)
        return outputs.logits[:, -1].numpy()


def of_theirs(network, prompt, ends, method="beam", beam_size=1, num_return=1, **options):
    """What their `generate` returns for one row, cut after the first end token."""
    options["min_new_tokens"] = options.pop("min_length", 0)
    result = network.generate(
        torch.tensor(prompt)[None],
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        max_new_tokens=LONGEST,
        num_beams=beam_size,
        num_return_sequences=num_return,
        do_sample=False,
        early_stopping=False,
        eos_token_id=ends,
        pad_token_id=0,
        use_cache=False,
        output_scores=True,
        return_dict_in_generate=True,
        **options,
    )
    start = 1 if network.config.is_encoder_decoder else len(prompt)
    texts = []
    for text in result.sequences[:, start:].tolist():
        stops = [place for place, token in enumerate(text) if token in (ends or [])]
        texts.append(text[: stops[0] + 1] if stops else text)
    scores = result.sequences_scores.tolist() if beam_size > 1 else None
    return texts, scores


def compare(network, prompts, ends, **options):
    """All rows of ours in one batch, theirs one by one; returns the lengths that came out."""
    settings = SearchSettings(LONGEST, end_id=ends, **options)
    # What counts as text in theirs: of a T5, the token that its decoder starts with.
    counted = [np.zeros(1, int)] * len(prompts) if network.config.is_encoder_decoder else prompts
    found = search(OnTorch(network, prompts), counted, settings)
    lengths = []
    for row, prompt in enumerate(prompts):
        wanted, scores = of_theirs(network, prompt, ends, **options)
        texts = [text.tolist() for text, _ in found[row]]
        assert texts == wanted, f"row {row}, prompt {prompt}"
        if scores is not None:
            ours = [score for _, score in found[row]]
            np.testing.assert_allclose(ours, scores, rtol=1e-4, atol=1e-4)
        lengths += map(len, texts)
    return lengths


RULES = [
    {},
    {"min_length": 5},
    {"repetition_penalty": 1.7},
    {"no_repeat_ngram_size": 2},
    {"min_length": 4, "repetition_penalty": 0.8, "no_repeat_ngram_size": 3},
]


def test_greedy(network):
    lengths = set()
    for seed, rules in enumerate(RULES):
        lengths |= set(compare(network, prompts(seed, 5), ENDS, method="greedy", **rules))
    assert len(lengths) > 3
    compare(network, prompts(9, 2), None, method="greedy")


@pytest.mark.parametrize(("beam_size", "length_penalty"), [(2, 0.0), (4, 1.0), (4, -0.5), (2, 2.0)])
def test_beams(network, beam_size, length_penalty):
    options = {"method": "beam", "beam_size": beam_size, "num_return": beam_size}
    options["length_penalty"] = length_penalty
    lengths = set()
    for case, (ends, rules) in enumerate([*zip([ENDS, [3]] * 3, RULES, strict=False), (None, {})]):
        seed = [case, beam_size, int(2 * length_penalty + 1)]
        lengths |= set(compare(network, prompts(seed, 2), ends, **options, **rules))
    # A large penalty makes all texts as long as may be.
    assert length_penalty == 2 or len(lengths) > 3
