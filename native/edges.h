// Attention over the edges of an irregular relation: one pass per query forward; backward one pass per query for dq and
// one per key, over the transposed relation, for dk and dv. Nothing is kept per edge.
#pragma once
#include <cmath>

#include "additive.h"
#include "arena.h"
#include "bias.h"
#include "dropout.h"
#include "online_softmax.h"
#include "pack.h"

namespace erlangen::ERLANGEN_ISA {

// Plain scores are products, with or without a Toeplitz bias; others pass through a map, have a vector, or a bias of
// edges. Plain ones pay for none of it.
template <class S, bool Plain>
struct Edges {
  using T = Accumulator<S>;
  static constexpr int N = kLanes<T>;

  const Problem& p;
  const Dropout dropout{p.dropout, p.seed};
  const ScoreMap<T> map{p};
  const T* bias = nullptr;    // reversed, per bias head
  const T* vector = nullptr;  // in units of log2, per vector head, rows padded with zeros; or null

  // What backward needs of a query, adjacent because they are gathered.
  struct Statistic {
    RowStatistics<T> softmax;
    T delta;  // grad . out
  };
  Statistic* statistics = nullptr;        // backward only
  bool statistics_heads_last = false;  // laid out as the rows they are gathered with

  int64_t flat(int64_t b, int64_t h, int64_t i) const { return (b * p.heads + h) * p.queries + i; }

  int64_t statistic_step() const { return statistics_heads_last ? p.heads : 1; }
  Statistic* statistics_of(int64_t b, int64_t h) const {
    return statistics + b * p.heads * p.queries + h * (statistics_heads_last ? 1 : p.queries);
  }

  int64_t vector_size() const { return padded<T>(p.dim) + 16; }
  const T* vector_of(int64_t h) const {
    return !Plain && vector ? vector + (p.vector_heads == 1 ? 0 : h) * vector_size() : nullptr;
  }
  const T* edge_bias_of(const void* data, int64_t h) const {
    return !Plain && p.per_edge ? static_cast<const T*>(data) + (p.bias_heads == 1 ? 0 : h) * p.edges : nullptr;
  }
  // What the gradient of a query or key is multiplied by at the end.
  T gradient_factor() const { return static_cast<T>(!Plain && vector ? kLn2 : p.scale); }

  // The edges of a query or a key, and what their scores are made of.
  struct Row {
    Walk<T, !Plain> walk;
    Gathered<S, T> scored, weighted;  // the rows at the other ends: keys or queries, and values or gradients
    const T *vectors, *edge_biases;
    const T* toeplitz;                // the bias of the other end x is toeplitz[step * x]; or null
    int64_t step;
  };
  Row of_query(int64_t b, int64_t h, int64_t i) const {
    const int64_t kv = p.kv_head(h);
    return {{p.runs, p.relation(b, h), i},
            {p.k.at<S>(b, kv, 0), p.k.row},
            {p.v.at<S>(b, kv, 0), p.v.row},
            vector_of(h),
            edge_bias_of(p.bias, h),
            bias ? ReversedBias<T>(p, bias, h).at(i, 0) : nullptr,
            -1};
  }
  Row of_key(int64_t b, int64_t h, int64_t j) const {
    return {{p.runs_t, p.relation(b, h), j},
            {p.q.at<S>(b, h, 0), p.q.row},
            {p.grad.at<S>(b, h, 0), p.grad.row},
            vector_of(h),
            edge_bias_of(p.bias_t, h),
            bias ? ReversedBias<T>(p, bias, h).at(0, j) : nullptr,
            1};
  }

