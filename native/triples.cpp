// Drivers of the kernels over triples for one instruction set.
#include "thread_pool.h"
#include "triple_rows.h"

namespace erlangen::ERLANGEN_ISA {
namespace {

template <class F>
void for_rows(const TripleProblem& p, F&& row) {
  parallel_rows(p.batch, p.heads, p.n, 16, false, p.threads, row);
}

template <class S>
void forward(const TripleProblem& p) {
  const TripleRow<S> kernel{p};
  for_rows(p, [&](int64_t b, int64_t h, int64_t i) { kernel.forward(b, h, i); });
}

template <class S>
void backward(const TripleProblem& p) {
  using T = Accumulator<S>;
  TripleRow<S> kernel{p};
  const int64_t rows = p.batch * p.heads * p.n;
  Arena<T> arena(Scratch::driver, 3 * rows + 64);
  kernel.maximum = arena.allocate(rows);
  kernel.inverse = arena.allocate(rows);
  kernel.delta = arena.allocate(rows);
  for_rows(p, [&](int64_t b, int64_t h, int64_t i) { kernel.prepare(b, h, i); });
  for (int place = 0; place < 3; ++place)
    for_rows(p, [&](int64_t b, int64_t h, int64_t r) { kernel.backward(place, b, h, r); });
}

}  // namespace

void triples_forward(const TripleProblem& p) {
  with_storage(p.storage, [&](auto s) { forward<decltype(s)>(p); });
}
void triples_backward(const TripleProblem& p) {
  with_storage(p.storage, [&](auto s) { backward<decltype(s)>(p); });
}

}  // namespace erlangen::ERLANGEN_ISA
