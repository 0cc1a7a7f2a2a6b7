"""The architectures of the paper, one file each, equal in numbers to the well-known implementations.

>>> from erlangen.models import GPT
>>> GPT(GPT.Config(vocab_size=65, context=32, layers=1, heads=2, width=16)).relation
Causal()
"""

from typing import TYPE_CHECKING

from erlangen.packages import lazily

if TYPE_CHECKING:
    from erlangen.models.bahdanau import Bahdanau
    from erlangen.models.bert import BERT
    from erlangen.models.gat import GAT
    from erlangen.models.gpt import GPT
    from erlangen.models.s4 import S4
    from erlangen.models.sparse_transformer import SparseTransformer
    from erlangen.models.t5 import T5
    from erlangen.models.transformer import Transformer
    from erlangen.models.unlimiformer import Unlimiformer
    from erlangen.models.vit import ViT

__all__ = [
    "BERT",
    "GAT",
    "GPT",
    "S4",
    "T5",
    "Bahdanau",
    "SparseTransformer",
    "Transformer",
    "Unlimiformer",
    "ViT",
]

__getattr__, __dir__ = lazily(__name__)
