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
  std::vector<int64_t> shape;
};

// The lengths of distinct relations, and which of them each batch item and head has: `which` has shape (batch, heads),
// either of them 1 if it does not matter.
class PairIndex {
 public:
  const int64_t queries, keys, relations;

 protected:
  PairIndex(int64_t queries, int64_t keys, int64_t relations, const Span<int64_t>& which);
  void apply(Problem& problem) const;

 private:
  std::vector<int32_t> which_;
  int64_t batch_, heads_;
};

class TileIndex : public PairIndex {
 public:
  // indptr has (relations, rows + 1) entries; patterns 64 words each, bit j of word i: query i reads key j.
  TileIndex(int64_t queries, int64_t keys, int64_t relations, const Span<int64_t>& indptr, const Span<int64_t>& columns,
            const Span<int64_t>& pattern, const Span<uint64_t>& patterns, const Span<int64_t>& which);
  void apply(Problem& problem) const;

 private:
  std::vector<int64_t> indptr_;
  std::vector<int32_t> columns_, pattern_;
  std::vector<uint64_t> patterns_;
};

class RunIndex : public PairIndex {
 public:
  RunIndex(int64_t queries, int64_t keys, int64_t relations, const Span<int64_t>& indptr, const Span<int64_t>& starts,
           const Span<int64_t>& stops, const Span<int64_t>& which);
  void apply(Problem& problem) const;
  RunView view() const;
  int64_t pairs = 0;  // of all relations

 private:
  std::vector<int64_t> indptr_, before_;
  std::vector<int32_t> starts_, stops_;
};

// The triples in three orders: by query, by first key and by second key.
class TripleIndex {
 public:
  TripleIndex(int64_t n, const Span<int64_t>& indptr, const Span<int64_t>& first, const Span<int64_t>& second);
  void apply(TripleProblem& problem) const;
  const int64_t n;

 private:
  std::vector<int64_t> indptr_[3];
  std::vector<int32_t> a_[3], b_[3];
};

}  // namespace erlangen
