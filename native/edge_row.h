// One row of an irregular relation: its indices a few vectors at a time, the products of a vector with the gathered
// rows, and weighted sums of them. Lanes are features while reading, and edges for the softmax.
#pragma once
#include "tile_block.h"

namespace erlangen::ERLANGEN_ISA {

// Some edges of a row: few enough for the rows they gather to stay in the nearest cache until they are read again.
template <class T>
struct Chunk {
  static constexpr int N = kLanes<T>, kSize = 32;
  int32_t index[kSize];  // up to a whole number of vectors the last edge is repeated: it was to be read anyway
  int count = 0;
  int64_t first = 0;     // the number of its first edge, in relation 0

  int vectors() const { return (count + N - 1) / N; }
  // The lanes of a vector that hold an edge.
  Bits<T> valid(int vector) const {
    const int left = count - vector * N;
    return lanes_of<T>(left >= N ? ~uint64_t{0} : (uint64_t{1} << left) - 1);
  }
};

// Walks over the indices of a row, and counts them where edges have numbers.
template <class T, bool Counted>
struct Walk {
  static constexpr int kSize = Chunk<T>::kSize;
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
  bool take(Chunk<T>& chunk) {
    if (run >= end) return false;
    int count = 0;
    if (!runs.stops) {
      count = static_cast<int>(std::min<int64_t>(kSize, end - run));
      std::memcpy(chunk.index, runs.starts + run, sizeof chunk.index);  // kSize <= kAhead
      run += count;
    } else {
      while (run < end && count < kSize) {
        const int part = std::min(kSize - count, runs.stops[run] - next);
        for (int t = 0; t < part; ++t) chunk.index[count + t] = next + t;
        count += part;
        next += part;
        if (next == runs.stops[run] && ++run < end) next = runs.starts[run];
      }
    }
    chunk.count = count;
    for (; count % kLanes<T> != 0; ++count) chunk.index[count] = chunk.index[chunk.count - 1];
    if constexpr (Counted) {
      chunk.first = number;
      number += chunk.count;
    }
    return true;
  }
  // A vector of the edges after those taken, of this row or another; null where runs are long, as the hardware then
  // sees by itself what is read next.
  const int32_t* following(int vector) const {
    return runs.stops ? nullptr : runs.starts + run + vector * kLanes<T>;  // 2 kSize <= kAhead
  }
};

// Rows of a tensor, picked by index.
template <class S, class T>
struct Gathered {
  static constexpr int N = kLanes<T>;
  const S* base;
  int64_t stride;

  const S* row(int32_t index) const { return base + index * stride; }

  // Asks for row(index[t]), or a part of it, before it is read; for nothing where the index is null.
  __attribute__((always_inline)) void ask(const int32_t* index, int t, int64_t d, int64_t count) const {
    if (index) ask_for<3>(row(index[t]) + d, count);
  }

