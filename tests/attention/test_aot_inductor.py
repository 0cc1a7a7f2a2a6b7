"""A program that AOTInductor compiled runs in another process with the relation it was exported with.

Compiling takes most of a minute: `make test-long` runs this.
"""

import os
import subprocess
import sys

import pytest
import torch

import erlangen as er

RUN = """
import sys, torch, erlangen as er
q = torch.randn(1, 1, 9, 8)
er.attend(q, q, q, er.Causal())  # another relation first
x, expected = torch.load(sys.argv[2])
with torch.no_grad():
    found = torch._inductor.aoti_load_package(sys.argv[1])(x)
torch.testing.assert_close(found, expected)
"""


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(16, 48)

    def forward(self, x):
        q, k, v = self.qkv(x).view(x.shape[0], 32, 3, 2, 8).permute(2, 0, 3, 1, 4)
        return er.attend(q, k, v, er.Window(3) | er.Global(keys=[0]))


@pytest.mark.skipif("ERLANGEN_LONG" not in os.environ, reason="a long check: make test-long")
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
def test_a_compiled_program_keeps_its_relation_in_another_process(tmp_path):
    torch.manual_seed(0)
    model, x = Model().eval(), torch.randn(2, 32, 16)
    with torch.no_grad():
        program = torch.export.export(model, (x,))
        package = str(tmp_path / "model.pt2")
        torch._inductor.aoti_compile_and_package(program, package_path=package)
        torch.save((x, model(x)), tmp_path / "numbers.pt")
    subprocess.run([sys.executable, "-c", RUN, package, str(tmp_path / "numbers.pt")], check=True)
