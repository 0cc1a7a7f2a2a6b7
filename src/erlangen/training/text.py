"""Text as training data: its characters as numbers, its windows as batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import torch
from torch import Tensor

from erlangen.errors import DataError, ParameterError

TINY_SHAKESPEARE = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"

EXPECTED = f"expected a plain text in UTF-8, for example tiny Shakespeare (1.1 MB): {TINY_SHAKESPEARE}"


@dataclass(frozen=True)
class Characters:
    """A vocabulary of single characters; character number i is `characters[i]`.

    >>> vocabulary = Characters.of("hello")
    >>> vocabulary
    Characters(characters='ehlo')
    >>> vocabulary.encode("hole"), vocabulary.decode(torch.tensor([1, 3, 2, 0]))
    (tensor([1, 3, 2, 0]), 'hole')
    >>> vocabulary.encode("help")
    Traceback (most recent call last):
    erlangen.errors.DataError: the text has 'p', which is not one of the 4 characters known
    """

    characters: str

    @classmethod
    def of(cls, text: str) -> Characters:
        """The characters that a text has, sorted."""
        return cls("".join(sorted(set(text))))

    def __len__(self) -> int:
        return len(self.characters)

    def encode(self, text: str) -> Tensor:
        """The numbers of the characters of a text, shape (length,)."""
        numbers = {character: number for number, character in enumerate(self.characters)}
        try:
            return torch.tensor([numbers[character] for character in text], dtype=torch.long)
        except KeyError as error:
            raise DataError(
                f"the text has {error.args[0]!r}, which is not one of the {len(self)} characters known"
            ) from None

    def decode(self, numbers: Tensor) -> str:
        """The text of numbers of shape (length,)."""
        return "".join(self.characters[number] for number in numbers.tolist())


def read_text(path: Path) -> str:
    """The text in a file, with line ends as they are; a `DataError` if there is none.

    >>> read_text(Path("nowhere.txt"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    erlangen.errors.DataError: there is no file nowhere.txt; expected a plain text in UTF-8, ...
    """
    if not path.is_file():
        raise DataError(f"{'not a file: ' if path.exists() else 'there is no file '}{path}; {EXPECTED}")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8: {error}; {EXPECTED}") from None
    if not text.strip():
        raise DataError(f"{path} is empty; {EXPECTED}")
    return text


@dataclass(frozen=True)
class Corpus:
    """A text cut in two: the first nine tenths train, the last tenth validates.

    >>> corpus = Corpus.of("abcdefghij" * 10, context=8)
    >>> len(corpus.training), len(corpus.validation), len(corpus.vocabulary)
    (90, 10, 10)
    >>> inputs, targets = corpus.windows(torch.tensor([0, 5]))
    >>> [corpus.vocabulary.decode(row) for row in inputs], [corpus.vocabulary.decode(row) for row in targets]
    (['abcdefgh', 'fghijabc'], ['bcdefghi', 'ghijabcd'])
    >>> Corpus.of("too short", context=8)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    erlangen.errors.DataError: the text has 9 characters, but a context of 8 needs at least 90, so that ...
    """

    vocabulary: Characters
    training: Tensor
    validation: Tensor
    context: int
    digest: str
    """SHA-256 of the text: a run is only resumed on the text it began with."""

    @classmethod
    def of(cls, text: str, context: int) -> Corpus:
        """Number the characters and cut, if both parts have a window and the character after it."""
        if context < 1:
            raise ParameterError(f"a context is at least one character, got {context}")
        needed = 10 * (context + 1)
        if len(text) < needed:
            raise DataError(
                f"the text has {len(text):,} characters, but a context of {context} needs at least "
                f"{needed:,}, so that the last tenth, which validates, has a window: give a longer text "
                f"or a smaller context; {EXPECTED}"
            )
        vocabulary = Characters.of(text)
        numbers = vocabulary.encode(text)
        cut = len(numbers) * 9 // 10
        return cls(vocabulary, numbers[:cut], numbers[cut:], context, sha256(text.encode()).hexdigest())

    @property
    def places(self) -> int:
        """The number of places at which a training window can begin."""
        return len(self.training) - self.context

    def windows(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """The windows that begin at these places, and the same one character later: both (batch, context)."""
        spans = places[:, None] + torch.arange(self.context + 1)
        drawn = self.training[spans]
        return drawn[:, :-1], drawn[:, 1:]

    def validating(self, batch: int = 64) -> Iterator[tuple[Tensor, Tensor]]:
        """All validation windows side by side: every character but the first is predicted exactly once.

        The last window may be shorter, and then comes alone.

        >>> corpus = Corpus.of("abcdefghij" * 11, context=3)
        >>> sum(targets.numel() for _, targets in corpus.validating())
        10
        """
        inputs, targets = self.validation[:-1], self.validation[1:]
        whole = len(inputs) // self.context * self.context
        if whole:
            rows = inputs[:whole].view(-1, self.context), targets[:whole].view(-1, self.context)
            yield from zip(rows[0].split(batch), rows[1].split(batch), strict=True)
        if whole < len(inputs):
            yield inputs[None, whole:], targets[None, whole:]
