// Which parts of a tile hold pairs of the relation, and sums over its keys that leave out the others.
#pragma once
#include <algorithm>
#include <bit>

#include "multiply.h"
#include "problem.h"

namespace erlangen::ERLANGEN_ISA {

inline constexpr int kGroups = (kTile + kRows - 1) / kRows;  // groups of kRows keys in a tile
template <class T>
inline constexpr int kPanels = kTile / kPanel<T>;

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

// The mask words of tile t, or null when all its pairs hold and no query of the block is out of range.
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

}  // namespace erlangen::ERLANGEN_ISA
