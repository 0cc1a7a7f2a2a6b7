// The Python module: checks every tensor it is handed, then runs a kernel without the interpreter lock.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <cmath>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>

#include "arrays.h"
#include "dispatch.h"
#include "gathered.h"
#include "index.h"
#include "kept.h"
#include "module_triples.h"
#include "pieces.h"

using namespace nb::literals;

namespace erlangen {
namespace {

// The index of a relation, or of the distinct relations of batch items and heads.
struct Tiles {
  TileIndex index;
  Which which;
  Tiles(int64_t queries, int64_t keys, int64_t relations, Integers<int64_t> indptr, Integers<int64_t> columns,
        Integers<int64_t> pattern, Integers<uint64_t> patterns, Integers<int64_t> which_)
      : index(queries, keys, relations, span(indptr), span(columns), span(pattern), span(patterns)),
        which(make_which(which_, relations)) {}
  static Which make_which(const Integers<int64_t>& which, int64_t relations) {
    require(which.ndim() == 2, "which must have two dimensions");
    return {span(which), static_cast<int64_t>(which.shape(0)), static_cast<int64_t>(which.shape(1)), relations};
  }
};
struct Runs {
  RunIndex index;
  Which which;
  Runs(int64_t queries, int64_t keys, int64_t relations, Integers<int64_t> indptr, Integers<int64_t> starts,
       Integers<int64_t> stops, Integers<int64_t> which_)
      : index(queries, keys, relations, span(indptr), span(starts), span(stops)),
        which(Tiles::make_which(which_, relations)) {}
};

// What scores are besides products: see Problem.
struct Scores {
  double scale;
  int map;
  double a, b;
};

Problem make_problem(const Input& q, const Input& k, const Input& v, const Scores& scores, double dropout, int64_t seed,
                     int threads) {
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
  require(dropout >= 0 && dropout <= 1, "dropout must lie in [0, 1]");
  require(threads >= 1, "at least one thread is needed");
  p.q = view(q, p, p.heads, p.queries, p.dim, "q");
  p.k = view(k, p, p.kv_heads, p.keys, p.dim, "k");
  p.v = view(v, p, p.kv_heads, p.keys, p.dim_v, "v");
  require(scores.map >= 0 && scores.map <= static_cast<int>(MapKind::log), "no such map of scores");
  p.scale = scores.scale;
  p.map = static_cast<MapKind>(scores.map);
  p.map_a = scores.a;
  p.map_b = scores.b;
  p.dropout = dropout;
  p.seed = static_cast<uint64_t>(seed);
  p.threads = threads;
  return p;
}

int64_t places(const Problem& p) { return p.per_edge ? p.edges : std::max<int64_t>(0, p.queries + p.keys - 1); }

// Once it is known whether the bias is one of edges, and of how many.
void set_bias(Problem& p, const std::optional<Input>& bias) {
  require(bias || !p.per_edge, "a bias of edges is missing");
  if (!bias) return;
  p.bias_heads = bias->ndim() == 2 ? bias->shape(0) : 0;
  require(p.bias_heads == 1 || p.bias_heads == p.heads,
          "bias: must have shape (heads or 1, queries + keys - 1), or (heads or 1, edges)");
  p.bias = accumulators(*bias, p, {p.bias_heads, places(p)}, "bias");
}

void set_vector(Problem& p, const std::optional<Input>& vector) {
  if (!vector) return;
  p.vector_heads = vector->ndim() == 2 ? vector->shape(0) : 0;
  require(p.vector_heads == 1 || p.vector_heads == p.heads, "vector: must have shape (heads or 1, dim)");
  p.vector = accumulators(*vector, p, {p.vector_heads, p.dim}, "vector");
}

void set_tiles(Problem& p, const Tiles& tiles) {
  require(tiles.index.queries == p.queries && tiles.index.keys == p.keys, "the index was built for other lengths");
  tiles.which.apply(p);
  p.tiles = tiles.index.view();
}

void set_runs(Problem& p, const Runs& runs, bool per_edge) {
  require(!per_edge || runs.index.relations == 1, "a bias of edges needs one relation for all heads and items");
  p.per_edge = per_edge;
  p.edges = runs.index.pairs;
  require(runs.index.queries == p.queries && runs.index.keys == p.keys, "the index was built for other lengths");
  runs.which.apply(p);
  p.runs = runs.index.view();
}

void set_outputs(Problem& p, const Output& out, const Output& lse, const std::optional<Output>& stats) {
  p.out = view(out, p, p.heads, p.queries, p.dim_v, "out");
  p.lse = accumulators(lse, p, {p.batch, p.heads, p.queries}, "lse");
  if (stats) p.stats = accumulators(*stats, p, {p.batch, p.heads, p.queries, 2}, "stats");
}

struct Gradients {
  Input grad;
  std::optional<Input> grad_lse;
  Input out, stats;
  Output dq, dk, dv;
  std::optional<Output> dbias;
};

void set_gradients(Problem& p, const Gradients& g) {
  p.grad = view(g.grad, p, p.heads, p.queries, p.dim_v, "grad");
  p.out = view(g.out, p, p.heads, p.queries, p.dim_v, "out");
  p.stats = accumulators(g.stats, p, {p.batch, p.heads, p.queries, 2}, "stats");
  if (g.grad_lse) p.grad_lse = accumulators(*g.grad_lse, p, {p.batch, p.heads, p.queries}, "grad_lse");
  p.dq = view(g.dq, p, p.heads, p.queries, p.dim, "dq");
  p.dk = view(g.dk, p, p.kv_heads, p.keys, p.dim, "dk");
  p.dv = view(g.dv, p, p.kv_heads, p.keys, p.dim_v, "dv");
  if (g.dbias) {
    require(p.bias_heads > 0, "dbias without a bias");
    p.dbias = accumulators(*g.dbias, p, {p.bias_heads, places(p)}, "dbias");
  }
}

std::atomic<int> chosen{0};
const Kernels& kernels() { return usable_kernels()[static_cast<size_t>(chosen.load())]; }

void choose(const std::string& name) {
  const auto& all = usable_kernels();
  for (size_t n = 0; n < all.size(); ++n)
    if (all[n].name == name) return chosen.store(static_cast<int>(n));
  throw std::invalid_argument("no such instruction set on this machine: " + name);
}

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const Kernels& k : usable_kernels()) names.emplace_back(k.name);
  return names;
}

