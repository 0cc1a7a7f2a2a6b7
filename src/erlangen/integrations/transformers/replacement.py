"""Another relation for chosen layers of a loaded model."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from fnmatch import fnmatchcase
from types import TracebackType
from typing import Any

from torch import nn

from erlangen.errors import ParameterError
from erlangen.integrations.transformers.forward import REPLACED
from erlangen.integrations.transformers.registration import NAME, register
from erlangen.relations import Bindable
from erlangen.relations.protocol import expect

Layers = int | str | Iterable[int | str] | None

CROSS = ("cross", "encoder_attn", "encdec", "encoder_decoder")
"""How the names of modules say that their keys come from another sequence."""


class Replacement:
    """The layers that `use_relation` changed; `undo()`, or leaving a `with` block, gives all back.

    `modules` maps the names of the changed modules to the modules. Several are undone in reverse order; any
    other order is an error.
    """

    def __init__(self, model: Any, modules: dict[str, nn.Module], relation: Bindable) -> None:
        self.modules = modules
        self.relation = relation
        self._model = model
        self._before = {name: getattr(module, REPLACED, None) for name, module in modules.items()}
        self._implementation = _implementations(model)
        self._switched = any(before != NAME for _, before in self._implementation)
        self._undone = False
        model.set_attn_implementation(NAME)
        for module in modules.values():
            setattr(module, REPLACED, relation)

    def undo(self) -> None:
        """Give the layers their relations back, and the model its attention implementation; once."""
        if self._undone:
            return
        later = [
            name
            for name, module in self._model.named_modules()
            if (relation := getattr(module, REPLACED, None)) is not self.relation
            and (name in self.modules or (relation is not None and self._switched))
        ]
        if later:
            raise ParameterError(
                f"{later[0]} was given another relation after {self.relation}: undo that one first"
            )
        self._undone = True
        for name, module in self.modules.items():
            if self._before[name] is None:
                delattr(module, REPLACED)
            else:
                setattr(module, REPLACED, self._before[name])
        for config, implementation in self._implementation:
            config._attn_implementation_internal = implementation

    def __enter__(self) -> Replacement:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()

    def __repr__(self) -> str:
        return f"Replacement({self.relation}, {list(self.modules)})"


def use_relation(model: nn.Module, relation: Bindable, layers: Layers = None) -> Replacement:
    """Let chosen layers of a loaded transformers model read another relation; the model trains as before.

    - `relation`: a relation or a `PerHead`. It takes the place of the one the model has (full, causal, a
      window); the padding and the packed documents of a batch still hold: the layer reads
      `relation & padding`.
    - `layers`: numbers of self-attention layers, counted in the order of `model.named_modules()` (negative
      ones from the end), module names or patterns of them (`"encoder.*"`), or None for all of them.
      Cross-attention is changed only where a name says so.

    The model switches to `attn_implementation="erlangen"`, also in the layers that keep their relation. The
    result undoes everything: `use_relation(...).undo()`, or `with use_relation(...): ...`.

    >>> import torch, transformers
    >>> from erlangen.relations import Window
    >>> config = transformers.BertConfig(hidden_size=16, num_attention_heads=2, num_hidden_layers=2,
    ...                                  intermediate_size=16, vocab_size=9)
    >>> model = transformers.BertModel(config).eval()
    >>> with use_relation(model, Window(lookback=2, lookahead=2), layers=[0]) as changed:
    ...     print(changed, model(torch.tensor([[1, 2, 3, 4]])).last_hidden_state.shape)
    Replacement(Window(lookback=2, lookahead=2), ['encoder.layer.0.attention.self']) torch.Size([1, 4, 16])
    >>> model.config._attn_implementation
    'sdpa'
    >>> use_relation(model, Window(1), layers=[7])
    Traceback (most recent call last):
    ...
    erlangen.errors.ParameterError: layers has 7, but BertModel has 2 self-attention layers, 0 .. 1
    """
    taken = "use_relation takes a Relation or a PerHead, as padding comes with each batch"
    expect(relation, taken, axes=("head",))
    register()
    known = attention_modules(model)
    if not known or not callable(getattr(model, "set_attn_implementation", None)):
        raise ParameterError(
            f"{type(model).__name__} is no transformers model that calls its attention through the registry "
            "(AttentionInterface), so its relation cannot be replaced"
        )
    return Replacement(model, _chosen(model, known, layers), relation)


def attention_modules(model: nn.Module) -> dict[str, nn.Module]:
    """The modules that call attention through the registry, by name, in the order of `named_modules()`.

    >>> attention_modules(nn.Linear(2, 2))
    {}
    """
    return {name: module for name, module in model.named_modules() if _uses_registry(type(module))}


def _uses_registry(kind: type[nn.Module]) -> bool:
    forward: Any = inspect.unwrap(kind.forward)
    code = getattr(forward, "__code__", None)
    return code is not None and "ALL_ATTENTION_FUNCTIONS" in code.co_names


def _chosen(model: nn.Module, known: dict[str, nn.Module], layers: Layers) -> dict[str, nn.Module]:
    own = [name for name, module in known.items() if not _is_cross(name, module)]
    if layers is None:
        return {name: known[name] for name in own}
    listed = [layers] if isinstance(layers, (int, str)) else list(layers)
    if not listed:
        raise ParameterError("layers is empty: give numbers or names of layers, or None for all")
    names: list[str] = []
    for layer in listed:
        names += _named(model, known, own, layer)
    return {name: known[name] for name in dict.fromkeys(names)}


def _named(model: nn.Module, known: dict[str, nn.Module], own: list[str], layer: Any) -> list[str]:
    title = type(model).__name__
    if isinstance(layer, str):
        # A name means the module itself, or those inside it.
        found = [
            name
            for name in known
            if fnmatchcase(name, layer) or (name in own and name.startswith(f"{layer}."))
        ]
        if not found:
            raise ParameterError(f"layers has {layer!r}, which names none of {title}'s {', '.join(known)}")
        return found
    if isinstance(layer, bool) or not isinstance(layer, int):
        raise ParameterError(f"layers takes numbers and names, got {layer!r}")
    if not -len(own) <= layer < len(own):
        raise ParameterError(
            f"layers has {layer}, but {title} has {len(own)} self-attention layers, 0 .. {len(own) - 1}"
        )
    return [own[layer]]


def _is_cross(name: str, module: nn.Module) -> bool:
    said = getattr(module, "is_cross_attention", None)
    return bool(said) or any(part in name.lower() for part in CROSS)


def _implementations(model: Any) -> list[tuple[Any, Any]]:
    """Every configuration in the model, and the attention implementation it names."""
    configs = {id(m.config): m.config for m in model.modules() if hasattr(m, "config")}
    configs |= {id(sub): sub for c in list(configs.values()) for sub in _inside(c)}
    return [(c, c._attn_implementation_internal) for c in configs.values()]


def _inside(config: Any) -> list[Any]:
    found = [getattr(config, name, None) for name in getattr(config, "sub_configs", {})]
    return [sub for sub in found if hasattr(sub, "_attn_implementation_internal")]
