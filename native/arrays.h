// Arrays as they come from Python: their types, and the checks that make them safe to read. A problem (P below) has a
// storage type and a batch size.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <optional>
#include <stdexcept>
#include <string>

#include "index.h"
#include "problem.h"

namespace nb = nanobind;

namespace erlangen {

using Input = nb::ndarray<nb::ro, nb::device::cpu>;
using Output = nb::ndarray<nb::device::cpu>;
template <class T>
using Integers = nb::ndarray<const T, nb::c_contig, nb::device::cpu>;

// Texts are put together only when something is wrong: twenty of them would be a good part of a decoding step.
inline void require(bool condition, const char* message) {
  if (!condition) throw std::invalid_argument(message);
}
inline void require(bool condition, const char* name, const char* message) {
  if (!condition) throw std::invalid_argument(std::string(name) + ": " + message);
}

template <class T>
Span<T> span(const Integers<T>& x) {
  return {x.data(), static_cast<int64_t>(x.size())};
}

inline std::optional<Storage> storage_of(nb::dlpack::dtype type) {
  const auto code = static_cast<nb::dlpack::dtype_code>(type.code);
  if (type.lanes != 1) return {};
  if (code == nb::dlpack::dtype_code::Float && type.bits == 32) return Storage::f32;
  if (code == nb::dlpack::dtype_code::Float && type.bits == 64) return Storage::f64;
  if (code == nb::dlpack::dtype_code::Float && type.bits == 16) return Storage::f16;
  if (code == nb::dlpack::dtype_code::Bfloat && type.bits == 16) return Storage::bf16;
  return {};
}

template <class A>
bool has_shape(const A& x, std::initializer_list<int64_t> shape) {
  if (x.ndim() != shape.size()) return false;
  size_t n = 0;
  for (int64_t size : shape)
    if (static_cast<int64_t>(x.shape(n++)) != size) return false;
  return true;
}

template <class A, class P>
View view(const A& x, const P& p, int64_t heads, int64_t rows, int64_t dim, const char* name) {
  require(storage_of(x.dtype()) == p.storage, name, "dtype differs from that of q");
  require(has_shape(x, {p.batch, heads, rows, dim}), name, "unexpected shape");
  require(dim <= 1 || x.stride(3) == 1, name, "the last dimension must be contiguous");
  return {const_cast<void*>(static_cast<const void*>(x.data())), x.stride(0), x.stride(1), x.stride(2)};
}

// A contiguous tensor of accumulators.
template <class A, class P>
void* accumulators(const A& x, const P& p, std::initializer_list<int64_t> shape, const char* name) {
  const Storage wanted = p.storage == Storage::f64 ? Storage::f64 : Storage::f32;
  require(storage_of(x.dtype()) == wanted, name, "must be float32, or float64 for float64 inputs");
  require(has_shape(x, shape), name, "unexpected shape");
  int64_t stride = 1;
  for (size_t d = x.ndim(); d-- > 0;) {
    require(x.size() == 0 || x.shape(d) <= 1 || x.stride(d) == stride, name, "must be contiguous");
    stride *= static_cast<int64_t>(x.shape(d));
  }
  return const_cast<void*>(static_cast<const void*>(x.data()));
}

}  // namespace erlangen
