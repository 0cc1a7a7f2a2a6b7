// Attention over the edges of an irregular relation: one pass per query forward; backward one pass per query for dq and
// one per key, over the transposed relation, for dk and dv. Nothing is kept per edge.
#pragma once
#include "edge_row.h"

namespace erlangen::ERLANGEN_ISA {

// Plain scores are products, with or without a bias by places; others pass through a map, have a vector, or a bias of
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

  // What backward needs of a query, side by side because they are gathered.
  struct Statistic {
    T highest, inverse, delta;  // its maximum, +inf on an empty row; 1 / its sum, 0 there; grad . out
  };
  Statistic* statistics = nullptr;    // backward only
  bool statistics_together = false;  // those of the heads of a query, as their rows are

  int64_t flat(int64_t b, int64_t h, int64_t i) const { return (b * p.heads + h) * p.queries + i; }

  int64_t statistic_step() const { return statistics_together ? p.heads : 1; }
  Statistic* statistics_of(int64_t b, int64_t h) const {
    return statistics + b * p.heads * p.queries + h * (statistics_together ? 1 : p.queries);
  }

  ReversedBias<T> bias_of(int64_t h) const {
    return {bias + (p.bias_heads == 1 ? 0 : h) * (p.queries + p.keys + kTile), p.keys};
  }
  int64_t vector_size() const { return padded<T>(p.dim) + 16; }
  const T* vector_of(int64_t h) const {
    return !Plain && vector ? vector + (p.vector_heads == 1 ? 0 : h) * vector_size() : nullptr;
  }
  const T* edge_bias_of(const void* data, int64_t h) const {
    return !Plain && p.per_edge ? static_cast<const T*>(data) + (p.bias_heads == 1 ? 0 : h) * p.edges : nullptr;
  }
  // What the derivative by it is multiplied by at the end.
  T gradient_factor() const { return static_cast<T>(!Plain && vector ? kLn2 : p.scale); }

  // The edges of one row and what their scores are made of.
  struct Row {
    Walk<T, !Plain> walk;
    Gathered<S, T> met, read;   // the rows at the other ends: products with `met` are scores, `read` is weighted
    const T *vectors, *biases;  // biases of edges
    const T* places;            // a bias by places: that of the other end x is places[step * x]; or null
    int64_t step;
  };
  Row of_query(int64_t b, int64_t h, int64_t i) const {
    const int64_t kv = p.kv_head(h);
    return {{p.runs, p.relation(b, h), i},
            {row_of<S>(p.k, b, kv, 0), p.k.row},
            {row_of<S>(p.v, b, kv, 0), p.v.row},
            vector_of(h),
            edge_bias_of(p.bias, h),
            bias ? bias_of(h).at(i, 0) : nullptr,
            -1};
  }
  Row of_key(int64_t b, int64_t h, int64_t j) const {
    return {{p.runs_t, p.relation(b, h), j},
            {row_of<S>(p.q, b, h, 0), p.q.row},
            {row_of<S>(p.grad, b, h, 0), p.grad.row},
            vector_of(h),
            edge_bias_of(p.bias_t, h),
            bias ? bias_of(h).at(0, j) : nullptr,
            1};
  }

  // Scores of a vector of edges, in units of log2; `slopes` takes the derivatives of a map of products. Meanwhile the
  // rows met by the next edges are asked for. Inline, like all that takes a Row: its walk is then kept in registers.
  __attribute__((always_inline)) Vec<T> scores(const Row& row, const Chunk<T>& now, int c, const T* own,
                                               T* slopes) const {
    const int32_t* index = now.index + c * N;
    Vec<T> x = products(row, index, row.walk.following(c), own, slopes);
    if (!Plain && row.biases)
      x += load_tail(row.biases + now.first + c * N, std::min(N, now.count - c * N)) * static_cast<T>(kLog2E);
    if (row.places)
      for (int t = 0; t < N; ++t) x[t] += row.places[row.step * index[t]];
    return x;
  }
  __attribute__((always_inline)) Vec<T> scaled(Vec<T> products) const { return rounded(products * score_factor<T>(p)); }
  __attribute__((always_inline)) Vec<T> products(const Row& row, const int32_t* index, const int32_t* next,
                                                 const T* own, T* slopes) const {
    // Products are scaled after they are summed: a score then has the same bits from the side of its query and from that
    // of its key, and none exceeds the maximum that the forward pass found.
    if (Plain || !(row.vectors || map.active())) return scaled(row.met.dots(index, own, p.dim, next));
    if (row.vectors) {
      for (int t = 0; t < N; ++t) row.met.ask(next, t, 0, p.dim);
      return additive_scores<S, T>(row.met, index, own, row.vectors, map, p.dim);
    }
    T x[N];
    store(x, scaled(row.met.dots(index, own, p.dim, next)));
    map.apply(x, slopes, N);
    return load(x);
  }
  // to += sum_t dscore[t] (d score[t] / d own). Meanwhile the rows read by the next edges are asked for.
  __attribute__((always_inline)) void differentiate(const Row& row, const Chunk<T>& now, const T* own, T* dscore,
                                                    const T* slopes, T* to, T* by_vector) const {
    const int32_t* next = row.walk.following(0);
    if (!Plain && row.vectors) {
      for (int t = 0; t < now.count; ++t) row.read.ask(next, t, 0, p.dim_v);
      return add_additive<S, T>(row.met, now, own, row.vectors, map, dscore, p.dim, to, by_vector);
    }
    if (!Plain && map.active())
      for (int t = 0; t < now.count; ++t) dscore[t] = dscore[t] == 0 ? T{0} : dscore[t] * slopes[t];
    row.met.add(now, dscore, T{1}, p.dim, to, next, row.read);
  }

