// What forward and backward share: the key tile being read, which of its parts hold pairs, packing of query blocks.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "map.h"
#include "multiply.h"
#include "problem.h"
#include "threads.h"

namespace erlangen::ERLANGEN_ISA {

inline constexpr int kGroups = (kTile + kRows - 1) / kRows;  // groups of kRows keys in a tile
template <class T>
inline constexpr int kPanel = kColumns * kLanes<T>;          // queries of a panel: the lanes of a register block
template <class T>
inline constexpr int kPanels = kTile / kPanel<T>;
template <class T>
inline int64_t padded(int64_t dim) {
  return (dim + kPanel<T> - 1) / kPanel<T> * kPanel<T>;
}

template <class S>
inline const S* row_of(const View& x, int64_t b, int64_t h, int64_t i) {
  return static_cast<const S*>(x.data) + b * x.batch + h * x.head + i * x.row;
}
template <class S>
inline S* mutable_row_of(const View& x, int64_t b, int64_t h, int64_t i) {
  return static_cast<S*>(x.data) + b * x.batch + h * x.head + i * x.row;
}

// Asks for a row that is read or written in a while, to keep it `near`: 3 is the nearest cache, 2 the next. Inline,
// because a call without any effect that a compiler knows of may vanish.
template <int near, bool written = false, class S>
inline __attribute__((always_inline)) void ask_for(const S* row, int64_t dim) {
  for (int64_t d = 0; d < dim; d += 64 / static_cast<int64_t>(sizeof(S))) __builtin_prefetch(row + d, written, near);
}

// Keys of a tile that queries of a panel read. Where a diagonal enters and leaves, the first column of queries alone
// reads those before `low`, and the last column alone those from `high` on; both are whole vectors of keys.
struct KeyRange {
  int first, low, high, last;
};
struct KeyRanges {
  KeyRange range[(kGroups + 1) / 2];
  int count = 0;

  const KeyRange* begin() const { return range; }
  const KeyRange* end() const { return range + count; }
};

// The part of a 64 x 64 tile that holds pairs of the relation, at the grain of kRows keys x one panel of queries.
template <class T>
struct Active {
  const uint64_t* words = nullptr;  // null: every pair
  int keys = 0;
  uint64_t any[kGroups];            // the union of the words of a group of keys

  Active(const uint64_t* words_, int keys_) : words(words_), keys(keys_) {
    for (int g = 0; g < kGroups; ++g) {
      any[g] = 0;
      for (int j = g * kRows; j < std::min((g + 1) * kRows, keys); ++j) any[g] |= words ? words[j] : ~uint64_t{0};
    }
  }
  static constexpr uint64_t first_bits(int count) { return count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1; }
  static uint64_t panel_bits(uint64_t word, int panel) {
    return (word >> (panel * kPanel<T>)) & first_bits(kPanel<T>);
  }
  bool has(int group, int panel) const { return panel_bits(any[group], panel) != 0; }
  int rows(int group) const { return std::min(kRows, keys - group * kRows); }

  // Each maximal range of keys whose groups are active in the panel, without keys at its ends that no query reads.
  KeyRanges key_ranges(int panel) const {
    KeyRanges ranges;
    for (int g = 0; g < kGroups;) {
      if (!has(g, panel)) {
        ++g;
        continue;
      }
      int first = g * kRows;
      while (g < kGroups && has(g, panel)) ++g;
      int last = std::min(g * kRows, keys);
      while (!read(first, panel, first_bits(kPanel<T>))) ++first;
      while (!read(last - 1, panel, first_bits(kPanel<T>))) --last;
      ranges.range[ranges.count++] = cut(panel, first, last);
    }
    return ranges;
  }
  // Calls f(first, last) for each maximal range of queries whose panels are active in the group, without queries at its
  // ends that read none of its keys.
  template <class F>
  void query_ranges(int group, F&& f) const {
    for (int p = 0; p < kPanels<T>;) {
      if (!has(group, p)) {
        ++p;
        continue;
      }
      const int start = p * kPanel<T>;
      while (p < kPanels<T> && has(group, p)) ++p;
      const int beyond = kTile - p * kPanel<T>;
      f(start + std::countr_zero(any[group] >> start), kTile - beyond - std::countl_zero(any[group] << beyond));
    }
  }

