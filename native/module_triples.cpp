#include "module_triples.h"

#include "arrays.h"
#include "triples.h"

using namespace nb::literals;

namespace erlangen {
namespace {

const char* (*instruction_set_in_use)() = nullptr;

struct Triples {
  TripleIndex index;
  Triples(int64_t n, Integers<int64_t> indptr, Integers<int64_t> first, Integers<int64_t> second)
      : index(n, span(indptr), span(first), span(second)) {}
};

TripleProblem make_problem(const Triples& triples, const Input (&x)[3], const Input& v1, const Input& v2, double scale,
                           int threads) {
  TripleProblem p;
  const Input& q = x[0];
  require(q.ndim() == 4 && v1.ndim() == 4, "q and v1 must have shape (batch, heads, n, dim)");
  const auto storage = storage_of(q.dtype());
  require(storage.has_value(), "q must be float32, float64, bfloat16 or float16");
  p.storage = *storage;
  p.batch = q.shape(0);
  p.heads = q.shape(1);
  p.n = q.shape(2);
  p.dim = q.shape(3);
  p.dim_v = v1.shape(3);
  require(threads >= 1, "at least one thread is needed");
  const char* names[] = {"q", "k1", "k2"};
  for (int place = 0; place < 3; ++place) p.x[place] = view(x[place], p, p.heads, p.n, p.dim, names[place]);
  p.y[1] = view(v1, p, p.heads, p.n, p.dim_v, "v1");
  p.y[2] = view(v2, p, p.heads, p.n, p.dim_v, "v2");
  p.scale = scale;
  p.threads = threads;
  triples.index.apply(p);
  return p;
}

bool empty(const TripleProblem& p) { return p.batch == 0 || p.heads == 0 || p.n == 0; }

void forward(const Triples& triples, const Input& q, const Input& k1, const Input& k2, const Input& v1,
             const Input& v2, const Output& out, const Output& lse, const Output& stats, double scale, int threads) {
  TripleProblem p = make_problem(triples, {q, k1, k2}, v1, v2, scale, threads);
  p.out = view(out, p, p.heads, p.n, p.dim_v, "out");
  p.lse = accumulators(lse, p, {p.batch, p.heads, p.n}, "lse");
  p.stats = accumulators(stats, p, {p.batch, p.heads, p.n, 2}, "stats");
  if (empty(p)) return;
  const TripleKernels& kernels = triple_kernels(instruction_set_in_use());
  nb::gil_scoped_release free;
  kernels.forward(p);
}

void backward(const Triples& triples, const Input& q, const Input& k1, const Input& k2, const Input& v1,
              const Input& v2, const Input& grad, const Input& out, const Input& stats, const Output& dq,
              const Output& dk1, const Output& dk2, const Output& dv1, const Output& dv2, double scale, int threads) {
  TripleProblem p = make_problem(triples, {q, k1, k2}, v1, v2, scale, threads);
  p.y[0] = view(grad, p, p.heads, p.n, p.dim_v, "grad");
  p.out = view(out, p, p.heads, p.n, p.dim_v, "out");
  p.stats = accumulators(stats, p, {p.batch, p.heads, p.n, 2}, "stats");
  p.dx[0] = view(dq, p, p.heads, p.n, p.dim, "dq");
  p.dx[1] = view(dk1, p, p.heads, p.n, p.dim, "dk1");
  p.dx[2] = view(dk2, p, p.heads, p.n, p.dim, "dk2");
  p.dy[1] = view(dv1, p, p.heads, p.n, p.dim_v, "dv1");
  p.dy[2] = view(dv2, p, p.heads, p.n, p.dim_v, "dv2");
  if (empty(p)) return;
  const TripleKernels& kernels = triple_kernels(instruction_set_in_use());
  nb::gil_scoped_release free;
  kernels.backward(p);
}

}  // namespace

void add_triples(nb::module_& m, const char* (*instruction_set)()) {
  instruction_set_in_use = instruction_set;
  nb::class_<Triples>(m, "Triples", nb::is_weak_referenceable())
      .def(nb::init<int64_t, Integers<int64_t>, Integers<int64_t>, Integers<int64_t>>(), "n"_a, "indptr"_a, "first"_a,
           "second"_a);
  m.def("triples_forward", forward, "triples"_a, "q"_a, "k1"_a, "k2"_a, "v1"_a, "v2"_a, "out"_a, "lse"_a, "stats"_a, "scale"_a,
        "threads"_a);
  m.def("triples_backward", backward, "triples"_a, "q"_a, "k1"_a, "k2"_a, "v1"_a, "v2"_a, "grad"_a, "out"_a, "stats"_a,
        "dq"_a, "dk1"_a, "dk2"_a, "dv1"_a, "dv2"_a, "scale"_a, "threads"_a);
}

}  // namespace erlangen
