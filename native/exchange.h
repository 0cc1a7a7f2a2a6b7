// Tensors handed over in C, where their maker offers it (DLPack's exchange API, as in recent PyTorch): borrowed for a
// call, or made by the maker itself. A capsule for each would take as long as many a small call.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <initializer_list>
#include <utility>

namespace nb = nanobind;

namespace erlangen {

using Tensor = nb::dlpack::dltensor;

// DLManagedTensorVersioned of DLPack 1.
struct ManagedTensor {
  uint32_t major, minor;
  void* context;
  void (*release)(ManagedTensor*);
  uint64_t flags;
  Tensor tensor;
};

// DLPackExchangeAPI of DLPack 1. Functions return 0, or set an error and return something else.
struct Exchange {
  uint32_t major, minor;
  const Exchange* previous;
  int (*allocate)(Tensor* prototype, ManagedTensor** out, void* context,
                  void (*fail)(void* context, const char* kind, const char* message));
  int (*own)(void* object, ManagedTensor** out);
  int (*to_python)(ManagedTensor* stolen, void** object);
  int (*borrow)(void* object, Tensor* out);  // may be null; shape and strides stay the object's
  int (*stream)(int32_t device, int32_t number, void** out);
};

// That of the maker of a tensor; null where there is none.
const Exchange* exchange_of(nb::handle tensor) noexcept;

// A new contiguous tensor of this type in the memory of the CPU, as Python sees it, and its data.
std::pair<nb::object, void*> new_tensor(const Exchange& maker, nb::dlpack::dtype type,
                                        std::initializer_list<int64_t> shape);

}  // namespace erlangen
