// Entry points of attention over triples.
#include "arguments.h"
#include "dispatch.h"

using namespace nb::literals;

namespace erlangen {
namespace {

TripleProblem make_problem(const TripleIndex& triples, const TripleInputs& in, double scale, int threads) {
  TripleProblem p;
  const Input& q = in.x[0];
  require(q.ndim() == 4 && in.v1.ndim() == 4, "q and v1 must have shape (batch, heads, n, dim)");
  const auto storage = storage_of(q.dtype());
  require(storage.has_value(), "q must be float32, float64, bfloat16 or float16");
  p.storage = *storage;
  p.batch = q.shape(0);
  p.heads = q.shape(1);
  p.n = q.shape(2);
  p.dim = q.shape(3);
  p.dim_v = in.v1.shape(3);
  require(threads >= 1, "at least one thread is needed");
  const char* names[] = {"q", "k1", "k2"};
  for (int place = 0; place < 3; ++place) p.x[place] = view(in.x[place], p, p.heads, p.n, p.dim, names[place]);
  p.y[1] = view(in.v1, p, p.heads, p.n, p.dim_v, "v1");
  p.y[2] = view(in.v2, p, p.heads, p.n, p.dim_v, "v2");
  p.scale = scale;
  p.threads = threads;
  triples.apply(p);
  return p;
}

void run(const TripleProblem& p, void (*kernel)(const TripleProblem&)) {
  if (p.batch == 0 || p.heads == 0 || p.n == 0) return;
  nb::gil_scoped_release free;
  kernel(p);
}

void forward(const TripleIndex& triples, const TripleInputs& in, double scale, int threads, const Results& results) {
  TripleProblem p = make_problem(triples, in, scale, threads);
  p.out = view(results.out, p, p.heads, p.n, p.dim_v, "out");
  p.lse = accumulators(results.lse, p, {p.batch, p.heads, p.n}, "lse");
  if (results.stats) p.stats = accumulators(*results.stats, p, {p.batch, p.heads, p.n, 2}, "stats");
  run(p, kernels().triples_forward);
}

void backward(const TripleIndex& triples, const TripleInputs& in, double scale, int threads, const Upstream& upstream,
              const TripleGradients& gradients) {
  TripleProblem p = make_problem(triples, in, scale, threads);
  require(!upstream.grad_lse, "a gradient of the log-sum-exp over triples is not supported");
  p.y[0] = view(upstream.grad, p, p.heads, p.n, p.dim_v, "grad");
  p.out = view(upstream.out, p, p.heads, p.n, p.dim_v, "out");
  p.stats = accumulators(upstream.stats, p, {p.batch, p.heads, p.n, 2}, "stats");
  const char* names[] = {"dq", "dk1", "dk2"};
  for (int place = 0; place < 3; ++place) p.dx[place] = view(gradients.dx[place], p, p.heads, p.n, p.dim, names[place]);
  p.dy[1] = view(gradients.dv1, p, p.heads, p.n, p.dim_v, "dv1");
  p.dy[2] = view(gradients.dv2, p, p.heads, p.n, p.dim_v, "dv2");
  run(p, kernels().triples_backward);
}

}  // namespace

void bind_triples(nb::module_& m) {
  using Integers = Span<int64_t>;
  nb::class_<TripleIndex>(m, "Triples", nb::is_weak_referenceable())
      .def(nb::init<int64_t, Integers, Integers, Integers>(), "n"_a, "indptr"_a, "first"_a, "second"_a);
  m.def("triples_forward", forward, "triples"_a, "inputs"_a, "scale"_a, "threads"_a, "results"_a);
  m.def("triples_backward", backward, "triples"_a, "inputs"_a, "scale"_a, "threads"_a, "upstream"_a, "gradients"_a);
}

}  // namespace erlangen