  // Room for `rows` padded rows of this thread.
  Carver<T> room(int rows) const {
    const int64_t width = padded<T>(std::max(p.dim, p.dim_v)) + 16;
    return {static_cast<T*>(scratch(1, sizeof(T) * rows * width))};
  }

  // Asks for the row that a thread most likely reads after row i, and for one that it writes at the end of row i.
  __attribute__((always_inline)) void ask_next(const View& x, int64_t rows, int64_t b, int64_t h, int64_t i,
                                               int64_t dim) const {
    if (i + 1 < rows) ask_for<3>(row_of<S>(x, b, h, i + 1), dim);
  }
  __attribute__((always_inline)) void ask_result(const View& x, int64_t b, int64_t h, int64_t i, int64_t dim) const {
    ask_for<3, true>(row_of<S>(x, b, h, i), dim);
  }

  Vec<T> dropout_factors(int64_t b, int64_t h, int64_t i, const int32_t* keys) const {
    T factor[N];
    const uint32_t key = dropout.row_key(b * p.heads + h, i);
    for (int t = 0; t < N; ++t) factor[t] = dropout.factor<T>(key, keys[t]);
    return load(factor);
  }

  void forward(int64_t b, int64_t h, int64_t i) const {
    Carver<T> carve = room(2);
    T *q = carve.take(p.dim + N), *out = carve.take(p.dim_v + N);
    widen_row<S, T>(row_of<S>(p.q, b, h, i), p.dim, T{1}, q);
    std::fill_n(out, p.dim_v + N, T{0});
    ask_next(p.q, p.queries, b, h, i, p.dim);
    ask_result(p.out, b, h, i, p.dim_v);
    T highest = -kInf<T>, total = 0;
    Row row = of_query(b, h, i);
    for (Chunk<T> now; row.walk.take(now);) {
      T weight[Chunk<T>::kSize];
      Vec<T> tops = broadcast(-kInf<T>);
      for (int c = 0; c < now.vectors(); ++c) {
        Vec<T> x = scores(row, now, c, q, nullptr);
        x = now.valid(c) ? x : broadcast(-kInf<T>);
        tops = max(x, tops);
        store(weight + c * N, x);
      }
      const T top = std::max(highest, maximum<T>(tops));
      const T base = top == -kInf<T> ? T{0} : top;
      const T shrink = exp2(broadcast(highest - base))[0];
      highest = top;
      Vec<T> totals = {};
      for (int c = 0; c < now.vectors(); ++c) {
        Vec<T> w = exp2(load(weight + c * N) - base);
        totals += w;
        if (dropout.active) w *= dropout_factors(b, h, i, now.index + c * N);
        store(weight + c * N, w);
      }
      total = total * shrink + sum<T>(totals);
      row.read.add(now, weight, shrink, p.dim_v, out, row.walk.following(0), row.read);
    }
    const int64_t at = flat(b, h, i);
    if (p.stats) {
      static_cast<T*>(p.stats)[2 * at] = highest;
      static_cast<T*>(p.stats)[2 * at + 1] = total;
    }
    static_cast<T*>(p.lse)[at] =
        total == 0 ? -kInf<T> : highest * static_cast<T>(kLn2) + std::log(total);
    narrow_row<S, T>(out, p.dim_v, total == 0 ? T{0} : 1 / total, mutable_row_of<S>(p.out, b, h, i));
  }

