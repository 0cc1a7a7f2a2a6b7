// What a kernel is asked to compute: views of tensors and of a relation's index, already validated.
#pragma once
#include <cstdint>

#include "view.h"

namespace erlangen {

inline constexpr int kTile = 64;  // queries and keys of a tile; one 64-bit word holds a row of a pattern

// Block row r of relation x owns tiles [indptr[x * (rows + 1) + r], indptr[x * (rows + 1) + r + 1]).
struct TileView {
  int64_t rows = 0;
  const int64_t* indptr = nullptr;
  const int32_t* columns = nullptr;   // key block of each tile, increasing in a block row
  const int32_t* pattern = nullptr;   // -1: every in-range pair
  const uint64_t* patterns = nullptr; // 64 words per pattern: word j has bit i when query i reads key j
};

// Row i of relation x owns runs [indptr[x * (rows + 1) + i], indptr[x * (rows + 1) + i + 1]).
// Where runs are short they are stored as single indices: `stops` is then null and kAhead zeros follow the starts.
struct RunView {
  int64_t rows = 0;
  const int64_t* indptr = nullptr;
  const int32_t* starts = nullptr;
  const int32_t* stops = nullptr;
  const int64_t* before = nullptr;  // how many edges come before each row of relation 0
};
inline constexpr int kAhead = 64;  // indices that may be read beyond the current one

// From when on rows are gathered so often, and so much in all, that it pays to repack them first: measured on graphs of
// 2,000 to 100,000 nodes.
inline constexpr int64_t kOftenGathered = 12;                 // times each row, on average
inline constexpr int64_t kMuchGathered = int64_t{256} << 20;  // bytes, by all heads of an item

// A score s becomes: s; a tanh(s / a); s or a s by its sign; a log |s + b|.
enum class MapKind : int { identity, cap, leaky, log };

struct Problem {
  Storage storage = Storage::f32;
  int64_t batch = 0, heads = 0, kv_heads = 0, queries = 0, keys = 0, dim = 0, dim_v = 0;
  View q, k, v, out;               // out is written forward and read backward
  View grad, dq, dk, dv;           // backward only
  void* lse = nullptr;             // (batch, heads, queries) contiguous, float or double; -inf on empty rows
  const void* grad_lse = nullptr;  // the same shape, or null
  // (batch, heads, queries, 2) contiguous: the maximum of the scores in units of log2, and the sum of
  // 2^(score - maximum), 0 on empty rows. Written forward where a gradient is wanted. The log-sum-exp alone would not do
  // for the backward pass: next to a large maximum it has no digits left for the logarithm of the sum.
  void* stats = nullptr;
  const void* bias = nullptr;      // (bias_heads, queries + keys - 1): pair (i, j) adds bias[j - i + queries - 1]
  void* dbias = nullptr;           // the same shape, or null
  int64_t bias_heads = 0;
  bool per_edge = false;           // of edges only: the bias has shape (bias_heads, edges) for the one relation
  int64_t edges = 0;
  const void* bias_t = nullptr;    // a per-edge bias in the order of the transposed relation; backward only
  const void* vector = nullptr;    // of edges only, (vector_heads, dim): scores are sum_d vector_d map(q_d + k_d)
  void* dvector = nullptr;         // the same shape, or null
  int64_t vector_heads = 0;
  MapKind map = MapKind::identity;
  double map_a = 0, map_b = 0;
  const int32_t* which = nullptr;  // the relation of head h of batch item b: which[b * which_batch + h * which_head]
  int64_t which_batch = 0, which_head = 0;
  TileView tiles;
  RunView runs, runs_t;            // runs_t is the transposed relation: for each key, the queries that read it
  double scale = 1, dropout = 0;
  uint64_t seed = 0;
  int threads = 1;

  int64_t relation(int64_t b, int64_t h) const { return which[b * which_batch + h * which_head]; }
  int64_t kv_head(int64_t h) const { return h / (heads / kv_heads); }
};

// The triples seen from one of their places: row r owns [indptr[r], indptr[r + 1]), `a` and `b` are the other two
// places in order. kAhead zeros follow, so that whole vectors may be read at the end.
struct TripleRows {
  const int64_t* indptr = nullptr;
  const int32_t* a = nullptr;
  const int32_t* b = nullptr;
};

// Place 0 is the query, 1 the first key, 2 the second. Logits are trilinear in x[0], x[1], x[2]; the gradient of a
// weight is trilinear in y[0], y[1], y[2].
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

}  // namespace erlangen
