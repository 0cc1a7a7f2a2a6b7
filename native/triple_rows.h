// Attention over triples: one pass per query forward; backward one pass per query, per first key and per second key, all
// three the same: a trilinear form does not know its places apart. Nothing is kept per triple.
#pragma once
#include "online_softmax.h"
#include "pack.h"
#include "problem.h"

namespace erlangen::ERLANGEN_ISA {

// Two gathered rows per lane.
template <class S, class T>
struct GatheredPairs {
  static constexpr int N = kLanes<T>;
  const S *left[N], *right[N];

  // The first `count` triples; padding lanes repeat the last, which is read anyway.
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
  Vec<T> dots(const T* x, int64_t dim, int place) const {
    return place == 2 ? dots<true>(x, dim) : dots<false>(x, dim);
  }

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

  // to = rescale * to + sum_t weight[t] left[t] * right[t]
  void add(T* to, T rescale, Vec<T> weights, int64_t dim) const {
    T weight[N];
    store(weight, weights);
    int64_t d = 0;
    for (; d + N <= dim; d += N) {
      Vec<T> even = load(to + d) * rescale, odd = {};
#pragma GCC unroll 16
      for (int t = 0; t < N; t += 2) {
        even += weight[t] * load_wide(left[t] + d) * load_wide(right[t] + d);
        odd += weight[t + 1] * load_wide(left[t + 1] + d) * load_wide(right[t + 1] + d);
      }
      store(to + d, even + odd);
    }
    if (d < dim) {
      Vec<T> total = load(to + d) * rescale;
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
  // Of each query, (batch, heads, n); backward only. `delta` is grad . out.
  T *maximum = nullptr, *inverse = nullptr, *delta = nullptr;

  int64_t flat(int64_t b, int64_t h, int64_t i) const { return (b * p.heads + h) * p.n + i; }

  // A score in units of log2 from its products: the same bits from each place.
  Vec<T> scaled(Vec<T> products) const { return rounded(products * static_cast<T>(p.scale * kLog2E)); }

  // The rows that `count` triples from t on gather from the two places that are not `place`.
  GatheredPairs<S, T> gather(const View (&from)[3], int place, int64_t b, int64_t h, int64_t t, int count) const {
    const View &left = from[kOthers[place][0]], &right = from[kOthers[place][1]];
    return {left.at<S>(b, h, 0), left.row, right.at<S>(b, h, 0), right.row, p.rows[place].a + t, p.rows[place].b + t,
            count};
  }

  static Bits<T> valid(int count) { return lanes_of<T>((uint64_t{1} << count) - 1); }

  void forward(int64_t b, int64_t h, int64_t i) const {
    Arena<T> arena = row_arena<T>(p, 2);
    T *q = arena.allocate(p.dim + N), *out = arena.allocate(p.dim_v + N);
    widen_row<S, T>(p.x[0].at<S>(b, h, i), p.dim, T{1}, q);
    std::fill_n(out, p.dim_v + N, T{0});
    OnlineSoftmax<T, T> softmax;
    const int64_t end = p.rows[0].indptr[i + 1];
    for (int64_t t = p.rows[0].indptr[i]; t < end; t += N) {
      const int count = static_cast<int>(std::min<int64_t>(N, end - t));
      Vec<T> x = scaled(gather(p.x, 0, b, h, t, count).dots(q, p.dim, 0));
      x = valid(count) ? x : broadcast(-kInf<T>);
      const T rescale = softmax.rescale(std::max(softmax.maximum, largest<T>(x)));
      const Vec<T> weight = softmax.weights(x);
      softmax.sum = softmax.sum * rescale + sum<T>(weight);
      gather(p.y, 0, b, h, t, count).add(out, rescale, weight, p.dim_v);
    }
    softmax.save(static_cast<T*>(p.lse), static_cast<T*>(p.stats), flat(b, h, i));
    narrow_row<S, T>(out, p.dim_v, softmax.inverse(), p.out.at<S>(b, h, i));
  }

  // What the softmax of query i subtracts, and its sum; every place reads them.
  void prepare(int64_t b, int64_t h, int64_t i) const {
    const int64_t at = flat(b, h, i);
    const S *out = p.out.at<S>(b, h, i), *grad = p.y[0].at<S>(b, h, i);
    T dot = 0;
    for (int64_t d = 0; d < p.dim_v; ++d) dot += static_cast<T>(widen(grad[d])) * static_cast<T>(widen(out[d]));
    delta[at] = dot;
    const RowStatistics<T> softmax(static_cast<const T*>(p.stats) + 2 * at);
    maximum[at] = softmax.maximum;
    inverse[at] = softmax.inverse;
  }

  // The gradients of row r of one place, from all triples that have r there.
  void backward(int place, int64_t b, int64_t h, int64_t r) const {
    Arena<T> arena = row_arena<T>(p, 4);
    T *x = arena.allocate(p.dim + N), *y = arena.allocate(p.dim_v + N);
    T *dx = arena.allocate(p.dim + N), *dy = arena.allocate(p.dim_v + N);
    widen_row<S, T>(p.x[place].at<S>(b, h, r), p.dim, T{1}, x);
    widen_row<S, T>(p.y[place].at<S>(b, h, r), p.dim_v, T{1}, y);
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
        top[n] = maximum[at];
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
    narrow_row<S, T>(dx, p.dim, static_cast<T>(p.scale), p.dx[place].at<S>(b, h, r));
    if (place != 0) narrow_row<S, T>(dy, p.dim_v, T{1}, p.dy[place].at<S>(b, h, r));
  }
};

}  // namespace erlangen::ERLANGEN_ISA
