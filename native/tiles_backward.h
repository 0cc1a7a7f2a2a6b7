// Attention over tiles, backward: weights are computed again from the statistics of each row (FlashAttention, arXiv
// 2205.14135). A piece walks its query blocks and their tiles; dq is complete at the end of a block, dk and dv are summed
// per piece and then over the pieces.
#pragma once
#include "arena.h"
#include "bias.h"
#include "dropout.h"
#include "online_softmax.h"
#include "pack.h"
#include "prefetch.h"
#include "score_map.h"
#include "tile_mask.h"
#include "tile_pieces.h"

namespace erlangen::ERLANGEN_ISA {

template <class S>
struct TilesBackward {
  using T = Accumulator<S>;
  static constexpr int W = kPanel<T>;
  static constexpr int kStep = 1;  // the next block is the one below

  const Problem& p;
  const std::vector<TilePiece> pieces = cut_tiles(p);
  const Dropout dropout{p.dropout, p.seed};
  const ScoreMap<T> map{p};
  const int64_t dim = padded<T>(p.dim), dim_v = padded<T>(p.dim_v);
  const T* bias = nullptr;     // reversed, per bias head
  T* shares = nullptr;         // per piece and key block: kTile rows of dk, then kTile rows of dv
  uint8_t* touched = nullptr;  // per piece and key block, zero at first
  T* dbias = nullptr;          // per piece, reversed, zero at first

  struct State {
    T *queries, *grads;            // transposed panels, for scores and for the products of gradients and values
    T *query_rows, *grad_rows;     // rows, for dk and dv
    T *keys, *values, *weights, *dscores, *slopes, *dq, *maximum, *inverse, *delta;
    uint32_t row_key[kTile];
    bool finite;
  };

  // Rows to prefetch: of the results, of the next block's queries, and of keys to come.
  struct Upcoming {
    const TilePiece& task;
    int64_t kv, query, last_query;
    KeyPrefetch keys;
  };

  // Sums of dk and dv may lie in the results themselves when those are accumulators of whole vectors.
  const bool in_place = std::is_same_v<S, T> && dim == p.dim && dim_v == p.dim_v;

  // Where a sum over rows lies, and how far its rows are apart.
  struct Sums {
    T* data;
    int64_t stride;
  };

  int64_t share_size() const { return kTile * (dim + dim_v); }

  // What is still to be done of a piece, from a row on: its tiles, and something for each row.
  int64_t work_left(int64_t n, int64_t row) const { return work(pieces[n], row, pieces[n].last_row); }
  int64_t work(const TilePiece& task, int64_t from, int64_t to) const {
    const int64_t* indptr = p.tiles.indptr + p.relation(task.batch, task.head) * (p.tiles.rows + 1);
    return indptr[to] - indptr[from] + to - from;
  }

  // Goes through rows of a piece until `wanted` work is done; returns the row to go on with.
  int64_t advance(int64_t n, int64_t first, int64_t wanted) const {
    const TilePiece& task = pieces[n];
    State s = make_state();
    T* own_dbias = dbias ? dbias + n * reversed_size(p) : nullptr;
    int64_t row = first;
    while (row < task.last_row && work(task, first, row) < wanted) block(s, task, row++, own_dbias);
    return row;
  }

