// Attention over tiles, forward. Lanes are queries: a panel of queries meets one key after another, so that maxima and
// sums over keys are plain vector operations, and keys and values are read as they lie in memory.
#pragma once
#include "arena.h"
#include "bias.h"
#include "dropout.h"
#include "online_softmax.h"
#include "pack.h"
#include "prefetch.h"
#include "score_map.h"
#include "tile_mask.h"

namespace erlangen::ERLANGEN_ISA {

template <class S>
struct TilesForward {
  using T = Accumulator<S>;
  static constexpr int W = kPanel<T>;
  static constexpr int kStep = -1;  // the next block is the one above: in a causal relation the longest come first

  const Problem& p;
  const Dropout dropout{p.dropout, p.seed};
  const ScoreMap<T> map{p};
  const T* bias = nullptr;  // reversed, per bias head

  struct State {
    T *queries, *scores, *out, *keys, *values, *maximum, *sum;
    uint32_t row_key[kTile];
  };

  // Rows to prefetch: those of the output, the queries of the next block, and keys and values to come.
  struct Upcoming {
    int64_t b, h, kv, query, last_query;
    KeyPrefetch keys;
  };

  // Weights outside the relation are zeros that are multiplied with values all the same. That spoils sums where values
  // are infinite or NaN: then the block is computed again, with care.
  void block(int64_t b, int64_t h, int64_t row) const {
    if (!attempt<Zeros::multiply>(b, h, row)) attempt<Zeros::skip_in_b>(b, h, row);
  }

  // Whether the result is to be kept.
  template <Zeros zeros>
  bool attempt(int64_t b, int64_t h, int64_t row) const {
    const int64_t first = row * kTile, kv = p.kv_head(h);
    const int count = static_cast<int>(std::min<int64_t>(kTile, p.queries - first));
    const int64_t relation = p.relation(b, h);
    const int64_t* indptr = p.tiles.indptr + relation * (p.tiles.rows + 1) + row;

    State s = make_state();
    pack(s, b, h, first, count);
    Upcoming upcoming{b, h, kv, first, first + count, {p.tiles, indptr, row, kStep}};
    const TileWords words_of(p.tiles, count);
    bool masked = false;
    for (int64_t t = indptr[0]; t < indptr[1]; ++t) {
      const int64_t j0 = int64_t{p.tiles.columns[t]} * kTile;
      const int keys = static_cast<int>(std::min<int64_t>(kTile, p.keys - j0));
      const Active<T> active(words_of(t), keys);
      const Rows<T> k = fetch<S>(p.k, b, kv, j0, keys, p.dim, s.keys);
      const Rows<T> v = fetch<S>(p.v, b, kv, j0, keys, p.dim_v, s.values);
      masked |= active.words != nullptr;
      upcoming.keys.during(t, p.keys);
      const ReversedBias<T> reversed(p, bias, h);
      for (int panel = 0; panel < kPanels<T>; ++panel) {
        const KeyRanges ranges = active.key_ranges(panel);
        if (ranges.count == 0) continue;
        Vec<T> maximum[kColumns], rescale[kColumns];
        if (map.active())
          score<true>(s, upcoming, active, ranges, k, panel, reversed, first + panel * W, j0, maximum);
        else
          score<false>(s, upcoming, active, ranges, k, panel, reversed, first + panel * W, j0, maximum);
        softmax(s, ranges, panel, j0, maximum, rescale);
        accumulate<zeros>(s, upcoming, ranges, v, panel, rescale);
      }
    }
    if (zeros == Zeros::multiply && masked && !finite<T>({s.out, p.dim_v}, kTile, p.dim_v)) return false;
    finish(s, b, h, first, count);
    return true;
  }

