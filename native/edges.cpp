// Drivers of the edge kernels for one instruction set.
#include "edges.h"

#include "repack.h"

namespace erlangen::ERLANGEN_ISA {
namespace {

// Head after head, so that little is gathered from.
template <class F>
void for_rows(const Problem& p, const View& gathered, int64_t heads, int64_t rows, F&& row) {
  parallel_rows(p.batch, heads, rows, 64, gathered.heads_last(heads), p.threads, row);
}

// The Toeplitz bias reversed, and the vector in units of log2 with padded rows, in memory of the arena.
template <class S, bool Plain, class T = Accumulator<S>>
void set_parameters(Edges<S, Plain>& kernel, const Problem& p, Arena<T>& arena) {
  if (p.bias && !p.per_edge) {
    T* reversed = arena.allocate(p.bias_heads * reversed_size(p));
    reverse_bias(p, reversed);
    kernel.bias = reversed;
  }
  if (p.vector) {
    T* vector = arena.allocate(p.vector_heads * kernel.vector_size());
    for (int64_t h = 0; h < p.vector_heads; ++h)
      for (int64_t d = 0; d < kernel.vector_size(); ++d)
        vector[h * kernel.vector_size() + d] =
            d < p.dim ? static_cast<const T*>(p.vector)[h * p.dim + d] * static_cast<T>(kLog2E) : T{0};
    kernel.vector = vector;
  }
}
template <class S, bool Plain>
int64_t size_of_parameters(const Edges<S, Plain>& kernel, const Problem& p) {
  const int64_t biases = p.bias && !p.per_edge ? p.bias_heads * reversed_size(p) : 0;
  return biases + p.vector_heads * kernel.vector_size() + 64;
}

template <class S, bool Plain>
void forward(const Problem& p) {
  using T = Accumulator<S>;
  const bool repacked = repacking_pays<S>(p, p.k, p.runs, p.kv_heads, p.keys);
  const Repacked<S> copies(p, repacked ? p.kv_heads * p.keys : 0);
  Problem local = p;
  if (repacked) copies.repack(local.k, local.v, p.kv_heads, p.keys);
  Edges<S, Plain> kernel{local};
  if (p.bias || p.vector) {
    Arena<T> arena(Scratch::driver, size_of_parameters(kernel, p));
    set_parameters(kernel, p, arena);
  }
  for_rows(p, local.k, p.heads, p.queries, [&](int64_t b, int64_t h, int64_t i) { kernel.forward(b, h, i); });
}

// dq, with the sums over rows that are a bias's or a vector's derivative: each piece of the work has its own. The
// derivative by a bias of edges has an entry per edge, so the heads and items that share it are visited in turn.
template <class S, bool Plain, class T>
void backward_with_sums(const Edges<S, Plain>& kernel, const Problem& p, T* sums, int64_t per_group) {
  const int64_t sharing = !p.per_edge ? 1 : p.bias_heads == 1 ? p.heads * p.batch : p.batch;
  const int64_t groups = p.batch * p.heads / sharing, pieces = groups * per_group;
  const int64_t row = p.dbias && !p.per_edge ? reversed_size(p) : 0;
  const int64_t vector_row = kernel.vector_size(), vectors = p.vector_heads * vector_row;
  T* vector_sums = sums + pieces * row;
  parallel(pieces, p.threads, [&](int64_t n) {
    const int64_t group = n / per_group, part = n % per_group;
    std::fill_n(sums + n * row, row, T{0});
    std::fill_n(vector_sums + n * vectors, vectors, T{0});
    for (int64_t x = 0; x < sharing; ++x) {
      const int64_t head = group + x * groups;  // heads and items of a group are `groups` apart
      const int64_t b = head / p.heads, h = head % p.heads;
      T* dbias = !p.dbias ? nullptr : !p.per_edge ? sums + n * row
                 : static_cast<T*>(p.dbias) + (p.bias_heads == 1 ? 0 : h) * p.edges;
      T* dvector = p.dvector ? vector_sums + n * vectors + (p.vector_heads == 1 ? 0 : h) * vector_row : nullptr;
      for (int64_t i = p.queries * part / per_group; i < p.queries * (part + 1) / per_group; ++i)
        kernel.backward_query(b, h, i, dbias, dvector);
    }
  });
  if (row) sum_dbias(p, sums, pieces, [&](int64_t n) { return n / per_group % p.heads; });
  if (p.dvector)
    for (int64_t h = 0; h < p.vector_heads; ++h)
      for (int64_t d = 0; d < p.dim; ++d) {
        T total = 0;
        for (int64_t n = 0; n < pieces; ++n) total += vector_sums[n * vectors + h * vector_row + d];
        static_cast<T*>(p.dvector)[h * p.dim + d] = total;
      }
}

template <class S, bool Plain>
void backward(const Problem& p) {
  using T = Accumulator<S>;
  const bool repacked_keys = repacking_pays<S>(p, p.k, p.runs, p.kv_heads, p.keys);
  const bool repacked_queries = repacking_pays<S>(p, p.q, p.runs_t, p.heads, p.queries);
  const Repacked<S> copies(
      p, std::max(repacked_keys ? p.kv_heads * p.keys : 0, repacked_queries ? p.heads * p.queries : 0));
  Problem local = p;
  Edges<S, Plain> kernel{local};
  kernel.statistics_heads_last = !repacked_queries && p.q.heads_last(p.heads);
  const int64_t all_heads = p.batch * p.heads, all_rows = all_heads * p.queries;
  const bool summed = p.dbias || p.dvector;
  const int64_t groups = !p.per_edge ? all_heads : p.bias_heads == 1 ? 1 : p.heads;
  const int64_t per_group = groups ? (pieces_of_work(16) + groups - 1) / groups : 0;
  const int64_t row = (p.dbias && !p.per_edge ? reversed_size(p) : 0) + p.vector_heads * kernel.vector_size();
  const int64_t sums = summed ? groups * per_group * row : 0;
  const int64_t size = 3 * all_rows + size_of_parameters(kernel, p) + sums + 128;
  Arena<T> arena(Scratch::driver, size);
  kernel.statistics = reinterpret_cast<typename Edges<S, Plain>::Statistic*>(arena.allocate(3 * all_rows));
  set_parameters(kernel, p, arena);
  if (repacked_keys) copies.repack(local.k, local.v, p.kv_heads, p.keys);
  if (summed)
    backward_with_sums(kernel, p, arena.allocate(sums), per_group);
  else
    for_rows(p, local.k, p.heads, p.queries,
             [&](int64_t b, int64_t h, int64_t i) { kernel.backward_query(b, h, i, nullptr, nullptr); });
  local = p;  // now keys are visited one by one, and queries gathered
  if (repacked_queries) copies.repack(local.q, local.grad, p.heads, p.queries);
  for_rows(p, local.q, p.kv_heads, p.keys,
           [&](int64_t b, int64_t kv, int64_t j) { kernel.backward_key(b, kv, j); });
}

bool plain(const Problem& p) { return p.map == MapKind::identity && !p.vector && !p.per_edge; }

}  // namespace

void edges_forward(const Problem& p) {
  with_storage(p.storage, [&](auto s) {
    using S = decltype(s);
    plain(p) ? forward<S, true>(p) : forward<S, false>(p);
  });
}
void edges_backward(const Problem& p) {
  with_storage(p.storage, [&](auto s) {
    using S = decltype(s);
    plain(p) ? backward<S, true>(p) : backward<S, false>(p);
  });
}

}  // namespace erlangen::ERLANGEN_ISA
