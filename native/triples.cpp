// Drivers of the kernels over triples for one instruction set.
#include "kernels.h"
#include "triples_kernels.h"

namespace erlangen::ERLANGEN_ISA {
namespace {

inline constexpr int64_t kRowsOfTask = 16;

template <class F>
void for_rows(const TripleProblem& p, F&& row) {
  const int64_t chunks = (p.n + kRowsOfTask - 1) / kRowsOfTask;
  parallel(p.batch * p.heads * chunks, p.threads, [&](int64_t n) {
    const int64_t head = n / chunks, first = n % chunks * kRowsOfTask;
    for (int64_t r = first; r < std::min(p.n, first + kRowsOfTask); ++r) row(head / p.heads, head % p.heads, r);
  });
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
  Carver<T> carve{static_cast<T*>(scratch(0, sizeof(T) * (3 * rows + 64)))};
  kernel.highest = carve.take(rows);
  kernel.inverse = carve.take(rows);
  kernel.delta = carve.take(rows);
  for_rows(p, [&](int64_t b, int64_t h, int64_t i) { kernel.prepare(b, h, i); });
  for (int place = 0; place < 3; ++place)
    for_rows(p, [&](int64_t b, int64_t h, int64_t r) { kernel.backward(place, b, h, r); });
}

void forward_any(const TripleProblem& p) {
  with_storage(p.storage, [&](auto s) { forward<decltype(s)>(p); });
}
void backward_any(const TripleProblem& p) {
  with_storage(p.storage, [&](auto s) { backward<decltype(s)>(p); });
}

}  // namespace

extern const TripleKernels triple_kernels{forward_any, backward_any};

}  // namespace erlangen::ERLANGEN_ISA
