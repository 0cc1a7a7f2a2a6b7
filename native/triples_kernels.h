// Attention over triples: one pass per query forward; backward one pass per query, per first key and per second key, all
// three the same: a trilinear form does not know its places apart. Nothing is kept per triple.
#pragma once
#include "edge_row.h"
#include "triples.h"

namespace erlangen::ERLANGEN_ISA {

// Two gathered rows per lane.
template <class S, class T>
struct GatheredPairs {
  static constexpr int N = kLanes<T>;
  const S *left[N], *right[N];

  // Up to N triples from place t on; the rest repeats the last, so that whatever is read was to be read anyway.
  GatheredPairs(const S* lefts, int64_t left_stride, const S* rights, int64_t right_stride, const int32_t* a,
                const int32_t* b, int count) {
    for (int t = 0; t < N; ++t) {
      const int from = t < count ? t : count - 1;
      left[t] = lefts + a[from] * left_stride;
      right[t] = rights + b[from] * right_stride;
    }
  }

  // Lane t is sum_d x[d] left[t][d] right[t][d]; x is padded with zeros. The factors of places 0 and 1 are multiplied
  // first, whichever of the three is x, so that a score has the same bits from each of its places.
  Vec<T> dots(const T* x, int64_t dim, int place) const { return place == 2 ? dots<true>(x, dim) : dots<false>(x, dim); }

  template <bool Last>
  Vec<T> dots(const T* x, int64_t dim) const {
    Vec<T> products[N] = {};
    const auto product = [](Vec<T> own, Vec<T> a, Vec<T> b) { return Last ? a * b * own : own * a * b; };
    int64_t d = 0;
    for (; d + N <= dim; d += N) {
      const Vec<T> own = load(x + d);
#pragma GCC unroll 16
      for (int t = 0; t < N; ++t) products[t] += product(own, load_wide(left[t] + d), load_wide(right[t] + d));
    }
    if (d < dim) {
      const Vec<T> own = load(x + d);
      const int tail = static_cast<int>(dim - d);
      for (int t = 0; t < N; ++t)
        products[t] += product(own, load_tail(left[t] + d, tail), load_tail(right[t] + d, tail));
    }
    return sums<T>(products);
  }

  // to = shrink * to + sum_t weight[t] left[t] * right[t]
  void add(T* to, T shrink, Vec<T> weights, int64_t dim) const {
    T weight[N];
    store(weight, weights);
    int64_t d = 0;
    for (; d + N <= dim; d += N) {
      Vec<T> even = load(to + d) * shrink, odd = {};
#pragma GCC unroll 16
      for (int t = 0; t < N; t += 2) {
        even += weight[t] * load_wide(left[t] + d) * load_wide(right[t] + d);
        odd += weight[t + 1] * load_wide(left[t + 1] + d) * load_wide(right[t + 1] + d);
      }
      store(to + d, even + odd);
    }
    if (d < dim) {
      Vec<T> total = load(to + d) * shrink;
      const int tail = static_cast<int>(dim - d);
      for (int t = 0; t < N; ++t)
        total += weight[t] * load_tail(left[t] + d, tail) * load_tail(right[t] + d, tail);
      store(to + d, total);
    }
  }
};

template <class S>
struct TripleRow {
  using T = Accumulator<S>;
  static constexpr int N = kLanes<T>;
  static constexpr int kOthers[3][2] = {{1, 2}, {0, 2}, {0, 1}};

  const TripleProblem& p;
  T* highest = nullptr;  // (batch, heads, n), in units of log2, +inf on empty rows; backward only
  T* inverse = nullptr;  // 1 / the sum, 0 on empty rows
  T* delta = nullptr;    // grad . out

  int64_t flat(int64_t b, int64_t h, int64_t i) const { return (b * p.heads + h) * p.n + i; }

  // A score in units of log2 from its products: the same bits from each place.
  Vec<T> scaled(Vec<T> products) const { return rounded(products * static_cast<T>(p.scale * kLog2E)); }

  Carver<T> room(int rows) const {
    const int64_t width = padded<T>(std::max(p.dim, p.dim_v)) + 16;
    return {static_cast<T*>(scratch(1, sizeof(T) * rows * width))};
  }

  // The rows that `count` triples from t on gather from the two places that are not `place`.
  GatheredPairs<S, T> gather(const View (&from)[3], int place, int64_t b, int64_t h, int64_t t, int count) const {
    const View &left = from[kOthers[place][0]], &right = from[kOthers[place][1]];
    return {row_of<S>(left, b, h, 0),      left.row, row_of<S>(right, b, h, 0), right.row, p.rows[place].a + t,
            p.rows[place].b + t, count};
  }

  static Bits<T> valid(int count) { return lanes_of<T>((uint64_t{1} << count) - 1); }