bool empty(const Problem& p) { return p.batch == 0 || p.heads == 0; }

// Waking threads costs microseconds: a little work is done by the caller alone.
void use_few_threads_for_little_work(Problem& p, double pairs) {
  if (pairs * static_cast<double>(p.dim + p.dim_v) < 2e5) p.threads = 1;
}

void tiles_forward(const Tiles& tiles, const Input& q, const Input& k, const Input& v,
                   const std::optional<Input>& bias, const Output& out, const Output& lse,
                   const std::optional<Output>& stats, double scale, double dropout, int64_t seed, int threads, int map,
                   double a, double b) {
  Problem p = make_problem(q, k, v, {scale, map, a, b}, dropout, seed, threads);
  set_tiles(p, tiles);
  set_bias(p, bias);
  set_outputs(p, out, lse, stats);
  if (empty(p)) return;
  nb::gil_scoped_release free;
  kernels().tiles_forward(p);
}

void tiles_backward(const Tiles& tiles, const Input& q, const Input& k, const Input& v,
                    const std::optional<Input>& bias, const Input& grad, const std::optional<Input>& grad_lse,
                    const Input& out, const Input& stats, const Output& dq, const Output& dk, const Output& dv,
                    const std::optional<Output>& dbias, double scale, double dropout, int64_t seed, int threads, int map,
                    double a, double b) {
  Problem p = make_problem(q, k, v, {scale, map, a, b}, dropout, seed, threads);
  set_tiles(p, tiles);
  set_bias(p, bias);
  set_gradients(p, {grad, grad_lse, out, stats, dq, dk, dv, dbias});
  if (empty(p)) return;
  nb::gil_scoped_release free;
  const std::vector<TilePiece> pieces = cut_tiles(p);
  p.pieces = pieces.data();
  p.num_pieces = static_cast<int64_t>(pieces.size());
  kernels().tiles_backward(p);
}

