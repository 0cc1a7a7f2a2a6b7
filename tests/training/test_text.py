"""Text as data: numbering, windows, the validation part, and texts that are refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from erlangen.errors import DataError, ParameterError
from erlangen.models import GPT
from erlangen.training.gpt import validation_loss
from erlangen.training.text import Corpus, read_text

TEXT = "Sphinx of black quartz, judge my vow. " * 30


def test_text_is_cut_at_nine_tenths():
    corpus = Corpus.of(TEXT, context=16)
    numbers = torch.cat([corpus.training, corpus.validation])
    assert corpus.vocabulary.decode(numbers) == TEXT
    assert len(corpus.training) == len(TEXT) * 9 // 10


def test_windows_reach_from_the_first_to_the_last_training_character_and_no_further():
    corpus = Corpus.of(TEXT, context=16)
    inputs, targets = corpus.windows(torch.tensor([0, corpus.places - 1]))
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert torch.equal(inputs[0], corpus.training[:16])
    assert torch.equal(targets[1], corpus.training[-16:])


@pytest.mark.parametrize("context", [1, 7, 16, 30])
def test_every_validation_character_but_the_first_is_predicted_once(context):
    corpus = Corpus.of(TEXT, context)
    inputs, targets = zip(*corpus.validating(batch=3), strict=True)
    assert torch.equal(torch.cat([t.flatten() for t in targets]), corpus.validation[1:])
    assert torch.equal(torch.cat([i.flatten() for i in inputs]), corpus.validation[:-1])
    assert max(i.shape[1] for i in inputs) == context


def test_the_validation_loss_is_the_mean_over_characters_not_over_batches():
    corpus = Corpus.of(TEXT, context=16)
    torch.manual_seed(0)
    model = nn.Embedding(
        len(corpus.vocabulary), len(corpus.vocabulary)
    )  # logits from the last character alone
    expected = F.cross_entropy(model(corpus.validation[:-1]), corpus.validation[1:]).item()
    assert validation_loss(model, corpus) == pytest.approx(expected, abs=1e-6)


def test_validation_does_not_depend_on_the_batching():
    corpus = Corpus.of(TEXT, context=16)
    model = GPT(GPT.Config(vocab_size=len(corpus.vocabulary), context=16, layers=1, heads=1, width=8)).eval()
    one_by_one = [
        F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten(), reduction="sum").item()
        for inputs, targets in corpus.validating(batch=1)
    ]
    assert validation_loss(model, corpus) == pytest.approx(sum(one_by_one) / 113, abs=1e-5)


def test_refused_texts(tmp_path):
    path = tmp_path / "a.txt"
    for content, reason in ((b"", "is empty"), (b" \n\n", "is empty"), (b"\xff\xfe\x00", "is not UTF-8")):
        path.write_bytes(content)
        with pytest.raises(DataError, match=rf"{reason}.*expected a plain text in UTF-8.*https://"):
            read_text(path)
    with pytest.raises(DataError, match="not a file"):
        read_text(tmp_path)
    with pytest.raises(DataError, match="there is no file"):
        read_text(tmp_path / "b.txt")
    with pytest.raises(DataError, match=r"169 characters.*at least 170.*smaller context"):
        Corpus.of(TEXT[:169], context=16)
    assert Corpus.of(TEXT[:170], context=16).places == 137
    with pytest.raises(ParameterError, match="at least one character, got 0"):
        Corpus.of(TEXT, context=0)


def test_line_ends_and_marks_of_a_text(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo")
    assert read_text(path) == "one\r\ntwo"