  void forward(int64_t b, int64_t h, int64_t i) const {
    Carver<T> carve = room(2);
    T *q = carve.take(p.dim + N), *out = carve.take(p.dim_v + N);
    widen_row<S, T>(row_of<S>(p.x[0], b, h, i), p.dim, T{1}, q);
    std::fill_n(out, p.dim_v + N, T{0});
    T top_so_far = -kInf<T>, total = 0;
    const int64_t end = p.rows[0].indptr[i + 1];
    for (int64_t t = p.rows[0].indptr[i]; t < end; t += N) {
      const int count = static_cast<int>(std::min<int64_t>(N, end - t));
      Vec<T> x = scaled(gather(p.x, 0, b, h, t, count).dots(q, p.dim, 0));
      x = valid(count) ? x : broadcast(-kInf<T>);
      const T top = std::max(top_so_far, maximum<T>(x));
      const T base = top == -kInf<T> ? T{0} : top;
      const T shrink = exp2(broadcast(top_so_far - base))[0];
      top_so_far = top;
      const Vec<T> weight = exp2(x - base);
      total = total * shrink + sum<T>(weight);
      gather(p.y, 0, b, h, t, count).add(out, shrink, weight, p.dim_v);
    }
    const int64_t at = flat(b, h, i);
    static_cast<T*>(p.stats)[2 * at] = top_so_far;
    static_cast<T*>(p.stats)[2 * at + 1] = total;
    static_cast<T*>(p.lse)[at] = total == 0 ? -kInf<T> : top_so_far * static_cast<T>(kLn2) + std::log(total);
    narrow_row<S, T>(out, p.dim_v, total == 0 ? T{0} : 1 / total, mutable_row_of<S>(p.out, b, h, i));
  }

  // What the softmax of query i subtracts, and its sum; every place reads them.
  void prepare(int64_t b, int64_t h, int64_t i) const {
    const int64_t at = flat(b, h, i);
    const S *out = row_of<S>(p.out, b, h, i), *grad = row_of<S>(p.y[0], b, h, i);
    T dot = 0;
    for (int64_t d = 0; d < p.dim_v; ++d) dot += static_cast<T>(widen(grad[d])) * static_cast<T>(widen(out[d]));
    delta[at] = dot;
    const T *stats = static_cast<const T*>(p.stats) + 2 * at, total = stats[1];
    highest[at] = total == 0 ? kInf<T> : stats[0];
    inverse[at] = total == 0 ? T{0} : 1 / total;
  }

  // The gradients of row r of one place, from all triples that have r there.
  void backward(int place, int64_t b, int64_t h, int64_t r) const {
    Carver<T> carve = room(4);
    T *x = carve.take(p.dim + N), *y = carve.take(p.dim_v + N);
    T *dx = carve.take(p.dim + N), *dy = carve.take(p.dim_v + N);
    widen_row<S, T>(row_of<S>(p.x[place], b, h, r), p.dim, T{1}, x);
    widen_row<S, T>(row_of<S>(p.y[place], b, h, r), p.dim_v, T{1}, y);
    std::fill_n(dx, p.dim + N, T{0});
    std::fill_n(dy, p.dim_v + N, T{0});
    const int64_t end = p.rows[place].indptr[r + 1];
    for (int64_t t = p.rows[place].indptr[r]; t < end; t += N) {
      const int count = static_cast<int>(std::min<int64_t>(N, end - t));
      const GatheredPairs<S, T> xs = gather(p.x, place, b, h, t, count), ys = gather(p.y, place, b, h, t, count);
      Vec<T> top = {}, inverse_sum = {}, subtract = {};
      for (int n = 0; n < N; ++n) {
        const int64_t query = place == 0 ? r : p.rows[place].a[t + std::min(n, count - 1)];
        const int64_t at = flat(b, h, query);
        top[n] = highest[at];
        inverse_sum[n] = inverse[at];
        subtract[n] = delta[at];
      }
      const Vec<T> score = scaled(xs.dots(x, p.dim, place));
      const Vec<T> weight = valid(count) ? weight_of<T>(score - top, inverse_sum) : Vec<T>{};
      const Vec<T> dweight = ys.dots(y, p.dim_v, place);
      const Vec<T> dscore = valid(count) ? weight * (dweight - subtract) : Vec<T>{};
      xs.add(dx, T{1}, dscore, p.dim);
      if (place != 0) ys.add(dy, T{1}, weight, p.dim_v);
    }
    narrow_row<S, T>(dx, p.dim, static_cast<T>(p.scale), mutable_row_of<S>(p.dx[place], b, h, r));
    if (place != 0) narrow_row<S, T>(dy, p.dim_v, T{1}, mutable_row_of<S>(p.dy[place], b, h, r));
  }
};

}  // namespace erlangen::ERLANGEN_ISA
