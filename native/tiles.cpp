// Drivers of the tile kernels for one instruction set.
#include <vector>

#include "thread_pool.h"
#include "tiles_backward.h"
#include "tiles_forward.h"

namespace erlangen::ERLANGEN_ISA {
namespace {

template <class S>
void forward(const Problem& p) {
  using T = Accumulator<S>;
  TilesForward<S> kernel{p};
  if (p.bias) {
    const int64_t size = p.bias_heads * reversed_size(p);
    T* reversed = Arena<T>(Scratch::driver, size).allocate(size);
    reverse_bias(p, reversed);
    kernel.bias = reversed;
  }
  const int64_t rows = p.tiles.rows;
  constexpr int64_t grain = 16;  // neighbours often read the same keys
  parallel(
      p.batch * p.heads * rows, p.threads,
      [&](int64_t n) {
        const int64_t head = n / rows;
        kernel.block(head / p.heads, head % p.heads, rows - 1 - n % rows);
      },
      grain);
}

template <class S>
void backward(const Problem& p) {
  using T = Accumulator<S>;
  TilesBackward<S> kernel{p};
  const int64_t num_pieces = static_cast<int64_t>(kernel.pieces.size());
  const int64_t blocks = num_pieces ? kernel.pieces.back().index(kernel.pieces.back().last_block) : 0;
  const int64_t biases = p.bias ? p.bias_heads * reversed_size(p) : 0;
  const int64_t dbiases = p.dbias ? num_pieces * reversed_size(p) : 0;
  Arena<T> arena(Scratch::driver, blocks * kernel.share_size() + biases + dbiases + blocks + 64);
  kernel.shares = arena.allocate(blocks * kernel.share_size());
  T* reversed = arena.allocate(biases);
  if (p.bias) {
    reverse_bias(p, reversed);
    kernel.bias = reversed;
  }
  T* dbias = arena.allocate(dbiases);
  std::fill_n(dbias, dbiases, T{0});  // a piece may have no rows
  if (p.dbias) kernel.dbias = dbias;
  kernel.touched = reinterpret_cast<uint8_t*>(arena.allocate(blocks));
  std::fill_n(kernel.touched, blocks, uint8_t{0});

  std::vector<int64_t> row, left;
  for (int64_t n = 0; n < num_pieces; ++n) {
    row.push_back(kernel.pieces[n].first_row);
    left.push_back(kernel.work_left(n, row.back()));
  }
  parallel_chains(left, p.threads, [&](int64_t n, int64_t work) {
    row[n] = kernel.advance(n, row[n], work);
    return kernel.work_left(n, row[n]);
  });
  const int64_t columns = (p.keys + kTile - 1) / kTile, all_heads = p.batch * p.heads;
  const int64_t per_head = all_heads ? num_pieces / all_heads : 0, group = p.heads / p.kv_heads;
  parallel(p.batch * p.kv_heads * columns, p.threads, [&](int64_t n) {
    const int64_t kv = n / columns;
    kernel.reduce(kv / p.kv_heads, kv % p.kv_heads, n % columns, kv * group * per_head, (kv + 1) * group * per_head);
  });
  if (p.dbias) sum_dbias(p, dbias, num_pieces, [&](int64_t n) { return kernel.pieces[n].head; });
}

}  // namespace

void tiles_forward(const Problem& p) {
  with_storage(p.storage, [&](auto s) { forward<decltype(s)>(p); });
}
void tiles_backward(const Problem& p) {
  with_storage(p.storage, [&](auto s) { backward<decltype(s)>(p); });
}

}  // namespace erlangen::ERLANGEN_ISA
