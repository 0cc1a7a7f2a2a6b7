// Drivers of the edge kernels for one instruction set.
#include "bias.h"
#include "edges_kernels.h"
#include "kernels.h"

namespace erlangen::ERLANGEN_ISA {
namespace {

inline constexpr int64_t kRowsOfTask = 64;

// Calls row(b, h, i) for all rows, head after head, so that little is gathered from. Where the heads of a position lie
// together in memory, they are visited together.
template <class F>
void for_rows(const Problem& p, const View& gathered, int64_t heads, int64_t rows, F&& row) {
  const int64_t chunks = (rows + kRowsOfTask - 1) / kRowsOfTask;
  const bool together = heads > 1 && gathered.head < gathered.row;
  const int64_t outer = together ? 1 : heads, inner = together ? heads : 1;
  parallel(p.batch * outer * chunks, p.threads, [&](int64_t n) {
    const int64_t b = n / (outer * chunks), h = n / chunks % outer, first = n % chunks * kRowsOfTask;
    for (int64_t i = first; i < std::min(rows, first + kRowsOfTask); ++i)
      for (int64_t x = 0; x < inner; ++x) row(b, h + x, i);
  });
}

template <class S>
void forward(const Problem& p) {
  using T = Accumulator<S>;
  Edges<S> kernel{p};
  if (p.bias) {
    T* reversed = static_cast<T*>(scratch(0, sizeof(T) * p.bias_heads * (p.queries + p.keys + kTile)));
    reverse_bias(p, reversed);
    kernel.bias = reversed;
  }
  for_rows(p, p.k, p.heads, p.queries, [&](int64_t b, int64_t h, int64_t i) { kernel.forward(b, h, i); });
}

template <class S>
void backward(const Problem& p) {
  using T = Accumulator<S>;
  Edges<S> kernel{p};
  const int64_t all_heads = p.batch * p.heads, all_rows = all_heads * p.queries, row = p.queries + p.keys + kTile;
  const int64_t per_head = all_heads ? (pieces_of_work() + all_heads - 1) / all_heads : 0;
  const int64_t pieces = p.dbias ? all_heads * per_head : 0;
  const int64_t biases = p.bias ? p.bias_heads * row : 0;
  Carver<T> carve{static_cast<T*>(scratch(0, sizeof(T) * (2 * all_rows + biases + pieces * row + 64)))};
  kernel.lse2 = carve.take(all_rows);
  kernel.delta = carve.take(all_rows);
  T* reversed = carve.take(biases);
  if (p.bias) {
    reverse_bias(p, reversed);
    kernel.bias = reversed;
  }
  if (p.dbias) {  // each piece of a head has its own sums
    T* dbias = carve.take(pieces * row);
    parallel(pieces, p.threads, [&](int64_t n) {
      const int64_t b = n / per_head / p.heads, h = n / per_head % p.heads, part = n % per_head;
      std::fill_n(dbias + n * row, row, T{0});
      for (int64_t i = p.queries * part / per_head; i < p.queries * (part + 1) / per_head; ++i)
        kernel.backward_query(b, h, i, dbias + n * row);
    });
    sum_dbias(p, dbias, pieces, [&](int64_t n) { return n / per_head % p.heads; });
  } else {
    for_rows(p, p.k, p.heads, p.queries,
             [&](int64_t b, int64_t h, int64_t i) { kernel.backward_query(b, h, i, nullptr); });
  }
  for_rows(p, p.q, p.kv_heads, p.keys,
           [&](int64_t b, int64_t kv, int64_t j) { kernel.backward_key(b, kv, j); });
}

}  // namespace

void edges_forward(const Problem& p) {
  with_storage(p.storage, [&](auto s) { forward<decltype(s)>(p); });
}
void edges_backward(const Problem& p) {
  with_storage(p.storage, [&](auto s) { backward<decltype(s)>(p); });
}

}  // namespace erlangen::ERLANGEN_ISA