 private:
  bool read(int key, int panel, uint64_t queries) const {
    return !words || (panel_bits(words[key], panel) & queries) != 0;
  }
  KeyRange cut(int panel, int first, int last) const {
    constexpr int N = kLanes<T>;
    if (!words || N < kRows) return {first, first, last, last};  // a block of one column would not fill the registers
    constexpr uint64_t of_first = first_bits(N), of_last = of_first << (kPanel<T> - N);
    int low = first, high = last;
    while (low < last && !read(low, panel, ~of_first)) ++low;
    while (high > low && !read(high - 1, panel, ~of_last)) --high;
    return {first, first + (low - first) / N * N, last - (last - high) / N * N, last};
  }
};

// block[r][lane] += sum over the keys j of the ranges of x(j, d + r) weights[j][lane]
template <Zeros zeros, class T, int R>
inline __attribute__((always_inline)) void add_keys(Block<T, R>& block, const KeyRanges& ranges, Rows<T> x, int64_t d,
                                                    const T* weights, int64_t stride) {
  const auto values = [&](int j) { return Columns<T>{x.data + j * x.stride + d, x.stride}; };
  for (const auto& [first, low, high, last] : ranges) {
    multiply<zeros, T, R, 0, 1>(block, values(first), weights + first * stride, stride, low - first);
    multiply<zeros, T, R>(block, values(low), weights + low * stride, stride, high - low);
    multiply<zeros, T, R, kColumns - 1, kColumns>(block, values(high), weights + high * stride, stride, last - high);
  }
}

// The words of tile t, or null when all its pairs hold and no query of the block is out of range.
struct TileWords {
  const TileView& tiles;
  uint64_t edge[kTile];
  bool ragged;

