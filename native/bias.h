// A Toeplitz bias, one number per offset j - i, in the order the kernels read it; and its gradient back.
#pragma once
#include "elementary.h"
#include "problem.h"

namespace erlangen::ERLANGEN_ISA {

// A reversed row per bias head, with zeros behind it for reads of whole vectors.
inline int64_t reversed_size(const Problem& p) { return p.queries + p.keys + kTile; }

// The bias of the pairs of key j with the queries i0, i0 + 1, ... is consecutive in the reversed bias.
template <class T>
struct ReversedBias {
  const T* data = nullptr;  // of one head, scaled by log2(e); null without a bias
  int64_t keys = 0;

  ReversedBias(const Problem& p, const T* all, int64_t h)
      : data(all ? all + (p.bias_heads == 1 ? 0 : h) * reversed_size(p) : nullptr), keys(p.keys) {}
  const T* at(int64_t i, int64_t j) const { return data + (i - j + keys - 1); }
};

// reversed[h][x] = log2(e) * bias[h][queries + keys - 2 - x], then zeros
template <class T>
inline void reverse_bias(const Problem& p, T* reversed) {
  const int64_t n = p.queries + p.keys - 1, row = reversed_size(p);
  for (int64_t h = 0; h < p.bias_heads; ++h)
    for (int64_t x = 0; x < row; ++x)
      reversed[h * row + x] =
          x < n ? static_cast<const T*>(p.bias)[h * n + n - 1 - x] * static_cast<T>(kLog2E) : T{0};
}

// dbias[h][n - 1 - x] = the sum over the pieces of that bias head, in order. head_of(piece) is a piece's head.
template <class T, class HeadOf>
inline void sum_dbias(const Problem& p, const T* shares, int64_t pieces, HeadOf&& head_of) {
  const int64_t n = p.queries + p.keys - 1, row = reversed_size(p);
  T* dbias = static_cast<T*>(p.dbias);
  for (int64_t x = 0; x < p.bias_heads * n; ++x) dbias[x] = 0;
  for (int64_t piece = 0; piece < pieces; ++piece) {
    T* to = dbias + (p.bias_heads == 1 ? 0 : head_of(piece)) * n;
    for (int64_t x = 0; x < n; ++x) to[n - 1 - x] += shares[piece * row + x];
  }
}

}  // namespace erlangen::ERLANGEN_ISA
