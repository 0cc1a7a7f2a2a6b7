// One row of an irregular relation: its indices in batches of as many as a vector has lanes, the products of a vector
// with the gathered rows, and weighted sums of them. Lanes are features while reading, and edges for the softmax.
#pragma once
#include "tile_block.h"

namespace erlangen::ERLANGEN_ISA {

template <class T>
struct Batch {
  static constexpr int N = kLanes<T>;
  int32_t index[N];
  int count = 0;
  int64_t first = 0;  // the number of its first edge, in relation 0

  // Lanes that hold an edge. The rest repeat the last edge, so that whatever is read was to be read anyway.
  Bits<T> valid() const { return lanes_of<T>((uint64_t{1} << count) - 1); }
};

// Walks over the indices of a row, and counts them where edges have numbers.
template <class T, bool Counted>
struct Walk {
  static constexpr int N = Batch<T>::N;
  const RunView& runs;
  int64_t run, end, number = 0;
  int32_t next = 0;

  Walk(const RunView& runs_, int64_t relation, int64_t row) : runs(runs_) {
    const int64_t* indptr = runs.indptr + relation * (runs.rows + 1) + row;
    run = indptr[0];
    end = indptr[1];
    if constexpr (Counted) number = runs.before[row];
    if (run < end) next = runs.starts[run];
  }
  bool take(Batch<T>& batch) {
    if (run >= end) return false;
    if (!runs.stops) {
      batch.count = static_cast<int>(std::min<int64_t>(N, end - run));
      std::memcpy(batch.index, runs.starts + run, sizeof batch.index);  // N <= kAhead
      run += batch.count;
    } else if (runs.stops[run] - next > N) {
      for (int t = 0; t < N; ++t) batch.index[t] = next + t;
      next += N;
      batch.count = N;
    } else {
      batch.count = 0;
      while (run < end && batch.count < N) {
        batch.index[batch.count++] = next++;
        if (next == runs.stops[run] && ++run < end) next = runs.starts[run];
      }
    }
    for (int t = batch.count; t < N; ++t) batch.index[t] = batch.index[batch.count - 1];
    if constexpr (Counted) {
      batch.first = number;
      number += batch.count;
    }
    return true;
  }
  // Single indices are scattered: the rows of the edges after the next ones (of this row or another) are fetched early.
  // Long runs are left to the hardware.
  template <class S>
  void prefetch(const S* base, int64_t stride, int64_t dim) const {
    if (runs.stops) return;
    for (int t = 0; t < N; ++t) {
      const S* row = base + runs.starts[run + N + t] * stride;  // 2 N <= kAhead
      for (int64_t d = 0; d < dim; d += 64 / static_cast<int64_t>(sizeof(S))) __builtin_prefetch(row + d);
    }
  }
};

template <class S, class T>
struct Gathered {
  const S* row[Batch<T>::N];

  Gathered(const S* base, int64_t stride, const Batch<T>& batch) {
    for (int t = 0; t < Batch<T>::N; ++t) row[t] = base + batch.index[t] * stride;
  }

  // Lane t is x . row[t]; x is padded with zeros.
  Vec<T> dots(const T* x, int64_t dim) const {
    constexpr int N = Batch<T>::N;
    Vec<T> products[N] = {};
    int64_t d = 0;
    for (; d + N <= dim; d += N) {
      const Vec<T> left = load(x + d);
#pragma GCC unroll 16
      for (int t = 0; t < N; ++t) products[t] += left * load_wide(row[t] + d);
    }
    if (d < dim) {
      const Vec<T> left = load(x + d);
      for (int t = 0; t < N; ++t) products[t] += left * load_tail(row[t] + d, static_cast<int>(dim - d));
    }
    return sums<T>(products);
  }

  // to = shrink * to + sum_t weight[t] row[t]
  void add(T* to, T shrink, Vec<T> weights, int64_t dim) const {
    constexpr int N = Batch<T>::N;
    T weight[N];
    store(weight, weights);
    int64_t d = 0;
    for (; d + N <= dim; d += N) {
      Vec<T> even = load(to + d) * shrink, odd = {};
#pragma GCC unroll 16
      for (int t = 0; t < N; t += 2) {
        even += weight[t] * load_wide(row[t] + d);
        odd += weight[t + 1] * load_wide(row[t + 1] + d);
      }
      store(to + d, even + odd);
    }
    if (d < dim) {
      Vec<T> total = load(to + d) * shrink;
      for (int t = 0; t < N; ++t) total += weight[t] * load_tail(row[t] + d, static_cast<int>(dim - d));
      store(to + d, total);
    }
  }
};

// Scores that are no products: lane t is sum_d vector[d] map(x[d] + row[t][d]), everything padded with zeros.
template <class S, class T>
__attribute__((noinline)) Vec<T> additive_scores(const Gathered<S, T>& rows, const T* x, const T* vector,
                                                 const ScoreMap<T>& map, int64_t dim) {
  constexpr int N = Batch<T>::N;
  return map.with_kind([&](auto kind) {
    Vec<T> products[N] = {};
    for (int64_t d = 0; d < dim; d += N) {
      const Vec<T> left = load(x + d), factor = load(vector + d);
      for (int t = 0; t < N; ++t) {
        const Vec<T> right = d + N <= dim ? load_wide(rows.row[t] + d) : load_tail(rows.row[t] + d, int(dim - d));
        products[t] += factor * map.template value<kind()>(left + right);
      }
    }
    return sums<T>(products);
  });
}
// Their derivatives: to[d] += vector[d] sum_t weight[t] map'(x[d] + row[t][d]), and by the vector where asked for.
template <class S, class T>
__attribute__((noinline)) void add_additive(const Gathered<S, T>& rows, const T* x, const T* vector,
                                            const ScoreMap<T>& map, Vec<T> weights, int64_t dim, T* to,
                                            T* by_vector) {
  constexpr int N = Batch<T>::N;
  T weight[N];
  store(weight, weights);
  map.with_kind([&](auto kind) {
    for (int64_t d = 0; d < dim; d += N) {
      const Vec<T> left = load(x + d);
      Vec<T> slopes = {}, values = {};
      for (int t = 0; t < N; ++t) {
        const Vec<T> right = d + N <= dim ? load_wide(rows.row[t] + d) : load_tail(rows.row[t] + d, int(dim - d));
        slopes += weight[t] * map.template slope<kind()>(left + right);
        if (by_vector) values += weight[t] * map.template value<kind()>(left + right);
      }
      store(to + d, load(to + d) + load(vector + d) * slopes);
      if (by_vector) store(by_vector + d, load(by_vector + d) + values);
    }
  });
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
