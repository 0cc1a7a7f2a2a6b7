// Attention over triples: what a kernel is asked to compute, and the index of a ternary relation.
#pragma once
#include <cstdint>
#include <vector>

#include "index.h"
#include "problem.h"

namespace erlangen {

// The triples seen from one of their places: row r owns [indptr[r], indptr[r + 1]), `a` and `b` are the other two
// places in order. kAhead zeros follow, so that a whole batch may be read at the end.
struct TripleRows {
  const int64_t* indptr = nullptr;
  const int32_t* a = nullptr;
  const int32_t* b = nullptr;
};

// Place 0 is the query, 1 the first key, 2 the second. Logits are trilinear in x[0], x[1], x[2]; the gradient of a weight
// is trilinear in y[0], y[1], y[2].
struct TripleProblem {
  Storage storage = Storage::f32;
  int64_t batch = 0, heads = 0, n = 0, dim = 0, dim_v = 0;
  View x[3];            // q, k1, k2
  View y[3];            // grad (backward only), v1, v2
  View out;             // written forward and read backward
  View dx[3], dy[3];    // backward only; dy[0] is not used
  void* lse = nullptr;  // (batch, heads, n) contiguous, float or double; -inf where a query reads no pair
  void* stats = nullptr;  // (batch, heads, n, 2), see Problem
  TripleRows rows[3];
  double scale = 1;
  int threads = 1;
};

// The kernels of one instruction set.
struct TripleKernels {
  void (*forward)(const TripleProblem&);
  void (*backward)(const TripleProblem&);
};

// Copied and checked once, in three orders.
class TripleIndex {
 public:
  TripleIndex(int64_t n, Span<int64_t> indptr, Span<int64_t> first, Span<int64_t> second);
  void apply(TripleProblem& problem) const;
  const int64_t n;
  int64_t triples() const { return triples_; }

 private:
  int64_t triples_;
  std::vector<int64_t> indptr_[3];
  std::vector<int32_t> a_[3], b_[3];
};

// Those of the instruction set of this name.
const TripleKernels& triple_kernels(const char* instruction_set);

}  // namespace erlangen