  // `dbias` is that of the piece, or of the edges of the head; `dvector` that of the piece and the head.
  void backward_query(int64_t b, int64_t h, int64_t i, T* dbias, T* dvector) const {
    const int64_t at = flat(b, h, i);
    Carver<T> carve = room(3);
    T *q = carve.take(p.dim + N), *grad = carve.take(p.dim_v + N), *dq = carve.take(p.dim + N);
    widen_row<S, T>(row_of<S>(p.q, b, h, i), p.dim, T{1}, q);
    widen_row<S, T>(row_of<S>(p.grad, b, h, i), p.dim_v, T{1}, grad);
    std::fill_n(dq, p.dim + N, T{0});
    T delta = dot(grad, row_of<S>(p.out, b, h, i), p.dim_v);
    if (p.grad_lse) delta -= static_cast<const T*>(p.grad_lse)[at];
    const T *stats = static_cast<const T*>(p.stats) + 2 * at, total = stats[1];
    const T highest = total == 0 ? kInf<T> : stats[0], inverse = total == 0 ? T{0} : 1 / total;
    statistics_of(b, h)[i * statistic_step()] = {highest, inverse, delta};
    ask_next(p.q, p.queries, b, h, i, p.dim);
    ask_next(p.grad, p.queries, b, h, i, p.dim_v);
    ask_next(p.out, p.queries, b, h, i, p.dim_v);
    ask_result(p.dq, b, h, i, p.dim);

    Row row = of_query(b, h, i);
    for (Chunk<T> now; row.walk.take(now);) {
      T dscore[Chunk<T>::kSize], slopes[Chunk<T>::kSize];
      for (int c = 0; c < now.vectors(); ++c) {
        const Vec<T> weight = weight_of<T>(scores(row, now, c, q, slopes + c * N) - highest, broadcast(inverse));
        Vec<T> dweight = row.read.dots(now.index + c * N, grad, p.dim_v);
        if (dropout.active) dweight *= dropout_factors(b, h, i, now.index + c * N);
        store(dscore + c * N, weight * (dweight - delta));
      }
      if (dbias)
        for (int t = 0; t < now.count; ++t)
          dbias[!Plain && row.biases ? now.first + t : i - now.index[t] + p.keys - 1] += dscore[t];
      differentiate(row, now, q, dscore, slopes, dq, dvector);
    }
    narrow_row<S, T>(dq, p.dim, gradient_factor(), mutable_row_of<S>(p.dq, b, h, i));
  }

  void backward_key(int64_t b, int64_t kv, int64_t j) const {
    const int64_t group = p.heads / p.kv_heads, step = statistic_step();
    Carver<T> carve = room(4);
    T *k = carve.take(p.dim + N), *v = carve.take(p.dim_v + N);
    T *dk = carve.take(p.dim + N), *dv = carve.take(p.dim_v + N);
    widen_row<S, T>(row_of<S>(p.k, b, kv, j), p.dim, T{1}, k);
    widen_row<S, T>(row_of<S>(p.v, b, kv, j), p.dim_v, T{1}, v);
    std::fill_n(dk, p.dim + N, T{0});
    std::fill_n(dv, p.dim_v + N, T{0});
    ask_next(p.k, p.keys, b, kv, j, p.dim);
    ask_next(p.v, p.keys, b, kv, j, p.dim_v);
    ask_result(p.dk, b, kv, j, p.dim);
    ask_result(p.dv, b, kv, j, p.dim_v);
    for (int64_t h = kv * group; h < (kv + 1) * group; ++h) {
      Row row = of_key(b, h, j);
      const Statistic* queries = statistics_of(b, h);
      for (Chunk<T> now; row.walk.take(now);) {
        T weight[Chunk<T>::kSize], dscore[Chunk<T>::kSize], slopes[Chunk<T>::kSize];
        for (int c = 0; c < now.vectors(); ++c) {
          const int32_t* index = now.index + c * N;
          Vec<T> highest = {}, inverse = {}, delta = {};
          for (int t = 0; t < N; ++t) {
            const Statistic& one = queries[index[t] * step];
            highest[t] = one.highest;
            inverse[t] = one.inverse;
            delta[t] = one.delta;
          }
          const Vec<T> w = weight_of<T>(scores(row, now, c, k, slopes + c * N) - highest, inverse);
          Vec<T> dweight = row.read.dots(index, v, p.dim_v), kept = w;
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
        row.read.add(now, weight, T{1}, p.dim_v, dv, nullptr, row.read);
        differentiate(row, now, k, dscore, slopes, dk, nullptr);
      }
    }
    narrow_row<S, T>(dk, p.dim, gradient_factor(), mutable_row_of<S>(p.dk, b, kv, j));
    narrow_row<S, T>(dv, p.dim_v, T{1}, mutable_row_of<S>(p.dv, b, kv, j));
  }
};

}  // namespace erlangen::ERLANGEN_ISA
