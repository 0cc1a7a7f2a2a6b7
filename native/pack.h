// Rows of tensors as the kernels multiply them: widened, scaled, padded or transposed; and back.
#pragma once
#include <algorithm>

#include "arena.h"
#include "half.h"
#include "multiply.h"
#include "problem.h"

namespace erlangen::ERLANGEN_ISA {

// Rows of keys or values as accumulators: the tensor itself where its rows are contiguous, else a copy.
template <class S, class T>
inline Rows<T> fetch(const View& x, int64_t b, int64_t h, int64_t first, int count, int64_t dim, T* copy) {
  const S* from = x.at<S>(b, h, first);
  if constexpr (std::is_same_v<S, T>) {
    if (x.row == dim) return {from, dim};
  }
  for (int j = 0; j < count; ++j)
    for (int64_t d = 0; d < dim; ++d) copy[j * dim + d] = widen(from[j * x.row + d]);
  return {copy, dim};
}

// x . y, of which y is stored.
template <class S, class T>
inline T dot(const T* x, const S* y, int64_t dim) {
  constexpr int N = kLanes<T>;
  Vec<T> even = {}, odd = {};
  int64_t d = 0;
  for (; d + 2 * N <= dim; d += 2 * N) {
    even += load(x + d) * load_wide(y + d);
    odd += load(x + d + N) * load_wide(y + d + N);
  }
  T total = sum<T>(even + odd);
  for (; d < dim; ++d) total += x[d] * static_cast<T>(widen(y[d]));
  return total;
}

// Whether all elements are finite: inf * 0 and NaN * 0 are NaN.
template <class T>
inline bool finite(Rows<T> x, int count, int64_t dim) {
  Vec<T> spoiled[4] = {};
  const int64_t n = count * dim;
  if (x.stride != dim) {
    for (int r = 0; r < count; ++r)
      if (!finite<T>({x.data + r * x.stride, dim}, 1, dim)) return false;
    return true;
  }
  int64_t i = 0;
  for (; i + 4 * kLanes<T> <= n; i += 4 * kLanes<T>)
    for (int u = 0; u < 4; ++u) spoiled[u] += load(x.data + i + u * kLanes<T>) * 0;
  T rest = sum<T>((spoiled[0] + spoiled[1]) + (spoiled[2] + spoiled[3]));
  for (; i < n; ++i) rest += x.data[i] * 0;
  return rest == 0;
}

// panels[p][d][lane] = factor * x[p * kPanel + lane][d], zero for queries out of range.
template <class T>
inline void pack_transposed(const T* x, int64_t stride, int count, int64_t dim, T factor, T* panels) {
  constexpr int N = kLanes<T>;
  for (int i = 0; i < kTile; i += N) {
    T* to = panels + i / kPanel<T> * dim * kPanel<T> + i % kPanel<T>;
    int64_t d = 0;
    if (i + N <= count)
      for (; d + N <= dim; d += N) {
        Vec<T> square[N];
        for (int r = 0; r < N; ++r) square[r] = load(x + (i + r) * stride + d) * factor;
        transpose<T>(square);
        for (int r = 0; r < N; ++r) store(to + (d + r) * kPanel<T>, square[r]);
      }
    for (; d < dim; ++d)
      for (int r = 0; r < N; ++r) to[d * kPanel<T> + r] = i + r < count ? factor * x[(i + r) * stride + d] : T{0};
  }
}

// rows[i][d] = factor * x[i][d], padded with zeros to kTile rows of `stride` features.
template <class S, class T>
inline void pack_rows(const S* x, int64_t x_stride, int count, int64_t dim, T factor, T* rows, int64_t stride) {
  for (int i = 0; i < kTile; ++i) {
    T* to = rows + i * stride;
    const int64_t n = i < count ? dim : 0;
    for (int64_t d = 0; d < n; ++d) to[d] = factor * static_cast<T>(widen(x[i * x_stride + d]));
    std::fill(to + n, to + stride, T{0});
  }
}

// x[i][d] = panels[p][d][lane] * factor[i]
template <class S, class T>
inline void unpack_transposed(const T* panels, int count, int64_t dim, const T* factor, S* x, int64_t stride) {
  constexpr int N = kLanes<T>;
  for (int i = 0; i < count; i += N) {
    const T* from = panels + i / kPanel<T> * dim * kPanel<T> + i % kPanel<T>;
    const int rows = std::min(N, count - i);
    const Vec<T> factors = load(factor + i);
    int64_t d = 0;
    for (; d + N <= dim; d += N) {
      Vec<T> square[N];
      for (int r = 0; r < N; ++r) square[r] = load(from + (d + r) * kPanel<T>) * factors;
      transpose<T>(square);
      for (int r = 0; r < rows; ++r)
        for (int lane = 0; lane < N; ++lane) narrow(square[r][lane], x[(i + r) * stride + d + lane]);
    }
    for (; d < dim; ++d)
      for (int r = 0; r < rows; ++r) narrow(from[d * kPanel<T> + r] * factor[i + r], x[(i + r) * stride + d]);
  }
}

// Room for `rows` padded rows of the running task.
template <class T, class P>
inline Arena<T> row_arena(const P& p, int rows) {
  return {Scratch::task, rows * (padded<T>(std::max(p.dim, p.dim_v)) + 16)};
}

// A stored row times a factor, padded with zeros to whole vectors.
template <class S, class T>
inline void widen_row(const S* from, int64_t dim, T factor, T* to) {
  for (int64_t d = 0; d < dim; ++d) to[d] = factor * static_cast<T>(widen(from[d]));
  for (int64_t d = dim; d % kLanes<T> != 0; ++d) to[d] = 0;
}
template <class S, class T>
inline void narrow_row(const T* from, int64_t dim, T factor, S* to) {
  for (int64_t d = 0; d < dim; ++d) narrow(from[d] * factor, to[d]);
}

}  // namespace erlangen::ERLANGEN_ISA