  void block(State& s, const TilePiece& task, int64_t row, T* own_dbias) const {
    const int64_t b = task.batch, h = task.head, first = row * kTile, kv = p.kv_head(h);
    const int count = static_cast<int>(std::min<int64_t>(kTile, p.queries - first));
    const int64_t* indptr = p.tiles.indptr + p.relation(b, h) * (p.tiles.rows + 1) + row;
    pack(s, b, h, first, count);
    Upcoming upcoming{task, kv, first, first + count, {p.tiles, indptr, row, kStep}};
    const TileWords words_of(p.tiles, count);
    const ReversedBias<T> reversed(p, bias, h);
    for (int64_t t = indptr[0]; t < indptr[1]; ++t) {
      const int64_t column = p.tiles.columns[t], j0 = column * kTile;
      const int keys = static_cast<int>(std::min<int64_t>(kTile, p.keys - j0));
      const Active<T> active(words_of(t), keys);
      const Rows<T> k = fetch<S>(p.k, b, kv, j0, keys, p.dim, s.keys);
      const Rows<T> v = fetch<S>(p.v, b, kv, j0, keys, p.dim_v, s.values);
      const auto [dk, dv] = sums_of(task, column);
      if (!touched[task.index(column)]) {
        for (int j = 0; j < keys; ++j) {
          std::fill_n(dk.data + j * dk.stride, dim, T{0});
          std::fill_n(dv.data + j * dv.stride, dim_v, T{0});
        }
        touched[task.index(column)] = 1;
      }
      upcoming.keys.during(t, p.keys);

      if (map.active())
        weigh<true>(s, upcoming, active, k, reversed, first, j0);
      else
        weigh<false>(s, upcoming, active, k, reversed, first, j0);
      differentiate(s, upcoming, active, v, j0);
      if (own_dbias) add_dbias(s, active, ReversedBias<T>(p, own_dbias, 0), first, j0);
      if (map.active()) multiply_slopes(s, active);
      if (active.words && !(s.finite && finite<T>(k, keys, p.dim))) {
        accumulate_dq<Zeros::skip_in_b>(s, active, k);
        accumulate_keys<Zeros::skip_in_a>(active, s.weights, s.grad_rows, dim_v, dv);
        accumulate_keys<Zeros::skip_in_a>(active, s.dscores, s.query_rows, dim, dk);
      } else {
        accumulate_dq<Zeros::multiply>(s, active, k);
        accumulate_keys<Zeros::multiply>(active, s.weights, s.grad_rows, dim_v, dv);
        accumulate_keys<Zeros::multiply>(active, s.dscores, s.query_rows, dim, dk);
      }
    }
    T scale[kTile];
    std::fill_n(scale, kTile, static_cast<T>(p.scale));
    unpack_transposed<S, T>(s.dq, count, p.dim, scale, p.dq.at<S>(b, h, first), p.dq.row);
  }

  // The sums of dk and dv of a key block that a piece adds to.
  std::pair<Sums, Sums> sums_of(const TilePiece& task, int64_t column) const {
    if constexpr (std::is_same_v<S, T>) {
      if (in_place && task.owns(column)) {
        const int64_t kv = p.kv_head(task.head), first = column * kTile;
        return {{p.dk.at<S>(task.batch, kv, first), p.dk.row},
                {p.dv.at<S>(task.batch, kv, first), p.dv.row}};
      }
    }
    T* share = shares + task.index(column) * share_size();
    return {{share, dim}, {share + kTile * dim, dim_v}};
  }

  // One row of each, between two products.
  __attribute__((always_inline)) void prefetch_rows(Upcoming& to) const {
    const TilePiece& task = to.task;
    if (to.query < to.last_query) {
      prefetch<kL2, true>(p.dq.at<S>(task.batch, task.head, to.query), p.dim);
      const int64_t query = to.query + kStep * kTile;
      if (query < p.queries) {
        prefetch<kL2>(p.q.at<S>(task.batch, task.head, query), p.dim);
        prefetch<kL2>(p.grad.at<S>(task.batch, task.head, query), p.dim_v);
        prefetch<kL2>(p.out.at<S>(task.batch, task.head, query), p.dim_v);
      }
      ++to.query;
    }
    if (to.keys.key < to.keys.last_key) {
      const int64_t key = to.keys.key++, column = key / kTile;
      prefetch<kL2>(p.k.at<S>(task.batch, to.kv, key), p.dim);
      prefetch<kL2>(p.v.at<S>(task.batch, to.kv, key), p.dim_v);
      if (column < task.first_block || column >= task.last_block) return;  // the block after the piece's last one
      const auto [dk, dv] = sums_of(task, column);
      prefetch<kL2, true>(dk.data + key % kTile * dk.stride, dim);
      prefetch<kL2, true>(dv.data + key % kTile * dv.stride, dim_v);
    }
  }