  // One row of each, between two products: many at once would wait for one another, and the products for them.
  __attribute__((always_inline)) void prefetch_rows(Upcoming& to) const {
    if (to.query < to.last_query) {
      prefetch<kL2, true>(p.out.at<S>(to.b, to.h, to.query), p.dim_v);
      const int64_t query = to.query + kStep * kTile;
      if (query >= 0) prefetch<kL2>(p.q.at<S>(to.b, to.h, query), p.dim);
      ++to.query;
    }
    if (to.keys.key < to.keys.last_key) {
      prefetch<kL2>(p.k.at<S>(to.b, to.kv, to.keys.key), p.dim);
      prefetch<kL2>(p.v.at<S>(to.b, to.kv, to.keys.key), p.dim_v);
      ++to.keys.key;
    }
  }

  State make_state() const {
    const int64_t sizes = kTile * (2 * p.dim + 2 * p.dim_v + padded<T>(std::max(p.dim, p.dim_v)) + 8);
    Arena<T> arena(Scratch::task, sizes + 256);
    State s;
    s.queries = arena.allocate(kTile * p.dim);
    s.out = arena.allocate(kTile * p.dim_v);
    s.keys = arena.allocate(kTile * p.dim);
    s.values = arena.allocate(kTile * p.dim_v);
    s.maximum = arena.allocate(kTile);
    s.sum = arena.allocate(kTile);
    s.scores = arena.allocate(kTile * W);
    return s;
  }

  void pack(State& s, int64_t b, int64_t h, int64_t first, int count) const {
    const Rows<T> q = fetch<S>(p.q, b, h, first, count, p.dim, s.keys);
    pack_transposed<T>(q.data, q.stride, count, p.dim, score_factor<T>(p), s.queries);
    std::fill_n(s.out, kTile * p.dim_v, T{0});
    std::fill_n(s.maximum, kTile, -kInf<T>);
    std::fill_n(s.sum, kTile, T{0});
    if (dropout.active)
      for (int i = 0; i < kTile; ++i) s.row_key[i] = dropout.row_key(b * p.heads + h, first + i);
  }

  // scores[j][lane] in units of log2, -inf outside the relation, and their maximum so far.
  template <bool Mapped>
  void score(State& s, Upcoming& upcoming, const Active<T>& active, const KeyRanges& ranges, Rows<T> k, int panel,
             const ReversedBias<T>& reversed, int64_t i0, int64_t j0, Vec<T> (&maximum)[kColumns]) const {
    constexpr int N = kLanes<T>;
    for (int c = 0; c < kColumns; ++c) maximum[c] = load(s.maximum + panel * W + c * N);
    for (const auto& [first, low, high, last] : ranges) {
      for (int j = first; j < low; j += N)
        score_keys<Mapped, N, 0, 1>(s, active, k, panel, reversed, i0, j0, j, maximum);
      // Groups of about the same size: a small one would wait for its own sums.
      int j = low;
      for (int groups = (high - low + kRows - 1) / kRows; groups > 0; --groups) {
        const int count = (high - j + groups - 1) / groups;
        with_rows(count, [&](auto rows) {
          score_keys<Mapped, rows(), 0, kColumns>(s, active, k, panel, reversed, i0, j0, j, maximum);
        });
        prefetch_rows(upcoming);
        j += count;
      }
      for (; j < last; j += N)
        score_keys<Mapped, N, kColumns - 1, kColumns>(s, active, k, panel, reversed, i0, j0, j, maximum);
    }
  }
  // The same for R keys from j on that are read by queries of columns First to Last.
  template <bool Mapped, int R, int First, int Last>
  __attribute__((always_inline)) void score_keys(State& s, const Active<T>& active, Rows<T> k, int panel,
                                                 const ReversedBias<T>& reversed, int64_t i0, int64_t j0, int j,
                                                 Vec<T> (&maximum)[kColumns]) const {
    constexpr int N = kLanes<T>, C = Last - First;
    Block<T, R, C> block = {};
    multiply<Zeros::multiply, T, R, 0, C>(block, Rows<T>{k.data + j * k.stride, k.stride},
                                          s.queries + panel * p.dim * W + First * N, W, p.dim);
    if constexpr (Mapped) {
      T mapped[R * C * N];
      store_block<T, R>(mapped, C * N, block);
      map.apply(mapped, nullptr, R * C * N);
      load_block<T, R>(block, mapped, C * N);
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const uint64_t bits = active.words ? active.panel_bits(active.words[j + r], panel) : 0;
#pragma GCC unroll 2
      for (int c = 0; c < kColumns; ++c) {
        T* to = s.scores + (j + r) * W + c * N;
        if (c < First || c >= Last) {
          store(to, broadcast(-kInf<T>));
          continue;
        }
        Vec<T> x = block[r][c - First];
        if (reversed.data) x += load(reversed.at(i0 + c * N, j0 + j + r));
        if (active.words) x = lanes_of<T>(bits >> (c * N)) ? x : broadcast(-kInf<T>);
        maximum[c] = max(x, maximum[c]);
        store(to, x);
      }
    }
  }

