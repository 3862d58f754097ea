"""What a search needs from a model, and nothing more.

Shapes: R rows of the batch, r rows that still go on, J slots of a row, V vocabulary.
"""

from abc import ABC, abstractmethod


class Decoding(ABC):
    """A batch of prompts whose texts grow by one token a step.

    A search calls `first` once and then `step` as often as it likes. Every row has the same
    number of slots: one text for greedy search, several for beams and samples. After `first`
    there is a single slot, from which all slots of the first step go on.
    """

    @abstractmethod
    def first(self):
        """Reads the prompts.

        Returns:
            Float32 array (R, V): the logits of the token after each row's prompt.
        """

    @abstractmethod
    def step(self, rows, parents, tokens):
        """Goes one token on.

        Args:
            rows: int array (r,): the rows that go on, as positions among the rows of the
                previous step, ascending. The others are left out for good.
            parents: int array (r, J): the slot of the previous step that each slot continues.
            tokens: int array (r, J): the token that each slot is continued with.

        Returns:
            Float32 array (r, J, V): the logits of the token after each slot's text.
        """
