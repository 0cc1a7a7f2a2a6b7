// Additive scores of gathered rows, sum_d vector[d] map(x[d] + row[d]), and their derivatives.
#pragma once
#include "gather.h"
#include "score_map.h"

namespace erlangen::ERLANGEN_ISA {

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

}  // namespace erlangen::ERLANGEN_ISA
