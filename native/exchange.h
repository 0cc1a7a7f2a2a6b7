// Tensors handed over in C, where their maker offers DLPack's exchange API, as recent PyTorch does: borrowed for a call,
// or made by the maker itself. A capsule for each would take as long as many a small call.
#pragma once
#include <dlpack/dlpack.h>
#include <nanobind/nanobind.h>

#include <initializer_list>
#include <utility>

namespace nb = nanobind;

namespace erlangen {

// That of the maker of a tensor; null where there is none.
const DLPackExchangeAPI* exchange_of(nb::handle tensor) noexcept;

// A new contiguous tensor of this type in the memory of the CPU, as Python sees it, and its data.
std::pair<nb::object, void*> new_tensor(const DLPackExchangeAPI& maker, DLDataType type,
                                        std::initializer_list<int64_t> shape);

}  // namespace erlangen