  // Lane t is x . row(index[t]); x is padded with zeros. Meanwhile it asks for row(next[t]), line by line between the
  // products: many lines at once would wait for one another, and the products for them.
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
        ask(next, t, d, 1);
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) products[t] += load(x + d + v * N) * load_wide(rows[t] + d + v * N);
      }
    return sums<T>(products);
  }

  // to = shrink * to + sum_t weight[t] row(index[t]). Meanwhile it asks for the rows next[t] of `coming`.
  void add(const Chunk<T>& chunk, const T* weight, T shrink, int64_t dim, T* to, const int32_t* next,
           const Gathered& coming) const {
    if (dim <= kFew) return add_few(chunk, weight, shrink, dim, to, next, coming);
    int64_t d = 0;
    for (; d + 8 * N <= dim; d += 8 * N) add_vectors<8>(chunk, weight, shrink, d, to, next, coming);
    if (d + 4 * N <= dim) {
      add_vectors<4>(chunk, weight, shrink, d, to, next, coming);
      d += 4 * N;
    }
    for (; d + N <= dim; d += N) add_vectors<1>(chunk, weight, shrink, d, to, next, coming);
    if (d < dim) {
      Vec<T> total = load(to + d) * shrink;
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
    for (int t = 0; t < N; ++t) ask(next, t, 0, dim);
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
  void add_few(const Chunk<T>& chunk, const T* weight, T shrink, int64_t dim, T* to, const int32_t* next,
               const Gathered& coming) const {
    for (int t = 0; t < chunk.count; ++t) coming.ask(next, t, 0, dim);
    for (int64_t d = 0; d < dim; ++d) {
      T even = to[d] * shrink, odd = 0;
      for (int t = 0; t < chunk.count; t += 2) {
        even += weight[t] * static_cast<T>(widen(row(chunk.index[t])[d]));
        if (t + 1 < chunk.count) odd += weight[t + 1] * static_cast<T>(widen(row(chunk.index[t + 1])[d]));
      }
      to[d] = even + odd;
    }
  }

  // The same for `Count` vectors of features, which stay in registers: two sums each, where there are registers.
  template <int Count>
  void add_vectors(const Chunk<T>& chunk, const T* weight, T shrink, int64_t d, T* to, const int32_t* next,
                   const Gathered& coming) const {
    constexpr bool two = Count < 8;
    Vec<T> even[Count], odd[Count];
#pragma GCC unroll 8
    for (int c = 0; c < Count; ++c) {
      even[c] = load(to + d + c * N) * shrink;
      odd[c] = Vec<T>{};
    }
    int t = 0;
    for (; two && t + 2 <= chunk.count; t += 2) {
      coming.ask(next, t, d, Count * N);
      coming.ask(next, t + 1, d, Count * N);
      const S *left = row(chunk.index[t]) + d, *right = row(chunk.index[t + 1]) + d;
#pragma GCC unroll 8
      for (int c = 0; c < Count; ++c) {
        even[c] += weight[t] * load_wide(left + c * N);
        odd[c] += weight[t + 1] * load_wide(right + c * N);
      }
    }
    for (; t < chunk.count; ++t) {
      coming.ask(next, t, d, Count * N);
      const S* one = row(chunk.index[t]) + d;
#pragma GCC unroll 8
      for (int c = 0; c < Count; ++c) even[c] += weight[t] * load_wide(one + c * N);
    }
#pragma GCC unroll 8
    for (int c = 0; c < Count; ++c) store(to + d + c * N, two ? even[c] + odd[c] : even[c]);
  }
};

// Scores that are no products: lane t is sum_d vector[d] map(x[d] + row[t][d]), everything padded with zeros.
template <class S, class T>
__attribute__((noinline)) Vec<T> additive_scores(const Gathered<S, T>& rows, const int32_t* index, const T* x,
                                                 const T* vector, const ScoreMap<T>& map, int64_t dim) {
  constexpr int N = kLanes<T>;
  return map.with_kind([&](auto kind) {
    Vec<T> products[N] = {};
    for (int64_t d = 0; d < dim; d += N) {
      const Vec<T> left = load(x + d), factor = load(vector + d);
      for (int t = 0; t < N; ++t) {
        const S* row = rows.row(index[t]) + d;
        const Vec<T> right = d + N <= dim ? load_wide(row) : load_tail(row, static_cast<int>(dim - d));
        products[t] += factor * map.template value<kind()>(left + right);
      }
    }
    return sums<T>(products);
  });
}
// Their derivatives: to[d] += vector[d] sum_t weight[t] map'(x[d] + row[t][d]), and by the vector where asked for.
template <class S, class T>
__attribute__((noinline)) void add_additive(const Gathered<S, T>& rows, const Chunk<T>& chunk, const T* x,
                                            const T* vector, const ScoreMap<T>& map, const T* weight, int64_t dim,
                                            T* to, T* by_vector) {
  constexpr int N = kLanes<T>;
  map.with_kind([&](auto kind) {
    for (int64_t d = 0; d < dim; d += N) {
      const Vec<T> left = load(x + d);
      Vec<T> slopes = {}, values = {};
      for (int t = 0; t < chunk.count; ++t) {
        const S* row = rows.row(chunk.index[t]) + d;
        const Vec<T> right = d + N <= dim ? load_wide(row) : load_tail(row, static_cast<int>(dim - d));
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
