// What a kernel is asked to compute: plain views of tensors and of a relation's index, already validated.
#pragma once
#include <cstdint>

namespace erlangen {

inline constexpr int kTile = 64;  // queries and keys of a tile; one 64-bit word holds a row of a pattern

enum class Storage { f32, f64, bf16, f16 };

// A (batch, head, position, feature) tensor whose features are contiguous; strides count elements.
struct View {
  void* data = nullptr;
  int64_t batch = 0, head = 0, row = 0;

  // Whether the heads of a position lie together in memory.
  bool together(int64_t heads) const { return heads > 1 && head < row; }
};

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
inline constexpr int kAhead = 64;  // indices that may be looked at beyond the current one

// A piece of the tile backward: consecutive query blocks of one head. It sums its own share of dk and dv over the key
// blocks it touches; the shares of a key head are added up in the order of the pieces. What a piece alone touches it
// writes at once.
struct TilePiece {
  int64_t batch, head, first_row, last_row;
  int64_t first_block, last_block;  // key blocks touched
  int64_t offset;                   // key blocks of all earlier pieces together
  int64_t first_own, last_own;      // key blocks that no other piece of the key head touches: dk and dv are its own

  bool owns(int64_t block) const { return first_own <= block && block < last_own; }
  int64_t place(int64_t block) const { return offset + block - first_block; }  // among the key blocks of all pieces
};

// A score s becomes: s; a tanh(s / a); s or a s by its sign; a log |s + b|.
enum class MapKind : int { identity, cap, leaky, log };

struct Problem {
  Storage storage = Storage::f32;
  int64_t batch = 0, heads = 0, kv_heads = 0, queries = 0, keys = 0, dim = 0, dim_v = 0;
  View q, k, v, out;               // out is written forward and read backward
  View grad, dq, dk, dv;           // backward only
  void* lse = nullptr;             // (batch, heads, queries) contiguous, float or double; -inf on empty rows
  const void* grad_lse = nullptr;  // the same shape, or null
  // (batch, heads, queries, 2) contiguous: the maximum of the scores in units of log2, and the sum of 2^(score - maximum),
  // 0 on empty rows. Written forward where a gradient is wanted. The log-sum-exp alone would not do for the backward
  // pass: next to a large maximum it has no digits left for the logarithm of the sum.
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
  const TilePiece* pieces = nullptr;  // ordered by batch, then head, then row
  int64_t num_pieces = 0;
  RunView runs, runs_t;            // runs_t is the transposed relation: for each key, the queries that read it
  double scale = 1, dropout = 0;
  uint64_t seed = 0;
  int threads = 1;

  int64_t relation(int64_t b, int64_t h) const { return which[b * which_batch + h * which_head]; }
  int64_t kv_head(int64_t h) const { return h / (heads / kv_heads); }
};

// The kernels of one instruction set.
struct Kernels {
  const char* name;
  void (*tiles_forward)(const Problem&);
  void (*tiles_backward)(const Problem&);
  void (*edges_forward)(const Problem&);
  void (*edges_backward)(const Problem&);
};

}  // namespace erlangen