  TileWords(const TileView& tiles_, int queries) : tiles(tiles_), ragged(queries < kTile) {
    for (uint64_t& word : edge) word = ragged ? (uint64_t{1} << queries) - 1 : ~uint64_t{0};
  }
  const uint64_t* operator()(int64_t t) const {
    if (tiles.pattern[t] >= 0) return tiles.patterns + int64_t{tiles.pattern[t]} * kTile;
    return ragged ? edge : nullptr;
  }
};

// Rows of keys or values as accumulators: the tensor itself where its rows are dense, else a copy.
template <class S, class T>
inline Rows<T> fetch(const View& x, int64_t b, int64_t h, int64_t first, int count, int64_t dim, T* copy) {
  const S* from = row_of<S>(x, b, h, first);
  if constexpr (std::is_same_v<S, T>) {
    if (x.row == dim) return {from, dim};
  }
  for (int j = 0; j < count; ++j)
    for (int64_t d = 0; d < dim; ++d) copy[j * dim + d] = widen(from[j * x.row + d]);
  return {copy, dim};
}

// x . y, of which y is stored.
template <class S, class T>
inline T dot(const T* x, const S* y, int64_t dim) {
  constexpr int N = kLanes<T>;
  Vec<T> even = {}, odd = {};
  int64_t d = 0;
  for (; d + 2 * N <= dim; d += 2 * N) {
    even += load(x + d) * load_wide(y + d);
    odd += load(x + d + N) * load_wide(y + d + N);
  }
  T total = sum<T>(even + odd);
  for (; d < dim; ++d) total += x[d] * static_cast<T>(widen(y[d]));
  return total;
}

// Whether all elements are finite: inf * 0 and NaN * 0 are NaN.
template <class T>
inline bool finite(Rows<T> x, int count, int64_t dim) {
  Vec<T> spoiled[4] = {};
  const int64_t n = count * dim;
  if (x.stride != dim) {
    for (int r = 0; r < count; ++r)
      if (!finite<T>({x.data + r * x.stride, dim}, 1, dim)) return false;
    return true;
  }
  int64_t i = 0;
  for (; i + 4 * kLanes<T> <= n; i += 4 * kLanes<T>)
    for (int u = 0; u < 4; ++u) spoiled[u] += load(x.data + i + u * kLanes<T>) * 0;
  T rest = sum<T>((spoiled[0] + spoiled[1]) + (spoiled[2] + spoiled[3]));
  for (; i < n; ++i) rest += x.data[i] * 0;
  return rest == 0;
}

// panels[p][d][lane] = factor * x[p * kPanel + lane][d], zero for queries out of range.
template <class T>
inline void pack_transposed(const T* x, int64_t stride, int count, int64_t dim, T factor, T* panels) {
  constexpr int N = kLanes<T>;
  for (int i = 0; i < kTile; i += N) {
    T* to = panels + i / kPanel<T> * dim * kPanel<T> + i % kPanel<T>;
    int64_t d = 0;
    if (i + N <= count)
      for (; d + N <= dim; d += N) {
        Vec<T> square[N];
        for (int r = 0; r < N; ++r) square[r] = load(x + (i + r) * stride + d) * factor;
        transpose<T>(square);
        for (int r = 0; r < N; ++r) store(to + (d + r) * kPanel<T>, square[r]);
      }
    for (; d < dim; ++d)
      for (int r = 0; r < N; ++r) to[d * kPanel<T> + r] = i + r < count ? factor * x[(i + r) * stride + d] : T{0};
  }
}

// rows[i][d] = factor * x[i][d], padded with zeros to kTile rows of `stride` features.
template <class S, class T>
inline void pack_rows(const S* x, int64_t x_stride, int count, int64_t dim, T factor, T* rows, int64_t stride) {
  for (int i = 0; i < kTile; ++i) {
    T* to = rows + i * stride;
    const int64_t n = i < count ? dim : 0;
    for (int64_t d = 0; d < n; ++d) to[d] = factor * static_cast<T>(widen(x[i * x_stride + d]));
    std::fill(to + n, to + stride, T{0});
  }
}

// x[i][d] = panels[p][d][lane] * factor[i]
template <class S, class T>
inline void unpack_transposed(const T* panels, int count, int64_t dim, const T* factor, S* x, int64_t stride) {
  constexpr int N = kLanes<T>;
  for (int i = 0; i < count; i += N) {
    const T* from = panels + i / kPanel<T> * dim * kPanel<T> + i % kPanel<T>;
    const int rows = std::min(N, count - i);
    const Vec<T> factors = load(factor + i);
    int64_t d = 0;
    for (; d + N <= dim; d += N) {
      Vec<T> square[N];
      for (int r = 0; r < N; ++r) square[r] = load(from + (d + r) * kPanel<T>) * factors;
      transpose<T>(square);
      for (int r = 0; r < rows; ++r)
        for (int lane = 0; lane < N; ++lane) narrow(square[r][lane], x[(i + r) * stride + d + lane]);
    }
    for (; d < dim; ++d)
      for (int r = 0; r < rows; ++r) narrow(from[d * kPanel<T> + r] * factor[i + r], x[(i + r) * stride + d]);
  }
}

// The bias of the pairs of key j with the queries i0, i0 + 1, ... lies in consecutive places of the reversed bias.
template <class T>
struct ReversedBias {
  const T* data = nullptr;  // scaled by log2(e), kTile zeros appended; null without a bias
  int64_t keys = 0;
  const T* at(int64_t i, int64_t j) const { return data + (i - j + keys - 1); }
};

// Scores are in units of log2, unless a map is still to come.
template <class T>
inline T score_unit(const Problem& p) {
  return static_cast<T>(p.map == MapKind::identity ? kLog2E : 1);
}
// The weight of a pair: `x` is its score less the maximum of its row, in units of log2. Rounding must not make it larger
// than one; a NaN stays.
template <class T>
inline __attribute__((always_inline)) Vec<T> weight_of(Vec<T> x, Vec<T> inverse_sum) {
  return exp2(x > 0 ? Vec<T>{} : x) * inverse_sum;
}
// What products are multiplied by.
template <class T>
inline T score_factor(const Problem& p) {
  return static_cast<T>(p.scale) * score_unit<T>(p);
}

// Hands out pieces of one block of scratch memory.
template <class T>
struct Carver {
  T* next;
  T* take(int64_t count) {
    T* piece = next;
    next += (count + 15) / 16 * 16;
    return piece;
  }
};

}  // namespace erlangen::ERLANGEN_ISA
