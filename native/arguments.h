// The arguments of the entry points. Python hands over a tuple of the fields of each struct, in order.
#pragma once
#include <nanobind/stl/optional.h>

#include <tuple>

#include "tensors.h"

namespace erlangen {

struct Inputs {
  Input q, k, v;
  std::optional<Input> bias, vector;
  auto fields() { return std::tie(q, k, v, bias, vector); }
};
struct Options {
  double scale, dropout;
  bool per_edge;
  int map;
  double a, b;
  auto fields() { return std::tie(scale, dropout, per_edge, map, a, b); }
};
struct Results {
  Output out, lse;
  std::optional<Output> stats;
  auto fields() { return std::tie(out, lse, stats); }
};
// What the backward pass gets from above and from the forward pass.
struct Upstream {
  Input grad;
  std::optional<Input> grad_lse;
  Input out, stats;
  auto fields() { return std::tie(grad, grad_lse, out, stats); }
};
struct Gradients {
  Output dq, dk, dv;
  std::optional<Output> dbias, dvector;
  auto fields() { return std::tie(dq, dk, dv, dbias, dvector); }
};

// Those over triples, in the order of their places.
struct TripleInputs {
  Input x[3], v1, v2;
  auto fields() { return std::tie(x[0], x[1], x[2], v1, v2); }
};
struct TripleGradients {
  Output dx[3], dv1, dv2;
  auto fields() { return std::tie(dx[0], dx[1], dx[2], dv1, dv2); }
};

template <class T>
concept Arguments = requires(T arguments) { arguments.fields(); };

}  // namespace erlangen

template <erlangen::Arguments T>
struct nanobind::detail::type_caster<T> {
  NB_TYPE_CASTER(T, const_name("tuple"))
  bool from_python(handle src, uint32_t, cleanup_list*) noexcept {
    if (!PyTuple_Check(src.ptr())) return false;
    return std::apply(
        [&](auto&... field) {
          Py_ssize_t n = 0;
          return PyTuple_GET_SIZE(src.ptr()) == sizeof...(field) &&
                 (try_cast(handle(PyTuple_GET_ITEM(src.ptr(), n++)), field) && ...);
        },
        value.fields());
  }
};