  // scores become weights relative to the new maximum; `rescale` is what earlier sums must be multiplied by.
  void softmax(State& s, const KeyRanges& ranges, int panel, int64_t j0, const Vec<T> (&maximum)[kColumns],
               Vec<T> (&rescale)[kColumns]) const {
    OnlineSoftmax<T, Vec<T>> rows[kColumns];
    for (int c = 0; c < kColumns; ++c) {
      const int at = panel * W + c * kLanes<T>;
      rows[c] = {load(s.maximum + at), load(s.sum + at)};
      rescale[c] = rows[c].rescale(maximum[c]);
      rows[c].sum *= rescale[c];
    }
    for (const KeyRange& range : ranges)
      for (int j = range.first; j < range.last; ++j) {
        T* at = s.scores + j * W;
        for (int c = 0; c < kColumns; ++c) {
          const Vec<T> weight = rows[c].weights(load(at + c * kLanes<T>));
          rows[c].sum += weight;
          store(at + c * kLanes<T>, weight);
        }
        if (dropout.active)
          for (int i = 0; i < W; ++i) at[i] *= dropout.factor<T>(s.row_key[panel * W + i], j0 + j);
      }
    for (int c = 0; c < kColumns; ++c) {
      store(s.maximum + panel * W + c * kLanes<T>, rows[c].maximum);
      store(s.sum + panel * W + c * kLanes<T>, rows[c].sum);
    }
  }

  template <Zeros zeros>
  void accumulate(State& s, Upcoming& upcoming, const KeyRanges& ranges, Rows<T> v, int panel,
                  const Vec<T> (&rescale)[kColumns]) const {
    T* out = s.out + panel * p.dim_v * W;
    for (int64_t d = 0; d < p.dim_v; d += kRows) {
      with_rows(static_cast<int>(std::min<int64_t>(kRows, p.dim_v - d)), [&](auto rows) {
        constexpr int R = rows;
        Block<T, R> block;
        load_block<T, R>(block, out + d * W, W);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
          for (int c = 0; c < kColumns; ++c) block[r][c] *= rescale[c];
        add_keys<zeros, T, R>(block, ranges, v, d, s.scores, W);
        store_block<T, R>(out + d * W, W, block);
      });
      prefetch_rows(upcoming);
    }
  }

  void finish(State& s, int64_t b, int64_t h, int64_t first, int count) const {
    const int64_t at = (b * p.heads + h) * p.queries + first;
    T *lse = static_cast<T*>(p.lse) + at, *stats = static_cast<T*>(p.stats) + 2 * at;
    for (int i = 0; i < count; i += kLanes<T>) {
      const OnlineSoftmax<T, Vec<T>> rows{load(s.maximum + i), load(s.sum + i)};
      if (p.stats)
        for (int lane = 0; lane < std::min(kLanes<T>, count - i); ++lane) {
          stats[2 * (i + lane)] = rows.maximum[lane];
          stats[2 * (i + lane) + 1] = rows.sum[lane];
        }
      store(s.sum + i, rows.inverse());
      store(s.maximum + i, rows.log_sum_exp());
    }
    std::copy_n(s.maximum, count, lse);
    unpack_transposed<S, T>(s.out, count, p.dim_v, s.sum, p.out.at<S>(b, h, first), p.out.row);
  }
};

}  // namespace erlangen::ERLANGEN_ISA
