// Arrays as they come from Python: their types, and the checks that make them safe to read. A problem (P below) has a
// storage type and a batch size.
#pragma once
#include <optional>
#include <stdexcept>
#include <string>

#include "exchange.h"
#include "index.h"
#include "problem.h"

namespace erlangen {

// A tensor of the caller, in the memory of the CPU, for as long as a call takes. `Capsule` is how it comes where its
// maker has no exchange API.
template <class Capsule>
class Array {
 public:
  // False where the object is no such tensor.
  bool take(nb::handle object, uint32_t flags, nb::detail::cleanup_list* cleanup) noexcept {
    maker_ = exchange_of(object);
    if (maker_ && maker_->borrow) {
      if (maker_->borrow(object.ptr(), &tensor_) != 0) {
        PyErr_Clear();
        return false;
      }
      return tensor_.device.device_type == nb::device::cpu::value && (tensor_.ndim == 0 || tensor_.strides);
    }
    nb::detail::make_caster<Capsule> caster;
    if (!caster.from_python(object, flags, cleanup)) return false;
    kept_ = std::move(caster.value);
    tensor_.data = const_cast<void*>(static_cast<const void*>(kept_.data()));
    tensor_.dtype = kept_.dtype();
    tensor_.ndim = static_cast<int32_t>(kept_.ndim());
    tensor_.shape = const_cast<int64_t*>(kept_.shape_ptr());
    tensor_.strides = const_cast<int64_t*>(kept_.stride_ptr());
    return true;
  }
  const Exchange* maker() const { return maker_; }
  size_t ndim() const { return static_cast<size_t>(tensor_.ndim); }
  nb::dlpack::dtype dtype() const { return tensor_.dtype; }
  int64_t shape(size_t d) const { return tensor_.shape[d]; }
  int64_t stride(size_t d) const { return tensor_.strides[d]; }
  int64_t size() const {
    int64_t size = 1;
    for (size_t d = 0; d < ndim(); ++d) size *= shape(d);
    return size;
  }
  void* data() const { return static_cast<char*>(tensor_.data) + tensor_.byte_offset; }

 private:
  const Exchange* maker_ = nullptr;
  Tensor tensor_;
  Capsule kept_;
};

using Input = Array<nb::ndarray<nb::ro, nb::device::cpu>>;
using Output = Array<nb::ndarray<nb::device::cpu>>;
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
  bool from_python(handle src, uint32_t flags, cleanup_list* cleanup) noexcept { return value.take(src, flags, cleanup); }
};
