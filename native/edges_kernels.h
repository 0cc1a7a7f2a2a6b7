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
  T* lse2 = nullptr;          // (batch, heads, queries), in units of log2, +inf on empty rows; backward only
  T* delta = nullptr;         // (batch, heads, queries); backward only

  int64_t flat(int64_t b, int64_t h, int64_t i) const { return (b * p.heads + h) * p.queries + i; }

  ReversedBias<T> bias_of(int64_t h) const {
    const int64_t row = p.queries + p.keys + kTile;
    return {bias ? bias + (p.bias_heads == 1 ? 0 : h) * row : nullptr, p.keys};
  }

  int64_t vector_size() const { return padded<T>(p.dim) + 16; }
  const T* vector_of(int64_t h) const {
    return !Plain && vector ? vector + (p.vector_heads == 1 ? 0 : h) * vector_size() : nullptr;
  }
  const T* edge_bias_of(const void* data, int64_t h) const {
    return !Plain && p.per_edge ? static_cast<const T*>(data) + (p.bias_heads == 1 ? 0 : h) * p.edges : nullptr;
  }
  // What the own vector of a row is multiplied by before it meets the others.
  T own_factor() const { return !Plain && vector ? T{1} : score_factor<T>(p); }
  // What the derivative by it is multiplied by at the end.
  T gradient_factor() const { return static_cast<T>(!Plain && vector ? kLn2 : p.scale); }

  // Scores in units of log2, without a bias, of the edges at `index`; `slopes` takes the derivatives of a map of
  // products.
  Vec<T> scores(const Gathered<S, T>& rows, const int32_t* index, const T* own, const T* factors, T* slopes) const {
    if (Plain || !(factors || map.active())) return rows.dots(index, own, p.dim);
    if (factors) return additive_scores<S, T>(rows, index, own, factors, map, p.dim);
    T x[N];
    store(x, rows.dots(index, own, p.dim));
    map.apply(x, slopes, N);
    return load(x);
  }
  // to += sum_t dscore[t] (d score[t] / d own)
  void differentiate(const Gathered<S, T>& rows, const Chunk<T>& now, const T* own, const T* factors, T* dscore,
                     const T* slopes, T* to, T* by_vector) const {
    if (!Plain && factors) return add_additive<S, T>(rows, now, own, factors, map, dscore, p.dim, to, by_vector);
    if (!Plain && map.active())
      for (int t = 0; t < now.count; ++t) dscore[t] = dscore[t] == 0 ? T{0} : dscore[t] * slopes[t];
    rows.add(now, dscore, T{1}, p.dim, to);
  }
  static Vec<T> load_biases(const T* data, const Chunk<T>& now, int at) {
    return load_tail(data + now.first + at, std::min(N, now.count - at)) * static_cast<T>(kLog2E);
  }

  // Room for `rows` padded rows of this thread.
  Carver<T> room(int rows) const {
    const int64_t width = padded<T>(std::max(p.dim, p.dim_v)) + 16;
    return {static_cast<T*>(scratch(1, sizeof(T) * rows * width))};
  }

  Vec<T> dropout_factors(int64_t b, int64_t h, int64_t i, const int32_t* keys) const {
    T factor[N];
    const uint32_t key = dropout.row_key(b * p.heads + h, i);
    for (int t = 0; t < N; ++t) factor[t] = dropout.factor<T>(key, keys[t]);
    return load(factor);
  }

  void forward(int64_t b, int64_t h, int64_t i) const {
    const int64_t kv = p.kv_head(h);
    const ReversedBias<T> reversed = bias_of(h);
    const T *vectors = vector_of(h), *biases = edge_bias_of(p.bias, h);
    Carver<T> carve = room(2);
    T *q = carve.take(p.dim + N), *out = carve.take(p.dim_v + N);
    widen_row<S, T>(row_of<S>(p.q, b, h, i), p.dim, own_factor(), q);
    std::fill_n(out, p.dim_v + N, T{0});
    T highest = -kInf<T>, total = 0;
    Walk<T, !Plain> walk(p.runs, p.relation(b, h), i);
    const Gathered<S, T> keys{row_of<S>(p.k, b, kv, 0), p.k.row}, values{row_of<S>(p.v, b, kv, 0), p.v.row};
    for (Chunk<T> now; walk.take(now);) {
      T weight[Chunk<T>::kSize];
      Vec<T> tops = broadcast(-kInf<T>);
      for (int c = 0; c < now.vectors(); ++c) {
        const int32_t* index = now.index + c * N;
        keys.prefetch(walk.following(c), p.dim);
        values.prefetch(walk.following(c), p.dim_v);
        Vec<T> x = scores(keys, index, q, vectors, nullptr);
        if (!Plain && biases) x += load_biases(biases, now, c * N);
        if (reversed.data)
          for (int t = 0; t < N; ++t) x[t] += *reversed.at(i, index[t]);
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
      values.add(now, weight, shrink, p.dim_v, out);
    }
    static_cast<T*>(p.lse)[flat(b, h, i)] =
        total == 0 ? -kInf<T> : highest * static_cast<T>(kLn2) + std::log(total);
    narrow_row<S, T>(out, p.dim_v, total == 0 ? T{0} : 1 / total, mutable_row_of<S>(p.out, b, h, i));
  }

  // `dbias` is that of the piece, or of the edges of the head; `dvector` that of the piece and the head.
  void backward_query(int64_t b, int64_t h, int64_t i, T* dbias, T* dvector) const {
    const int64_t kv = p.kv_head(h), at = flat(b, h, i);
    const ReversedBias<T> reversed = bias_of(h);
    const T *vectors = vector_of(h), *biases = edge_bias_of(p.bias, h);
    Carver<T> carve = room(3);
    T *q = carve.take(p.dim + N), *grad = carve.take(p.dim_v + N), *dq = carve.take(p.dim + N);
    widen_row<S, T>(row_of<S>(p.q, b, h, i), p.dim, own_factor(), q);
    widen_row<S, T>(row_of<S>(p.grad, b, h, i), p.dim_v, T{1}, grad);
    std::fill_n(dq, p.dim + N, T{0});
    delta[at] = dot(grad, row_of<S>(p.out, b, h, i), p.dim_v);
    if (p.grad_lse) delta[at] -= static_cast<const T*>(p.grad_lse)[at];
    const T lse = static_cast<const T*>(p.lse)[at];
    lse2[at] = lse == -kInf<T> ? kInf<T> : lse * static_cast<T>(kLog2E);

    Walk<T, !Plain> walk(p.runs, p.relation(b, h), i);
    const Gathered<S, T> keys{row_of<S>(p.k, b, kv, 0), p.k.row}, values{row_of<S>(p.v, b, kv, 0), p.v.row};
    for (Chunk<T> now; walk.take(now);) {
      T dscore[Chunk<T>::kSize], slopes[Chunk<T>::kSize];
      for (int c = 0; c < now.vectors(); ++c) {
        const int32_t* index = now.index + c * N;
        keys.prefetch(walk.following(c), p.dim);
        values.prefetch(walk.following(c), p.dim_v);
        Vec<T> x = scores(keys, index, q, vectors, slopes + c * N);
        if (!Plain && biases) x += load_biases(biases, now, c * N);
        if (reversed.data)
          for (int t = 0; t < N; ++t) x[t] += *reversed.at(i, index[t]);
        const Vec<T> weight = exp2(x - lse2[at]);
        Vec<T> dweight = values.dots(index, grad, p.dim_v);
        if (dropout.active) dweight *= dropout_factors(b, h, i, index);
        store(dscore + c * N, weight * (dweight - delta[at]));
      }
      if (dbias)
        for (int t = 0; t < now.count; ++t)
          dbias[!Plain && biases ? now.first + t : i - now.index[t] + p.keys - 1] += dscore[t];
      differentiate(keys, now, q, vectors, dscore, slopes, dq, dvector);
    }
    narrow_row<S, T>(dq, p.dim, gradient_factor(), mutable_row_of<S>(p.dq, b, h, i));
  }

  void backward_key(int64_t b, int64_t kv, int64_t j) const {
    const int64_t group = p.heads / p.kv_heads;
    Carver<T> carve = room(4);
    T *k = carve.take(p.dim + N), *v = carve.take(p.dim_v + N);
    T *dk = carve.take(p.dim + N), *dv = carve.take(p.dim_v + N);
    widen_row<S, T>(row_of<S>(p.k, b, kv, j), p.dim, own_factor(), k);
    widen_row<S, T>(row_of<S>(p.v, b, kv, j), p.dim_v, T{1}, v);
    std::fill_n(dk, p.dim + N, T{0});
    std::fill_n(dv, p.dim_v + N, T{0});
    for (int64_t h = kv * group; h < (kv + 1) * group; ++h) {
      const ReversedBias<T> reversed = bias_of(h);
      const T *vectors = vector_of(h), *biases = edge_bias_of(p.bias_t, h);
      Walk<T, !Plain> walk(p.runs_t, p.relation(b, h), j);
      const Gathered<S, T> queries{row_of<S>(p.q, b, h, 0), p.q.row}, grads{row_of<S>(p.grad, b, h, 0), p.grad.row};
      const T *lse_of = lse2 + flat(b, h, 0), *delta_of = delta + flat(b, h, 0);
      for (Chunk<T> now; walk.take(now);) {
        T weight[Chunk<T>::kSize], dscore[Chunk<T>::kSize], slopes[Chunk<T>::kSize];
        for (int c = 0; c < now.vectors(); ++c) {
          const int32_t* index = now.index + c * N;
          queries.prefetch(walk.following(c), p.dim);
          grads.prefetch(walk.following(c), p.dim_v);
          Vec<T> x = scores(queries, index, k, vectors, slopes + c * N);
          if (!Plain && biases) x += load_biases(biases, now, c * N);
          Vec<T> lse = {}, subtract = {};
          for (int t = 0; t < N; ++t) {
            lse[t] = lse_of[index[t]];
            subtract[t] = delta_of[index[t]];
          }
          if (reversed.data)
            for (int t = 0; t < N; ++t) x[t] += *reversed.at(index[t], j);
          Vec<T> w = exp2(x - lse);
          Vec<T> dweight = grads.dots(index, v, p.dim_v);
          Vec<T> kept = w;
          if (dropout.active) {
            Vec<T> factor = {};
            for (int t = 0; t < N; ++t)
              factor[t] = dropout.factor<T>(dropout.row_key(b * p.heads + h, index[t]), j);
            dweight *= factor;
            kept *= factor;
          }
          store(weight + c * N, kept);
          store(dscore + c * N, w * (dweight - subtract));
        }
        grads.add(now, weight, T{1}, p.dim_v, dv);
        differentiate(queries, now, k, vectors, dscore, slopes, dk, nullptr);
      }
    }
    narrow_row<S, T>(dk, p.dim, gradient_factor(), mutable_row_of<S>(p.dk, b, kv, j));
    narrow_row<S, T>(dv, p.dim_v, T{1}, mutable_row_of<S>(p.dv, b, kv, j));
  }
};

}  // namespace erlangen::ERLANGEN_ISA