  State make_state() const {
    const int64_t size = kTile * (4 * dim + 4 * dim_v + 3 * kTile + 3);
    Arena<T> arena(Scratch::task, size + 256);
    State s;
    s.queries = arena.allocate(kTile * dim);
    s.grads = arena.allocate(kTile * dim_v);
    s.query_rows = arena.allocate(kTile * dim);
    s.grad_rows = arena.allocate(kTile * dim_v);
    s.keys = arena.allocate(kTile * dim);
    s.values = arena.allocate(kTile * dim_v);
    s.dq = arena.allocate(kTile * dim);
    s.weights = arena.allocate(kTile * kTile);
    s.dscores = arena.allocate(kTile * kTile);
    s.slopes = arena.allocate(kTile * kTile);
    s.maximum = arena.allocate(kTile);
    s.inverse = arena.allocate(kTile);
    s.delta = arena.allocate(kTile);
    return s;
  }

  void pack(State& s, int64_t b, int64_t h, int64_t first, int count) const {
    // Scores must have the bits they had in the forward pass, so that none exceeds the maximum found there: the queries
    // are packed in the same way.
    const Rows<T> q = fetch<S>(p.q, b, h, first, count, p.dim, s.query_rows);
    pack_transposed<T>(q.data, q.stride, count, p.dim, score_factor<T>(p), s.queries);
    // The scale that dk needs is put into these rows.
    pack_rows<S, T>(p.q.at<S>(b, h, first), p.q.row, count, p.dim, static_cast<T>(p.scale), s.query_rows, dim);
    pack_rows<S, T>(p.grad.at<S>(b, h, first), p.grad.row, count, p.dim_v, T{1}, s.grad_rows, dim_v);
    pack_transposed<T>(s.grad_rows, dim_v, kTile, p.dim_v, T{1}, s.grads);
    std::fill_n(s.dq, kTile * p.dim, T{0});
    const T* stats = static_cast<const T*>(p.stats) + 2 * ((b * p.heads + h) * p.queries + first);
    const T* grad_lse = static_cast<const T*>(p.grad_lse) + (b * p.heads + h) * p.queries + first;
    constexpr T no_keys[2] = {};
    for (int i = 0; i < kTile; ++i) {
      const RowStatistics<T> softmax(i < count ? stats + 2 * i : no_keys);
      s.maximum[i] = softmax.maximum;
      s.inverse[i] = softmax.inverse;
      s.delta[i] = i < count ? dot(s.grad_rows + i * dim_v, p.out.at<S>(b, h, first + i), p.dim_v) : T{0};
      if (i < count && p.grad_lse) s.delta[i] -= grad_lse[i];
    }
    s.finite = finite<T>({s.query_rows, dim}, kTile, dim) && finite<T>({s.grad_rows, dim_v}, kTile, dim_v);
    if (dropout.active)
      for (int i = 0; i < kTile; ++i) s.row_key[i] = dropout.row_key(b * p.heads + h, first + i);
  }

