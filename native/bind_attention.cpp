// Entry points of attention over tiles and over edges: every tensor is checked, then a kernel runs without the
// interpreter lock.
#include <algorithm>
#include <cmath>
#include <vector>

#include "arguments.h"
#include "dispatch.h"

using namespace nb::literals;

namespace erlangen {
namespace {

constexpr int64_t kLittle = 200'000;  // multiply-adds of a step of decoding: waking threads would cost more

// Without an index.
Problem make_problem(const Input& q, const Input& k, const Input& v, double scale, int threads) {
  Problem p;
  require(q.ndim() == 4 && k.ndim() == 4 && v.ndim() == 4, "q, k and v must have shape (batch, heads, length, dim)");
  const auto storage = storage_of(q.dtype());
  require(storage.has_value(), "q must be float32, float64, bfloat16 or float16");
  p.storage = *storage;
  p.batch = q.shape(0);
  p.heads = q.shape(1);
  p.queries = q.shape(2);
  p.dim = q.shape(3);
  p.kv_heads = k.shape(1);
  p.keys = k.shape(2);
  p.dim_v = v.shape(3);
  require(p.kv_heads >= 1 && p.heads % p.kv_heads == 0, "the heads of q must be a multiple of the heads of k");
  require(threads >= 1, "at least one thread is needed");
  p.q = view(q, p, p.heads, p.queries, p.dim, "q");
  p.k = view(k, p, p.kv_heads, p.keys, p.dim, "k");
  p.v = view(v, p, p.kv_heads, p.keys, p.dim_v, "v");
  p.scale = scale;
  p.threads = threads;
  return p;
}

int64_t bias_size(const Problem& p) { return p.per_edge ? p.edges : std::max<int64_t>(0, p.queries + p.keys - 1); }

template <class Index>
Problem make_problem(const Index& index, const Inputs& in, const Options& options, int64_t seed, int threads) {
  require(options.dropout >= 0 && options.dropout <= 1, "dropout must lie in [0, 1]");
  require(options.map >= 0 && options.map <= static_cast<int>(MapKind::log), "no such map of scores");
  Problem p = make_problem(in.q, in.k, in.v, options.scale, threads);
  p.map = static_cast<MapKind>(options.map);
  p.map_a = options.a;
  p.map_b = options.b;
  p.dropout = options.dropout;
  p.seed = static_cast<uint64_t>(seed);
  p.per_edge = options.per_edge;
  if (in.vector) {
    p.vector_heads = in.vector->ndim() == 2 ? in.vector->shape(0) : 0;
    require(p.vector_heads == 1 || p.vector_heads == p.heads, "vector: must have shape (heads or 1, dim)");
    p.vector = accumulators(*in.vector, p, {p.vector_heads, p.dim}, "vector");
  }
  index.apply(p);
  require(in.bias || !p.per_edge, "a bias of edges is missing");
  if (in.bias) {
    p.bias_heads = in.bias->ndim() == 2 ? in.bias->shape(0) : 0;
    require(p.bias_heads == 1 || p.bias_heads == p.heads,
            "bias: must have shape (heads or 1, queries + keys - 1), or (heads or 1, edges)");
    p.bias = accumulators(*in.bias, p, {p.bias_heads, bias_size(p)}, "bias");
  }
  return p;
}

void set_gradients(Problem& p, const Upstream& upstream, const Gradients& gradients) {
  p.grad = view(upstream.grad, p, p.heads, p.queries, p.dim_v, "grad");
  p.out = view(upstream.out, p, p.heads, p.queries, p.dim_v, "out");
  p.stats = accumulators(upstream.stats, p, {p.batch, p.heads, p.queries, 2}, "stats");
  if (upstream.grad_lse) p.grad_lse = accumulators(*upstream.grad_lse, p, {p.batch, p.heads, p.queries}, "grad_lse");
  p.dq = view(gradients.dq, p, p.heads, p.queries, p.dim, "dq");
  p.dk = view(gradients.dk, p, p.kv_heads, p.keys, p.dim, "dk");
  p.dv = view(gradients.dv, p, p.kv_heads, p.keys, p.dim_v, "dv");
  if (gradients.dbias) {
    require(p.bias_heads > 0, "dbias without a bias");
    p.dbias = accumulators(*gradients.dbias, p, {p.bias_heads, bias_size(p)}, "dbias");
  }
  if (gradients.dvector) {
    require(p.vector, "dvector without a vector");
    p.dvector = accumulators(*gradients.dvector, p, {p.vector_heads, p.dim}, "dvector");
  }
}

bool empty(const Problem& p) { return p.batch == 0 || p.heads == 0; }

void run(const Problem& p, void (*kernel)(const Problem&)) {
  if (empty(p)) return;
  nb::gil_scoped_release free;
  kernel(p);
}

template <class Index, void (*Kernels::*kernel)(const Problem&)>
void forward(const Index& index, const Inputs& in, const Options& options, int64_t seed, int threads,
             const Results& results) {
  Problem p = make_problem(index, in, options, seed, threads);
  p.out = view(results.out, p, p.heads, p.queries, p.dim_v, "out");
  p.lse = accumulators(results.lse, p, {p.batch, p.heads, p.queries}, "lse");
  if (results.stats) p.stats = accumulators(*results.stats, p, {p.batch, p.heads, p.queries, 2}, "stats");
  run(p, kernels().*kernel);
}

void tiles_backward(const TileIndex& tiles, const Inputs& in, const Options& options, int64_t seed, int threads,
                    const Upstream& upstream, const Gradients& gradients) {
  Problem p = make_problem(tiles, in, options, seed, threads);
  set_gradients(p, upstream, gradients);
  run(p, kernels().tiles_backward);
}

// `transposed_bias` is a bias of edges in the order of the transposed index.
void edges_backward(const RunIndex& runs, const RunIndex& transposed, const std::optional<Input>& transposed_bias,
                    const Inputs& in, const Options& options, int64_t seed, int threads, const Upstream& upstream,
                    const Gradients& gradients) {
  Problem p = make_problem(runs, in, options, seed, threads);
  require(transposed_bias.has_value() == p.per_edge, "transposed_bias is for a bias of edges, and needed there");
  if (transposed_bias)
    p.bias_t = accumulators(*transposed_bias, p, {p.bias_heads, p.edges}, "transposed_bias");
  require(transposed.queries == p.keys && transposed.keys == p.queries && transposed.relations == runs.relations &&
              transposed.pairs == runs.pairs,
          "the transposed index does not fit the index");
  p.runs_t = transposed.view();
  set_gradients(p, upstream, gradients);
  run(p, kernels().edges_backward);
}

// The fast path of decoding: one query per head that reads the keys [start, stop), for which no index is built. Where no
// output is given it makes one, for every call into Python is a part of such a step; otherwise it returns None.
nb::object run_forward(const Input& q, const Input& k, const Input& v, int64_t start, int64_t stop,
                       std::optional<double> scale, int threads, const std::optional<Output>& given) {
  require(given || q.maker(), "q: its maker has no exchange API, and out is not given");
  Problem p = make_problem(q, k, v, scale.value_or(0), threads);
  require(p.queries == 1, "q: one query was expected");
  // Also of one feature: PyTorch keeps the sign of the imaginary part of a conjugate elsewhere, which its stride betrays.
  require(q.stride(3) == 1 && k.stride(3) == 1 && v.stride(3) == 1, "the last dimension must be contiguous");
  require(0 <= start && start <= stop && stop <= p.keys && stop <= INT32_MAX, "the keys read are not all there");
  if (!scale) p.scale = 1 / std::sqrt(static_cast<double>(p.dim));
  nb::object out = nb::none();
  if (given) {
    p.out = view(*given, p, p.heads, p.queries, p.dim_v, "out");
  } else {
    std::tie(out, p.out.data) = new_tensor(*q.maker(), q.dtype(), {p.batch, p.heads, 1, p.dim_v});
    p.out = {p.out.data, p.heads * p.dim_v, p.dim_v, p.dim_v};
  }
  if (empty(p)) return out;
  std::vector<double> lse(static_cast<size_t>(p.batch * p.heads));  // room for either accumulator
  p.lse = lse.data();
  const int32_t which = 0, first = static_cast<int32_t>(start), last = static_cast<int32_t>(stop);
  const int64_t indptr[2] = {0, start < stop}, before[2] = {0, stop - start};
  p.which = &which;
  p.runs = {1, indptr, &first, &last, before};
  if (p.batch * p.heads * (stop - start) * (p.dim + p.dim_v) < kLittle) p.threads = 1;
  run(p, kernels().edges_forward);
  return out;
}

}  // namespace

void bind_attention(nb::module_& m) {
  using Integers = Span<int64_t>;
  nb::class_<TileIndex>(m, "Tiles", nb::is_weak_referenceable())
      .def(nb::init<int64_t, int64_t, int64_t, Integers, Integers, Integers, Span<uint64_t>, Integers>(), "queries"_a,
           "keys"_a, "relations"_a, "indptr"_a, "columns"_a, "pattern"_a, "patterns"_a, "which"_a);
  nb::class_<RunIndex>(m, "Runs", nb::is_weak_referenceable())
      .def(nb::init<int64_t, int64_t, int64_t, Integers, Integers, Integers, Integers>(), "queries"_a, "keys"_a,
           "relations"_a, "indptr"_a, "starts"_a, "stops"_a, "which"_a);
  m.def("tiles_forward", forward<TileIndex, &Kernels::tiles_forward>, "tiles"_a, "inputs"_a, "options"_a, "seed"_a,
        "threads"_a, "results"_a);
  m.def("tiles_backward", tiles_backward, "tiles"_a, "inputs"_a, "options"_a, "seed"_a, "threads"_a, "upstream"_a,
        "gradients"_a);
  m.def("edges_forward", forward<RunIndex, &Kernels::edges_forward>, "runs"_a, "inputs"_a, "options"_a, "seed"_a,
        "threads"_a, "results"_a);
  m.def("edges_backward", edges_backward, "runs"_a, "transposed"_a, "transposed_bias"_a.none(), "inputs"_a, "options"_a,
        "seed"_a, "threads"_a, "upstream"_a, "gradients"_a);
  m.def("run_forward", run_forward, "q"_a, "k"_a, "v"_a, "start"_a, "stop"_a, "scale"_a.none(), "threads"_a,
        "out"_a.none() = nb::none());
}

}  // namespace erlangen
