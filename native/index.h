// A relation's index, copied and checked once: every offset, block, pattern and run is in range, whatever was passed.
#pragma once
#include <cstdint>
#include <vector>

#include "problem.h"

namespace erlangen {

// A borrowed array of integers, as it comes from the caller.
template <class T>
struct Span {
  const T* data;
  int64_t size;
};

// Which relation each batch item and head uses: (batch, heads), either of them 1 if it does not matter.
class Which {
 public:
  Which(Span<int64_t> which, int64_t batch, int64_t heads, int64_t relations);
  void apply(Problem& problem) const;

 private:
  std::vector<int32_t> which_;
  int64_t batch_, heads_;
};

class TileIndex {
 public:
  // indptr has (relations, rows + 1) entries; patterns 64 words each, bit j of word i: query i reads key j.
  TileIndex(int64_t queries, int64_t keys, int64_t relations, Span<int64_t> indptr, Span<int64_t> columns,
            Span<int64_t> pattern, Span<uint64_t> patterns);
  TileView view() const;
  const int64_t queries, keys, relations;

 private:
  std::vector<int64_t> indptr_;
  std::vector<int32_t> columns_, pattern_;
  std::vector<uint64_t> patterns_;
};

class RunIndex {
 public:
  RunIndex(int64_t queries, int64_t keys, int64_t relations, Span<int64_t> indptr, Span<int64_t> starts,
           Span<int64_t> stops);
  RunView view() const;
  const int64_t queries, keys, relations;
  int64_t pairs = 0;  // of all relations together

 private:
  std::vector<int64_t> indptr_, before_;
  std::vector<int32_t> starts_, stops_;
};

}  // namespace erlangen