  // weights[j][i] = 2^(score - maximum) / sum, zero outside the relation
  template <bool Mapped>
  void weigh(State& s, Upcoming& upcoming, const Active<T>& active, Rows<T> k, const ReversedBias<T>& reversed, int64_t i0,
             int64_t j0) const {
    for (int g = 0; g < kGroups; ++g)
      for (int panel = 0; panel < kPanels<T>; ++panel) {
        if (!active.has(g, panel)) continue;
        with_rows(active.rows(g), [&](auto rows) {
          constexpr int R = rows;
          Block<T, R> block = {};
          const int j = g * kRows;
          const T* queries = s.queries + panel * p.dim * W;
          multiply<Zeros::multiply, T, R>(block, Rows<T>{k.data + j * k.stride, k.stride}, queries, W, p.dim);
          if constexpr (Mapped) {
            T mapped[R * W], slopes[R * W];
            store_block<T, R>(mapped, W, block);
            map.apply(mapped, slopes, R * W);
            load_block<T, R>(block, mapped, W);
            for (int r = 0; r < R; ++r) std::copy_n(slopes + r * W, W, s.slopes + (j + r) * kTile + panel * W);
          }
#pragma GCC unroll 16
          for (int r = 0; r < R; ++r) {
            const uint64_t bits = active.words ? active.panel_bits(active.words[j + r], panel) : 0;
#pragma GCC unroll 2
            for (int c = 0; c < kColumns; ++c) {
              const int i = panel * W + c * kLanes<T>;
              Vec<T> x = block[r][c];
              if (reversed.data) x += load(reversed.at(i0 + i, j0 + j + r));
              x = weight_of<T>(x - load(s.maximum + i), load(s.inverse + i));
              if (active.words) x = lanes_of<T>(bits >> (c * kLanes<T>)) ? x : Vec<T>{};
              store(s.weights + (j + r) * kTile + i, x);
            }
          }
        });
        prefetch_rows(upcoming);
      }
  }

  // dscores[j][i] = weight * (grad_i . v_j - delta_i); the weights take their dropout factor.
  void differentiate(State& s, Upcoming& upcoming, const Active<T>& active, Rows<T> v, int64_t j0) const {
    for (int g = 0; g < kGroups; ++g)
      for (int panel = 0; panel < kPanels<T>; ++panel) {
        if (!active.has(g, panel)) continue;
        with_rows(active.rows(g), [&](auto rows) {
          constexpr int R = rows;
          Block<T, R> block = {};
          const int j = g * kRows;
          const T* grads = s.grads + panel * p.dim_v * W;
          multiply<Zeros::multiply, T, R>(block, Rows<T>{v.data + j * v.stride, v.stride}, grads, W, p.dim_v);
#pragma GCC unroll 16
          for (int r = 0; r < R; ++r) {
            const uint64_t bits = active.words ? active.panel_bits(active.words[j + r], panel) : 0;
            T factor[W];
            if (dropout.active)
              for (int i = 0; i < W; ++i) factor[i] = dropout.factor<T>(s.row_key[panel * W + i], j0 + j + r);
#pragma GCC unroll 2
            for (int c = 0; c < kColumns; ++c) {
              const int i = panel * W + c * kLanes<T>;
              T* weights = s.weights + (j + r) * kTile + i;
              const Vec<T> weight = load(weights);
              Vec<T> x = block[r][c];
              if (dropout.active) {
                x *= load(factor + c * kLanes<T>);
                store(weights, weight * load(factor + c * kLanes<T>));
              }
              x = weight * (x - load(s.delta + i));
              if (active.words) x = lanes_of<T>(bits >> (c * kLanes<T>)) ? x : Vec<T>{};
              store(s.dscores + (j + r) * kTile + i, x);
            }
          }
        });
        prefetch_rows(upcoming);
      }
  }

  void add_dbias(State& s, const Active<T>& active, const ReversedBias<T>& reversed, int64_t i0, int64_t j0) const {
    for (int panel = 0; panel < kPanels<T>; ++panel)
      for (const KeyRange& range : active.key_ranges(panel))
        for (int j = range.first; j < range.last; ++j)
          for (int i = panel * W; i < (panel + 1) * W; i += kLanes<T>) {
            T* at = const_cast<T*>(reversed.at(i0 + i, j0 + j));
            store(at, load(at) + load(s.dscores + j * kTile + i));
          }
  }

