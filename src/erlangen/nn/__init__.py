"""Attention layers: the general one and the paper's six."""

from erlangen.nn.attention import Attention
from erlangen.nn.convolution import ConvolutionAttention
from erlangen.nn.graph_layer import GraphLayer
from erlangen.nn.hypergraph_attention import HypergraphAttention
from erlangen.nn.kv_cache import KVCache
from erlangen.nn.paper import (
    EncoderDecoderAttention,
    GraphAttention,
    MaskedAttention,
    SelfAttention,
    SparseAttention,
    StridedAttention,
)
from erlangen.nn.relative_bias import RelativeBias
from erlangen.nn.ternary_layer import TripleAttention

__all__ = [
    "Attention",
    "ConvolutionAttention",
    "EncoderDecoderAttention",
    "GraphAttention",
    "GraphLayer",
    "HypergraphAttention",
    "KVCache",
    "MaskedAttention",
    "RelativeBias",
    "SelfAttention",
    "SparseAttention",
    "StridedAttention",
    "TripleAttention",
]