void edges_forward(const Runs& runs, const Input& q, const Input& k, const Input& v, const std::optional<Input>& bias,
                   const Output& out, const Output& lse, const std::optional<Output>& stats, double scale,
                   double dropout, int64_t seed, int threads, int map, double a, double b, bool per_edge,
                   const std::optional<Input>& vector) {
  Problem p = make_problem(q, k, v, {scale, map, a, b}, dropout, seed, threads);
  set_runs(p, runs, per_edge);
  set_bias(p, bias);
  set_vector(p, vector);
  set_outputs(p, out, lse, stats);
  if (empty(p)) return;
  use_few_threads_for_little_work(p, static_cast<double>(p.batch * p.heads * runs.index.pairs) /
                                         static_cast<double>(runs.index.relations));
  nb::gil_scoped_release free;
  kernels().edges_forward(p);
}

// One query per head that reads the keys [start, stop): a step of decoding, for which no index is built. Where no output
// is given it makes one, for every call into Python is a part of such a step; otherwise it returns None.
nb::object run_forward(const Input& q, const Input& k, const Input& v, int64_t start, int64_t stop,
                       std::optional<double> scale, int threads, const std::optional<Output>& given) {
  require(given || q.maker(), "q: its maker has no exchange API, and out is not given");
  Problem p = make_problem(q, k, v, {scale.value_or(0), 0, 0, 0}, 0, 0, threads);
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
  use_few_threads_for_little_work(p, static_cast<double>(p.batch * p.heads * (stop - start)));
  {
    nb::gil_scoped_release free;
    kernels().edges_forward(p);
  }
  return out;
}

void edges_backward(const Runs& runs, const Runs& transposed, const Input& q, const Input& k, const Input& v,
                    const std::optional<Input>& bias, const Input& grad, const std::optional<Input>& grad_lse,
                    const Input& out, const Input& stats, const Output& dq, const Output& dk, const Output& dv,
                    const std::optional<Output>& dbias, double scale, double dropout, int64_t seed, int threads, int map,
                    double a, double b, bool per_edge, const std::optional<Input>& bias_t,
                    const std::optional<Input>& vector, const std::optional<Output>& dvector) {
  Problem p = make_problem(q, k, v, {scale, map, a, b}, dropout, seed, threads);
  set_runs(p, runs, per_edge);
  set_bias(p, bias);
  set_vector(p, vector);
  require(bias_t.has_value() == per_edge, "bias_t is for a bias of edges, and needed there");
  if (bias_t) p.bias_t = accumulators(*bias_t, p, {p.bias_heads, p.edges}, "bias_t");
  require(transposed.index.queries == p.keys && transposed.index.keys == p.queries &&
              transposed.index.relations == runs.index.relations &&
              transposed.index.pairs == runs.index.pairs,
          "the transposed index does not fit the index");
  p.runs_t = transposed.index.view();
  set_gradients(p, {grad, grad_lse, out, stats, dq, dk, dv, dbias});
  if (dvector) {
    require(p.vector, "dvector without a vector");
    p.dvector = accumulators(*dvector, p, {p.vector_heads, p.dim}, "dvector");
  }
  if (empty(p)) return;
  nb::gil_scoped_release free;
  kernels().edges_backward(p);
}

// Large memory as a DLPack capsule of bytes. Its release touches no Python object: it may happen on any thread.
nb::object large_memory(int64_t bytes) {
  require(bytes > 0, "bytes must be positive");
  struct Managed {
    nb::dlpack::dltensor tensor;
    void* context;
    void (*release)(Managed*);
    Memory memory;
    int64_t shape;
  };
  auto managed = std::make_unique<Managed>();
  managed->memory = take_memory(static_cast<std::size_t>(bytes));
  managed->shape = bytes;
  managed->tensor = {.data = managed->memory.data,
                     .device = {nb::device::cpu::value, 0},
                     .ndim = 1,
                     .dtype = nb::dtype<uint8_t>(),
                     .shape = &managed->shape,
                     .strides = nullptr,
                     .byte_offset = 0};
  managed->context = nullptr;
  managed->release = [](Managed* self) {
    give_back(self->memory);
    delete self;
  };
  // A consumer renames the capsule and releases by itself.
  PyObject* capsule = PyCapsule_New(managed.get(), "dltensor", [](PyObject* self) {
    if (!PyCapsule_IsValid(self, "dltensor")) return;
    auto* unused = static_cast<Managed*>(PyCapsule_GetPointer(self, "dltensor"));
    unused->release(unused);
  });
  if (!capsule) {
    give_back(managed->memory);
    nb::raise_python_error();
  }
  managed.release();
  return nb::steal(capsule);
}

}  // namespace