  // Scores of a vector of edges, in units of log2; `slopes` takes the derivatives of a map of products. The rows scored
  // next are prefetched. Inline, like all that takes a Row: its walk is then kept in registers.
  __attribute__((always_inline)) Vec<T> scores(const Row& row, const Chunk<T>& now, int c, const T* own,
                                               T* slopes) const {
    const int32_t* index = now.index + c * N;
    Vec<T> x = products(row, index, row.walk.upcoming(c), own, slopes);
    if (!Plain && row.edge_biases)
      x += rounded(load_tail(row.edge_biases + now.first + c * N, std::min(N, now.count - c * N)) *
                   static_cast<T>(kLog2E));
    if (row.toeplitz)
      for (int t = 0; t < N; ++t) x[t] += row.toeplitz[row.step * index[t]];
    return x;
  }
  __attribute__((always_inline)) Vec<T> scaled(Vec<T> products) const { return rounded(products * score_factor<T>(p)); }
  __attribute__((always_inline)) Vec<T> products(const Row& row, const int32_t* index, const int32_t* next,
                                                 const T* own, T* slopes) const {
    // Products are scaled after they are summed: a score then has the same bits from the side of its query and from that
    // of its key, and none exceeds the maximum that the forward pass found.
    if (Plain || !(row.vectors || map.active())) return scaled(row.scored.dots(index, own, p.dim, next));
    if (row.vectors) {
      for (int t = 0; t < N; ++t) row.scored.prefetch_row(next, t, 0, p.dim);
      return additive_scores<S, T>(row.scored, index, own, row.vectors, map, p.dim);
    }
    T x[N];
    store(x, scaled(row.scored.dots(index, own, p.dim, next)));
    map.apply(x, slopes, N);
    return load(x);
  }
  // to += sum_t dscore[t] (d score[t] / d own). The rows weighted next are prefetched.
  __attribute__((always_inline)) void differentiate(const Row& row, const Chunk<T>& now, const T* own, T* dscore,
                                                    const T* slopes, T* to, T* by_vector) const {
    const int32_t* next = row.walk.upcoming(0);
    if (!Plain && row.vectors) {
      for (int t = 0; t < now.count; ++t) row.weighted.prefetch_row(next, t, 0, p.dim_v);
      return add_additive<S, T>(row.scored, now, own, row.vectors, map, dscore, p.dim, to, by_vector);
    }
    if (!Plain && map.active())
      for (int t = 0; t < now.count; ++t) dscore[t] = dscore[t] == 0 ? T{0} : dscore[t] * slopes[t];
    row.scored.add(now, dscore, T{1}, p.dim, to, next, row.weighted);
  }

  // The row that a thread most likely reads after row i.
  __attribute__((always_inline)) void prefetch_next(const View& x, int64_t rows, int64_t b, int64_t h, int64_t i,
                                                    int64_t dim) const {
    if (i + 1 < rows) prefetch<kL1>(x.at<S>(b, h, i + 1), dim);
  }

  Vec<T> dropout_factors(int64_t b, int64_t h, int64_t i, const int32_t* keys) const {
    T factor[N];
    const uint32_t key = dropout.row_key(b * p.heads + h, i);
    for (int t = 0; t < N; ++t) factor[t] = dropout.factor<T>(key, keys[t]);
    return load(factor);
  }

  void forward(int64_t b, int64_t h, int64_t i) const {
    Arena<T> arena = row_arena<T>(p, 2);
    T *q = arena.allocate(p.dim + N), *out = arena.allocate(p.dim_v + N);
    widen_row<S, T>(p.q.at<S>(b, h, i), p.dim, T{1}, q);
    std::fill_n(out, p.dim_v + N, T{0});
    prefetch_next(p.q, p.queries, b, h, i, p.dim);
    prefetch<kL1, true>(p.out.at<S>(b, h, i), p.dim_v);
    OnlineSoftmax<T, T> softmax;
    Row row = of_query(b, h, i);
    for (Chunk<T> now; row.walk.take(now);) {
      T weight[Chunk<T>::kSize];
      Vec<T> maxima = broadcast(-kInf<T>);
      for (int c = 0; c < now.vectors(); ++c) {
        Vec<T> x = scores(row, now, c, q, nullptr);
        x = now.valid(c) ? x : broadcast(-kInf<T>);
        maxima = max(x, maxima);
        store(weight + c * N, x);
      }
      const T rescale = softmax.rescale(std::max(softmax.maximum, largest<T>(maxima)));
      Vec<T> sums = {};
      for (int c = 0; c < now.vectors(); ++c) {
        Vec<T> w = softmax.weights(load(weight + c * N));
        sums += w;
        if (dropout.active) w *= dropout_factors(b, h, i, now.index + c * N);
        store(weight + c * N, w);
      }
      softmax.sum = softmax.sum * rescale + sum<T>(sums);
      row.weighted.add(now, weight, rescale, p.dim_v, out, row.walk.upcoming(0), row.weighted);
    }
    softmax.save(static_cast<T*>(p.lse), static_cast<T*>(p.stats), flat(b, h, i));
    narrow_row<S, T>(out, p.dim_v, softmax.inverse(), p.out.at<S>(b, h, i));
  }

