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

  // Scores in units of log2, without a bias; `slopes` takes the derivatives of a map of products.
  Vec<T> scores(const Gathered<S, T>& rows, const T* own, const T* factors, T* slopes) const {
    if (Plain || !(factors || map.active())) return rows.dots(own, p.dim);
    if (factors) return additive_scores<S, T>(rows, own, factors, map, p.dim);
    T x[N];
    store(x, rows.dots(own, p.dim));
    map.apply(x, slopes, N);
    return load(x);
  }
  // to += sum_t dscore[t] (d score[t] / d own)
  void differentiate(const Gathered<S, T>& rows, const T* own, const T* factors, Vec<T> dscore, const T* slopes, T* to,
                     T* by_vector) const {
    if (Plain || !(factors || map.active())) return rows.add(to, T{1}, dscore, p.dim);
    if (factors) return add_additive<S, T>(rows, own, factors, map, dscore, p.dim, to, by_vector);
    rows.add(to, T{1}, dscore == 0 ? Vec<T>{} : dscore * load(slopes), p.dim);
  }
  static Vec<T> load_biases(const T* data, const Batch<T>& now) {
    return load_tail(data + now.first, now.count) * static_cast<T>(kLog2E);
  }

  // Room for `rows` padded rows of this thread.
  Carver<T> room(int rows) const {
    const int64_t width = padded<T>(std::max(p.dim, p.dim_v)) + 16;
    return {static_cast<T*>(scratch(1, sizeof(T) * rows * width))};
  }

  Vec<T> dropout_factors(int64_t b, int64_t h, int64_t i, const Batch<T>& keys) const {
    T factor[N];
    const uint32_t key = dropout.row_key(b * p.heads + h, i);
    for (int t = 0; t < N; ++t) factor[t] = dropout.factor<T>(key, keys.index[t]);
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
    const S *k = row_of<S>(p.k, b, kv, 0), *v = row_of<S>(p.v, b, kv, 0);
    for (Batch<T> now; walk.take(now);) {
      walk.prefetch(k, p.k.row, p.dim);
      walk.prefetch(v, p.v.row, p.dim_v);
      const Gathered<S, T> keys(k, p.k.row, now), values(v, p.v.row, now);
      Vec<T> x = scores(keys, q, vectors, nullptr);
      if (!Plain && biases) x += load_biases(biases, now);
      if (reversed.data)
        for (int t = 0; t < N; ++t) x[t] += *reversed.at(i, now.index[t]);
      x = now.valid() ? x : broadcast(-kInf<T>);
      const T top = std::max(highest, maximum<T>(x));
      const T base = top == -kInf<T> ? T{0} : top;
      const T shrink = exp2(broadcast(highest - base))[0];
      highest = top;
      Vec<T> weight = exp2(x - base);
      total = total * shrink + sum<T>(weight);
      if (dropout.active) weight *= dropout_factors(b, h, i, now);
      values.add(out, shrink, weight, p.dim_v);
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
    const S* out = row_of<S>(p.out, b, h, i);
    T dot = 0;
    for (int64_t d = 0; d < p.dim_v; ++d) dot += grad[d] * static_cast<T>(widen(out[d]));
    delta[at] = dot - (p.grad_lse ? static_cast<const T*>(p.grad_lse)[at] : T{0});
    const T lse = static_cast<const T*>(p.lse)[at];
    lse2[at] = lse == -kInf<T> ? kInf<T> : lse * static_cast<T>(kLog2E);

    Walk<T, !Plain> walk(p.runs, p.relation(b, h), i);
    const S *k = row_of<S>(p.near_k, b, kv, 0), *v = row_of<S>(p.near_v, b, kv, 0);
    for (Batch<T> now; walk.take(now);) {
      walk.prefetch(k, p.near_k.row, p.dim);
      walk.prefetch(v, p.near_v.row, p.dim_v);
      const Gathered<S, T> keys(k, p.near_k.row, now), values(v, p.near_v.row, now);
      T slopes[N];
      Vec<T> x = scores(keys, q, vectors, slopes);
      if (!Plain && biases) x += load_biases(biases, now);
      if (reversed.data)
        for (int t = 0; t < N; ++t) x[t] += *reversed.at(i, now.index[t]);
      const Vec<T> weight = exp2(x - lse2[at]);
      Vec<T> dweight = values.dots(grad, p.dim_v);
      if (dropout.active) dweight *= dropout_factors(b, h, i, now);
      const Vec<T> dscore = now.valid() ? weight * (dweight - delta[at]) : Vec<T>{};
      if (dbias)
        for (int t = 0; t < now.count; ++t)
          dbias[!Plain && biases ? now.first + t : i - now.index[t] + p.keys - 1] += dscore[t];
      differentiate(keys, q, vectors, dscore, slopes, dq, dvector);
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
      const S *q = row_of<S>(p.q, b, h, 0), *grad = row_of<S>(p.grad, b, h, 0);
      for (Batch<T> now; walk.take(now);) {
        walk.prefetch(q, p.q.row, p.dim);
        walk.prefetch(grad, p.grad.row, p.dim_v);
        const Gathered<S, T> queries(q, p.q.row, now), grads(grad, p.grad.row, now);
        T slopes[N];
        Vec<T> x = scores(queries, k, vectors, slopes);
        if (!Plain && biases) x += load_biases(biases, now);
        Vec<T> lse = {}, subtract = {};
        for (int t = 0; t < N; ++t) {
          const int64_t at = flat(b, h, now.index[t]);
          lse[t] = lse2[at];
          subtract[t] = delta[at];
          if (reversed.data) x[t] += *reversed.at(now.index[t], j);
        }
        Vec<T> weight = now.valid() ? exp2(x - lse) : Vec<T>{};
        Vec<T> dweight = grads.dots(v, p.dim_v);
        Vec<T> kept = weight;
        if (dropout.active) {
          Vec<T> factor = {};
          for (int t = 0; t < N; ++t)
            factor[t] = dropout.factor<T>(dropout.row_key(b * p.heads + h, now.index[t]), j);
          dweight *= factor;
          kept *= factor;
        }
        const Vec<T> dscore = now.valid() ? weight * (dweight - subtract) : Vec<T>{};
        grads.add(dv, T{1}, kept, p.dim_v);
        differentiate(queries, k, vectors, dscore, slopes, dk, nullptr);
      }
    }
    narrow_row<S, T>(dk, p.dim, gradient_factor(), mutable_row_of<S>(p.dk, b, kv, j));
    narrow_row<S, T>(dv, p.dim_v, T{1}, mutable_row_of<S>(p.dv, b, kv, j));
  }
};

}  // namespace erlangen::ERLANGEN_ISA