NB_MODULE(_native, m) {
  nb::set_leak_warnings(false);  // caches of indices live until the process ends
  m.doc() = "Attention over the tiles and the edges of a relation.";
  nb::class_<Tiles>(m, "Tiles", nb::is_weak_referenceable())
      .def(nb::init<int64_t, int64_t, int64_t, Integers<int64_t>, Integers<int64_t>, Integers<int64_t>,
                    Integers<uint64_t>, Integers<int64_t>>(),
           "queries"_a, "keys"_a, "relations"_a, "indptr"_a, "columns"_a, "pattern"_a, "patterns"_a, "which"_a);
  nb::class_<Runs>(m, "Runs", nb::is_weak_referenceable())
      .def(nb::init<int64_t, int64_t, int64_t, Integers<int64_t>, Integers<int64_t>, Integers<int64_t>,
                    Integers<int64_t>>(),
           "queries"_a, "keys"_a, "relations"_a, "indptr"_a, "starts"_a, "stops"_a, "which"_a);
  m.def("tiles_forward", tiles_forward, "tiles"_a, "q"_a, "k"_a, "v"_a, "bias"_a.none(), "out"_a, "lse"_a,
        "stats"_a.none(), "scale"_a, "dropout"_a, "seed"_a, "threads"_a, "map"_a = 0, "a"_a = 0.0, "b"_a = 0.0);
  m.def("tiles_backward", tiles_backward, "tiles"_a, "q"_a, "k"_a, "v"_a, "bias"_a.none(), "grad"_a,
        "grad_lse"_a.none(), "out"_a, "stats"_a, "dq"_a, "dk"_a, "dv"_a, "dbias"_a.none(), "scale"_a, "dropout"_a,
        "seed"_a, "threads"_a, "map"_a = 0, "a"_a = 0.0, "b"_a = 0.0);
  m.def("edges_forward", edges_forward, "runs"_a, "q"_a, "k"_a, "v"_a, "bias"_a.none(), "out"_a, "lse"_a,
        "stats"_a.none(), "scale"_a, "dropout"_a, "seed"_a, "threads"_a, "map"_a = 0, "a"_a = 0.0, "b"_a = 0.0, "per_edge"_a = false,
        "vector"_a.none() = nb::none());
  m.def("run_forward", run_forward, "q"_a, "k"_a, "v"_a, "start"_a, "stop"_a, "scale"_a.none(), "threads"_a,
        "out"_a.none() = nb::none());
  m.def("edges_backward", edges_backward, "runs"_a, "transposed"_a, "q"_a, "k"_a, "v"_a, "bias"_a.none(), "grad"_a,
        "grad_lse"_a.none(), "out"_a, "stats"_a, "dq"_a, "dk"_a, "dv"_a, "dbias"_a.none(), "scale"_a, "dropout"_a,
        "seed"_a, "threads"_a, "map"_a = 0, "a"_a = 0.0, "b"_a = 0.0, "per_edge"_a = false,
        "bias_t"_a.none() = nb::none(), "vector"_a.none() = nb::none(), "dvector"_a.none() = nb::none());
  m.attr("LARGE") = kLarge;
  m.attr("OFTEN_GATHERED") = kOftenGathered;
  m.attr("MUCH_GATHERED") = kMuchGathered;
  m.def("large_memory", large_memory, "bytes"_a, "A DLPack capsule of that many bytes, which are used again when freed.");
  m.def("release_kept_memory", release_kept_memory, "Give memory that is kept for later results back to the system.");
  m.def("instruction_sets", instruction_sets, "The instruction sets this machine can run, the best first.");
  m.def("instruction_set", [] { return std::string(kernels().name); }, "The instruction set in use.");
  m.def("choose_instruction_set", choose, "name"_a);
  add_triples(m, [] { return kernels().name; });
}

}  // namespace erlangen