  // `dbias` is that of the piece, or of the edges of the head; `dvector` that of the piece and the head.
  void backward_query(int64_t b, int64_t h, int64_t i, T* dbias, T* dvector) const {
    const int64_t at = flat(b, h, i);
    Arena<T> arena = row_arena<T>(p, 3);
    T *q = arena.allocate(p.dim + N), *grad = arena.allocate(p.dim_v + N), *dq = arena.allocate(p.dim + N);
    widen_row<S, T>(p.q.at<S>(b, h, i), p.dim, T{1}, q);
    widen_row<S, T>(p.grad.at<S>(b, h, i), p.dim_v, T{1}, grad);
    std::fill_n(dq, p.dim + N, T{0});
    T delta = dot(grad, p.out.at<S>(b, h, i), p.dim_v);
    if (p.grad_lse) delta -= static_cast<const T*>(p.grad_lse)[at];
    const RowStatistics<T> softmax(static_cast<const T*>(p.stats) + 2 * at);
    statistics_of(b, h)[i * statistic_step()] = {softmax, delta};
    prefetch_next(p.q, p.queries, b, h, i, p.dim);
    prefetch_next(p.grad, p.queries, b, h, i, p.dim_v);
    prefetch_next(p.out, p.queries, b, h, i, p.dim_v);
    prefetch<kL1, true>(p.dq.at<S>(b, h, i), p.dim);

    Row row = of_query(b, h, i);
    for (Chunk<T> now; row.walk.take(now);) {
      T dscore[Chunk<T>::kSize], slopes[Chunk<T>::kSize];
      for (int c = 0; c < now.vectors(); ++c) {
        const Vec<T> score = scores(row, now, c, q, slopes + c * N);
        const Vec<T> weight = weight_of<T>(score - softmax.maximum, broadcast(softmax.inverse));
        Vec<T> dweight = row.weighted.dots(now.index + c * N, grad, p.dim_v);
        if (dropout.active) dweight *= dropout_factors(b, h, i, now.index + c * N);
        store(dscore + c * N, weight * (dweight - delta));
      }
      if (dbias)
        for (int t = 0; t < now.count; ++t)
          dbias[!Plain && row.edge_biases ? now.first + t : i - now.index[t] + p.keys - 1] += dscore[t];
      differentiate(row, now, q, dscore, slopes, dq, dvector);
    }
    narrow_row<S, T>(dq, p.dim, gradient_factor(), p.dq.at<S>(b, h, i));
  }

  void backward_key(int64_t b, int64_t kv, int64_t j) const {
    const int64_t group = p.heads / p.kv_heads, step = statistic_step();
    Arena<T> arena = row_arena<T>(p, 4);
    T *k = arena.allocate(p.dim + N), *v = arena.allocate(p.dim_v + N);
    T *dk = arena.allocate(p.dim + N), *dv = arena.allocate(p.dim_v + N);
    widen_row<S, T>(p.k.at<S>(b, kv, j), p.dim, T{1}, k);
    widen_row<S, T>(p.v.at<S>(b, kv, j), p.dim_v, T{1}, v);
    std::fill_n(dk, p.dim + N, T{0});
    std::fill_n(dv, p.dim_v + N, T{0});
    prefetch_next(p.k, p.keys, b, kv, j, p.dim);
    prefetch_next(p.v, p.keys, b, kv, j, p.dim_v);
    prefetch<kL1, true>(p.dk.at<S>(b, kv, j), p.dim);
    prefetch<kL1, true>(p.dv.at<S>(b, kv, j), p.dim_v);
    for (int64_t h = kv * group; h < (kv + 1) * group; ++h) {
      Row row = of_key(b, h, j);
      const Statistic* queries = statistics_of(b, h);
      for (Chunk<T> now; row.walk.take(now);) {
        T weight[Chunk<T>::kSize], dscore[Chunk<T>::kSize], slopes[Chunk<T>::kSize];
        for (int c = 0; c < now.vectors(); ++c) {
          const int32_t* index = now.index + c * N;
          Vec<T> maximum = {}, inverse = {}, delta = {};
          for (int t = 0; t < N; ++t) {
            const Statistic& one = queries[index[t] * step];
            maximum[t] = one.softmax.maximum;
            inverse[t] = one.softmax.inverse;
            delta[t] = one.delta;
          }
          const Vec<T> w = weight_of<T>(scores(row, now, c, k, slopes + c * N) - maximum, inverse);
          Vec<T> dweight = row.weighted.dots(index, v, p.dim_v), kept = w;
          if (dropout.active) {
            Vec<T> factor = {};
            for (int t = 0; t < N; ++t)
              factor[t] = dropout.factor<T>(dropout.row_key(b * p.heads + h, index[t]), j);
            dweight *= factor;
            kept *= factor;
          }
          store(weight + c * N, kept);
          store(dscore + c * N, w * (dweight - delta));
        }
        row.weighted.add(now, weight, T{1}, p.dim_v, dv, nullptr, row.weighted);
        differentiate(row, now, k, dscore, slopes, dk, nullptr);
      }
    }
    narrow_row<S, T>(dk, p.dim, gradient_factor(), p.dk.at<S>(b, kv, j));
    narrow_row<S, T>(dv, p.dim_v, T{1}, p.dv.at<S>(b, kv, j));
  }
};

}  // namespace erlangen::ERLANGEN_ISA
