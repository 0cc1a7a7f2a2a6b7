"""Inputs at another rate than the rows, with few positions or many: judged, or open with what would tell."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from erlangen.audit import Inputs


class Streams(nn.Module):
    """Sound, and pictures at a quarter of its rate, each heard when it is over; the faulty one takes the mean
    of all pictures away."""

    def __init__(self, faulty: bool) -> None:
        super().__init__()
        self.sound, self.pictures = nn.Linear(4, 16), nn.Linear(6, 16)
        self.qkv, self.faulty = nn.Linear(16, 48), faulty

    def forward(self, audio, video):
        n, rate = audio.shape[1], audio.shape[1] // video.shape[1]
        frames = self.pictures(video)
        if self.faulty:
            frames = frames - frames.mean(1, keepdim=True)
        late = F.pad(frames.repeat_interleave(rate, 1), (0, 0, rate - 1, 0))[:, :n]
        x = self.sound(audio) + late
        return x + F.scaled_dot_product_attention(*self.qkv(x).chunk(3, -1), is_causal=True)


FEEDINGS = ["shorter", "training", "other content"]


def audited(faulty, frames, **told):
    torch.manual_seed(0)
    inputs = {"audio": torch.randn(2, 4 * frames, 4), "video": torch.randn(2, frames, 6)}
    return er.audit(Streams(faulty), Inputs((), inputs, **told), er.Causal(), feedings=FEEDINGS)


@pytest.mark.parametrize("frames", [2, 4, 5])
def test_of_few_positions_it_is_open_what_they_are(frames):
    report = audited(True, frames)
    assert report.verdict == "undecided", report
    assert any("give more positions" in str(one) and "'video'" in str(one) for one in report.open)


@pytest.mark.parametrize("frames", [4, 5, 8])
def test_named_as_content_they_are_judged(frames):
    report = audited(True, frames, content=["audio", "video"])
    assert report.verdict == "violated", report
    assert report.findings[0].content == "video"


@pytest.mark.parametrize("frames", [2, 4, 5, 8])
@pytest.mark.parametrize("told", [{}, {"content": ["audio", "video"]}, {"content": ["audio"]}])
def test_what_keeps_to_the_rate_holds(frames, told):
    assert audited(False, frames, **told).verdict == "holds"


def test_of_many_positions_it_is_told():
    assert audited(True, 8).verdict == "violated"


class Conditioned(nn.Module):
    """A few words of a condition, of which every row reads the mean."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.layer = nn.Embedding(20, 16), nn.GRU(16, 16, batch_first=True)

    def forward(self, x, words):
        return self.layer(x + self.embed(words).mean(1, keepdim=True))[0]


@pytest.mark.parametrize("words", [3, 4, 5])
@pytest.mark.parametrize("seed", range(3))
def test_a_short_condition_is_another_sequence(words, seed):
    torch.manual_seed(seed)
    inputs = {"x": torch.randn(2, 12, 16), "words": torch.randint(20, (2, words))}
    report = er.audit(Conditioned(), inputs, er.Causal(), feedings=FEEDINGS)
    assert report.verdict == "holds", report


class Staged(nn.Module):
    """Instructions of which each is read from a fourth of the rows on: rows follow these plainly; the faulty
    one reads the next one."""

    def __init__(self, faulty: bool) -> None:
        super().__init__()
        self.embed, self.layer, self.faulty = nn.Embedding(20, 16), nn.GRU(16, 16, batch_first=True), faulty

    def forward(self, x, steps):
        n, k = x.shape[1], steps.shape[1]
        at = torch.arange(n) * k // n + self.faulty
        return self.layer(x + self.embed(steps)[:, at.clamp(max=k - 1)])[0]


@pytest.mark.parametrize("faulty", [0, 1])
def test_few_positions_that_rows_plainly_follow_are_judged(faulty):
    torch.manual_seed(0)
    inputs = {"x": torch.randn(2, 12, 16), "steps": torch.randint(20, (2, 4))}
    report = er.audit(Staged(faulty), inputs, er.Causal(), feedings=["training"])
    assert report.verdict == ("violated" if faulty else "holds"), report


class Later(Streams):
    """Takes the mean of all pictures away in training alone."""

    def forward(self, audio, video):
        self.faulty = self.training
        return super().forward(audio, video)


@pytest.mark.parametrize("frames", [4, 8])
def test_what_training_alone_reads(frames):
    torch.manual_seed(0)
    inputs = {"audio": torch.randn(2, 4 * frames, 4), "video": torch.randn(2, frames, 6)}
    report = er.audit(Later(False), inputs, er.Causal(), feedings=["training"])
    assert report.verdict == "violated", report