  // From the derivatives by logits to those by products; what is zero stays zero.
  void multiply_slopes(State& s, const Active<T>& active) const {
    for (int panel = 0; panel < kPanels<T>; ++panel)
      for (const KeyRange& range : active.key_ranges(panel))
        for (int j = range.first; j < range.last; ++j)
          for (int i = panel * W; i < (panel + 1) * W; i += kLanes<T>) {
            const Vec<T> x = load(s.dscores + j * kTile + i), slope = load(s.slopes + j * kTile + i);
            store(s.dscores + j * kTile + i, x == 0 ? Vec<T>{} : x * slope);
          }
  }

  // dq[panel][d][i] += sum_j k[j][d] dscores[j][i]
  template <Zeros zeros>
  void accumulate_dq(State& s, const Active<T>& active, Rows<T> k) const {
    for (int panel = 0; panel < kPanels<T>; ++panel) {
      T* dq = s.dq + panel * p.dim * W;
      const KeyRanges ranges = active.key_ranges(panel);
      for (int64_t d = 0; d < p.dim; d += kRows)
        with_rows(static_cast<int>(std::min<int64_t>(kRows, p.dim - d)), [&](auto rows) {
          constexpr int R = rows;
          Block<T, R> block;
          load_block<T, R>(block, dq + d * W, W);
          add_keys<zeros, T, R>(block, ranges, k, d, s.dscores + panel * W, kTile);
          store_block<T, R>(dq + d * W, W, block);
        });
    }
  }

  // to[j][d] += sum_i left[j][i] right[i][d]
  template <Zeros zeros>
  void accumulate_keys(const Active<T>& active, const T* left, const T* right, int64_t stride, Sums to) const {
    for (int g = 0; g < kGroups; ++g) {
      if (!active.any[g]) continue;
      with_rows(active.rows(g), [&](auto rows) {
        constexpr int R = rows;
        const int j = g * kRows;
        for (int64_t d = 0; d < stride; d += W) {
          Block<T, R> block;
          load_block<T, R>(block, to.data + j * to.stride + d, to.stride);
          active.query_ranges(g, [&](int from, int to_i) {
            const Rows<T> weights{left + j * kTile + from, kTile};
            multiply<zeros, T, R>(block, weights, right + from * stride + d, stride, to_i - from);
          });
          store_block<T, R>(to.data + j * to.stride + d, to.stride, block);
        }
      });
    }
  }

  // dk and dv of one key block: the shares of all pieces of the heads that read it, in order.
  void reduce(int64_t b, int64_t kv, int64_t column, int64_t first_piece, int64_t last_piece) const {
    const int64_t j0 = column * kTile;
    const int keys = static_cast<int>(std::min<int64_t>(kTile, p.keys - j0));
    const T* only = nullptr;
    T* total = Arena<T>(Scratch::task, share_size()).allocate(share_size());
    for (int64_t n = first_piece; n < last_piece; ++n) {
      const TilePiece& task = pieces[n];
      if (column < task.first_block || column >= task.last_block) continue;
      if (!touched[task.index(column)]) continue;
      if (in_place && task.owns(column)) return;  // already there
      const T* share = shares + task.index(column) * share_size();
      if (!only) {
        only = share;
        continue;
      }
      for (int64_t x = 0; x < share_size(); ++x) total[x] = only[x] + share[x];
      only = total;
    }
    for (int j = 0; j < keys; ++j) {
      S* dk = p.dk.at<S>(b, kv, j0 + j);
      S* dv = p.dv.at<S>(b, kv, j0 + j);
      for (int64_t d = 0; d < p.dim; ++d)
        narrow(only ? only[j * dim + d] : T{0}, dk[d]);
      for (int64_t d = 0; d < p.dim_v; ++d) narrow(only ? only[kTile * dim + j * dim_v + d] : T{0}, dv[d]);
    }
  }
};

}  // namespace erlangen::ERLANGEN_ISA
