// Tensors as they come from Python, and the checks that make them safe to read. A problem (P below) has a storage type
// and a batch size.
#pragma once
#include <nanobind/ndarray.h>

#include <initializer_list>
#include <optional>
#include <utility>

#include "exchange.h"
#include "index.h"
#include "require.h"
#include "view.h"

namespace erlangen {

// A tensor of the caller, in the memory of the CPU, for as long as a call takes. `Capsule` is how it comes where its
// maker has no exchange API.
template <class Capsule>
class Array {
 public:
  // False where the object is no such tensor.
  bool take(nb::handle object, uint32_t flags, nb::detail::cleanup_list* cleanup) noexcept {
    maker_ = exchange_of(object);
    if (maker_ && maker_->dltensor_from_py_object_no_sync) {
      if (maker_->dltensor_from_py_object_no_sync(object.ptr(), &tensor_) != 0) {
        PyErr_Clear();
        return false;
      }
      return tensor_.device.device_type == kDLCPU && (tensor_.ndim == 0 || tensor_.strides);
    }
    nb::detail::make_caster<Capsule> caster;
    if (!caster.from_python(object, flags, cleanup)) return false;
    fallback_ = std::move(caster.value);
    tensor_.data = const_cast<void*>(static_cast<const void*>(fallback_.data()));
    const nb::dlpack::dtype type = fallback_.dtype();
    tensor_.dtype = {type.code, type.bits, type.lanes};
    tensor_.ndim = static_cast<int32_t>(fallback_.ndim());
    tensor_.shape = const_cast<int64_t*>(fallback_.shape_ptr());
    tensor_.strides = const_cast<int64_t*>(fallback_.stride_ptr());
    return true;
  }
  const DLPackExchangeAPI* maker() const { return maker_; }
  size_t ndim() const { return static_cast<size_t>(tensor_.ndim); }
  DLDataType dtype() const { return tensor_.dtype; }
  int64_t shape(size_t d) const { return tensor_.shape[d]; }
  int64_t stride(size_t d) const { return tensor_.strides[d]; }
  int64_t size() const {
    int64_t size = 1;
    for (size_t d = 0; d < ndim(); ++d) size *= shape(d);
    return size;
  }
  void* data() const { return static_cast<char*>(tensor_.data) + tensor_.byte_offset; }

 private:
  const DLPackExchangeAPI* maker_ = nullptr;
  DLTensor tensor_{};
  Capsule fallback_;
};

using Input = Array<nb::ndarray<nb::ro, nb::device::cpu>>;
using Output = Array<nb::ndarray<nb::device::cpu>>;

inline std::optional<Storage> storage_of(DLDataType type) {
  if (type.lanes != 1) return {};
  if (type.code == kDLFloat && type.bits == 32) return Storage::f32;
  if (type.code == kDLFloat && type.bits == 64) return Storage::f64;
  if (type.code == kDLFloat && type.bits == 16) return Storage::f16;
  if (type.code == kDLBfloat && type.bits == 16) return Storage::bf16;
  return {};
}

template <class C>
bool has_shape(const Array<C>& x, std::initializer_list<int64_t> shape) {
  if (x.ndim() != shape.size()) return false;
  size_t n = 0;
  for (int64_t size : shape)
    if (x.shape(n++) != size) return false;
  return true;
}

template <class C, class P>
View view(const Array<C>& x, const P& p, int64_t heads, int64_t rows, int64_t dim, const char* name) {
  require(storage_of(x.dtype()) == p.storage, name, "dtype differs from that of q");
  require(has_shape(x, {p.batch, heads, rows, dim}), name, "unexpected shape");
  require(dim <= 1 || x.stride(3) == 1, name, "the last dimension must be contiguous");
  return {x.data(), x.stride(0), x.stride(1), x.stride(2)};
}

// A contiguous tensor of accumulators.
template <class C, class P>
void* accumulators(const Array<C>& x, const P& p, std::initializer_list<int64_t> shape, const char* name) {
  const Storage wanted = p.storage == Storage::f64 ? Storage::f64 : Storage::f32;
  require(storage_of(x.dtype()) == wanted, name, "must be float32, or float64 for float64 inputs");
  require(has_shape(x, shape), name, "unexpected shape");
  int64_t stride = 1;
  for (size_t d = x.ndim(); d-- > 0;) {
    require(x.size() == 0 || x.shape(d) <= 1 || x.stride(d) == stride, name, "must be contiguous");
    stride *= x.shape(d);
  }
  return x.data();
}

}  // namespace erlangen

template <class Capsule>
struct nanobind::detail::type_caster<erlangen::Array<Capsule>> {
  NB_TYPE_CASTER(erlangen::Array<Capsule>, make_caster<Capsule>::Name)
  bool from_python(handle src, uint32_t flags, cleanup_list* cleanup) noexcept {
    return value.take(src, flags, cleanup);
  }
};

template <class T>
struct nanobind::detail::type_caster<erlangen::Span<T>> {
  using Integers = make_caster<nb::ndarray<const T, nb::c_contig, nb::device::cpu>>;
  NB_TYPE_CASTER(erlangen::Span<T>, Integers::Name)
  bool from_python(handle src, uint32_t flags, cleanup_list* cleanup) noexcept {
    if (!array.from_python(src, flags, cleanup)) return false;
    const auto& x = array.value;
    value = {x.data(), static_cast<int64_t>(x.size()), {x.shape_ptr(), x.shape_ptr() + x.ndim()}};
    return true;
  }
  Integers array;
};
