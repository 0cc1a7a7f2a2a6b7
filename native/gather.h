// Products of a vector with gathered rows, and weighted sums of them. Lanes are features while reading, and edges for the
// softmax.
#pragma once
#include "edge_walk.h"
#include "half.h"
#include "prefetch.h"

namespace erlangen::ERLANGEN_ISA {

// Rows of a tensor, picked by index.
template <class S, class T>
struct Gathered {
  static constexpr int N = kLanes<T>;
  const S* base;
  int64_t stride;

  const S* row(int32_t index) const { return base + index * stride; }

  // Prefetches row(index[t]), or a part of it; nothing where the index is null.
  __attribute__((always_inline)) void prefetch_row(const int32_t* index, int t, int64_t d, int64_t count) const {
    if (index) prefetch<kL1>(row(index[t]) + d, count);
  }

  // Lane t is x . row(index[t]); x is padded with zeros. It prefetches row(next[t]), line by line between the products:
  // many lines at once would wait for one another, and the products for them.
  Vec<T> dots(const int32_t* index, const T* x, int64_t dim, const int32_t* next = nullptr) const {
    constexpr int kLine = 64 / static_cast<int>(sizeof(S)), V = kLine / N;  // features and vectors of a cache line
    if (dim % kLine != 0) return ragged_dots(index, x, dim, next);
    const S* rows[N];
    Vec<T> products[N];
#pragma GCC unroll 16
    for (int t = 0; t < N; ++t) {
      rows[t] = row(index[t]);
      products[t] = Vec<T>{};
    }
    for (int64_t d = 0; d < dim; d += kLine)
#pragma GCC unroll 16
      for (int t = 0; t < N; ++t) {
        prefetch_row(next, t, d, 1);
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) products[t] += load(x + d + v * N) * load_wide(rows[t] + d + v * N);
      }
    return sums<T>(products);
  }

  // to = rescale * to + sum_t weight[t] row(index[t]). It prefetches the rows next[t] of `upcoming`.
  void add(const Chunk<T>& chunk, const T* weight, T rescale, int64_t dim, T* to, const int32_t* next,
           const Gathered& upcoming) const {
    if (dim <= kFew) return add_few(chunk, weight, rescale, dim, to, next, upcoming);
    int64_t d = 0;
    for (; d + 8 * N <= dim; d += 8 * N) add_vectors<8>(chunk, weight, rescale, d, to, next, upcoming);
    if (d + 4 * N <= dim) {
      add_vectors<4>(chunk, weight, rescale, d, to, next, upcoming);
      d += 4 * N;
    }
    for (; d + N <= dim; d += N) add_vectors<1>(chunk, weight, rescale, d, to, next, upcoming);
    if (d < dim) {
      Vec<T> total = load(to + d) * rescale;
      for (int t = 0; t < chunk.count; ++t)
        total += weight[t] * load_tail(row(chunk.index[t]) + d, static_cast<int>(dim - d));
      store(to + d, total);
    }
  }

 private:
  // Rows of so few features are read feature by feature, for they fill no vector.
  static constexpr int64_t kFew = 4;

  // The same for rows that are not whole cache lines.
  __attribute__((noinline)) Vec<T> ragged_dots(const int32_t* index, const T* x, int64_t dim,
                                               const int32_t* next) const {
    for (int t = 0; t < N; ++t) prefetch_row(next, t, 0, dim);
    if (dim <= kFew) return few_dots(index, x, dim);
    Vec<T> products[N] = {};
    int64_t d = 0;
    for (; d + N <= dim; d += N) {
      const Vec<T> left = load(x + d);
#pragma GCC unroll 16
      for (int t = 0; t < N; ++t) products[t] += left * load_wide(row(index[t]) + d);
    }
    if (d < dim) {
      const Vec<T> left = load(x + d);
      for (int t = 0; t < N; ++t) products[t] += left * load_tail(row(index[t]) + d, static_cast<int>(dim - d));
    }
    return sums<T>(products);
  }
  Vec<T> few_dots(const int32_t* index, const T* x, int64_t dim) const {
    Vec<T> total = {};
    for (int64_t d = 0; d < dim; ++d) {
      Vec<T> right = {};
      for (int t = 0; t < N; ++t) right[t] = static_cast<T>(widen(row(index[t])[d]));
      total += x[d] * right;
    }
    return total;
  }
  void add_few(const Chunk<T>& chunk, const T* weight, T rescale, int64_t dim, T* to, const int32_t* next,
               const Gathered& upcoming) const {
    for (int t = 0; t < chunk.count; ++t) upcoming.prefetch_row(next, t, 0, dim);
    for (int64_t d = 0; d < dim; ++d) {
      T even = to[d] * rescale, odd = 0;
      for (int t = 0; t < chunk.count; t += 2) {
        even += weight[t] * static_cast<T>(widen(row(chunk.index[t])[d]));
        if (t + 1 < chunk.count) odd += weight[t + 1] * static_cast<T>(widen(row(chunk.index[t + 1])[d]));
      }
      to[d] = even + odd;
    }
  }

  // The same for `Count` vectors of features, which stay in registers: two sums each, where there are registers.
  template <int Count>
  void add_vectors(const Chunk<T>& chunk, const T* weight, T rescale, int64_t d, T* to, const int32_t* next,
                   const Gathered& upcoming) const {
    constexpr bool two = Count < 8;
    Vec<T> even[Count], odd[Count];
#pragma GCC unroll 8
    for (int c = 0; c < Count; ++c) {
      even[c] = load(to + d + c * N) * rescale;
      odd[c] = Vec<T>{};
    }
    int t = 0;
    for (; two && t + 2 <= chunk.count; t += 2) {
      upcoming.prefetch_row(next, t, d, Count * N);
      upcoming.prefetch_row(next, t + 1, d, Count * N);
      const S *left = row(chunk.index[t]) + d, *right = row(chunk.index[t + 1]) + d;
#pragma GCC unroll 8
      for (int c = 0; c < Count; ++c) {
        even[c] += weight[t] * load_wide(left + c * N);
        odd[c] += weight[t + 1] * load_wide(right + c * N);
      }
    }
    for (; t < chunk.count; ++t) {
      upcoming.prefetch_row(next, t, d, Count * N);
      const S* one = row(chunk.index[t]) + d;
#pragma GCC unroll 8
      for (int c = 0; c < Count; ++c) even[c] += weight[t] * load_wide(one + c * N);
    }
#pragma GCC unroll 8
    for (int c = 0; c < Count; ++c) store(to + d + c * N, two ? even[c] + odd[c] : even[c]);
  }
};

}  // namespace erlangen::ERLANGEN_ISA
