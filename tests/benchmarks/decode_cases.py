"""What the benchmark of decoding measures: sizes of models, cases, and the part of a slow one.

Read by every process, those in the environment of bert4keras too: standard library only.
"""

from dataclasses import asdict, dataclass, replace

VOCABULARY = 21128
SIZES = {
    "tiny": {
        "hidden_size": 312,
        "embedding_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 12,
        "intermediate_size": 1248,
    },
    "base": {
        "hidden_size": 768,
        "embedding_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
    },
}
NAMES = {"tiny": "albert-tiny", "base": "bert-base"}

OURS, UNCACHED, OLD, TORCH = "kerasbert", "uncached", "bert4keras", "transformers"
PEERS = {
    OURS: "kerasbert",
    UNCACHED: "(a) kerasbert uncached",
    OLD: "(b) bert4keras",
    TORCH: "(c) transformers",
}

WINDOWS = (8, 2)  # steps that stand for all those of a call that would take minutes
LONG = 5e12  # floating-point operations: about a minute on two cores


@dataclass(frozen=True)
class Case:
    """A row of the table: what is to be decoded."""

    size: str
    batch: int
    beam: int
    prompt: int
    new: int

    @property
    def forwards(self):
        """Rows that go through the model: the first step has a single beam."""
        return self.batch * (1 + self.beam * (self.new - 1))

    @property
    def operations(self):
        """Floating-point operations if every step reads the whole text again, half written."""
        matrices = block_matrices(self.size) * SIZES[self.size]["num_hidden_layers"]
        weights = sum(rows * columns for rows, columns in matrices + head_matrices(self.size))
        return 2 * weights * (self.prompt + self.new / 2) * self.forwards


def block_matrices(size):
    """Shapes of the matrices of one Transformer block."""
    hidden, intermediate = SIZES[size]["hidden_size"], SIZES[size]["intermediate_size"]
    return [(hidden, hidden)] * 4 + [(hidden, intermediate), (intermediate, hidden)]


def head_matrices(size):
    """Shapes of the matrices of the masked-LM head."""
    hidden, embedding = SIZES[size]["hidden_size"], SIZES[size]["embedding_size"]
    return [(hidden, embedding), (embedding, VOCABULARY)]


@dataclass(frozen=True)
class Plan:
    """What is measured in place of a case, and how many times as much the case is."""

    case: Case
    factor: float
    note: str

    def as_dict(self):
        return asdict(self.case)


def plan(peer, case):
    """The part of a case that is measured.

    Peers with a cache decode all of it. bert4keras decodes one input after the other, so one
    stands for all. Where every step runs the whole text again and a call would take minutes,
    a few steps in the middle of the text stand for all, as their cost grows with the length.
    """
    if peer in (OURS, TORCH):
        return Plan(case, 1.0, "all")
    measured = replace(case, batch=1) if peer == OLD else case
    notes = []
    if measured.batch < case.batch:
        notes.append(f"1 of {case.batch} rows")
    if measured.operations > LONG and case.new > WINDOWS[-1]:
        measured = middle(measured)
        notes.append(f"{measured.new} of {case.new} tokens")
    return Plan(measured, case.forwards / measured.forwards, ", ".join(notes) or "all")


def middle(case):
    """The widest window of steps that is not long, or else the smallest."""
    for new in WINDOWS:
        if new > case.new:
            continue
        window = replace(case, prompt=case.prompt + (case.new - new) // 2, new=new)
        if window.operations <= LONG:
            break
    return window
