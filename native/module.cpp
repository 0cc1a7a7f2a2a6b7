// The Python module: the entry points, the buffer pool and the instruction sets.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <vector>

#include "buffer_pool.h"
#include "dispatch.h"
#include "exchange.h"
#include "require.h"

using namespace nb::literals;

namespace erlangen {

void bind_attention(nb::module_& m);
void bind_triples(nb::module_& m);

namespace {

// A buffer of the pool as a DLPack capsule of bytes. Its release touches no Python object: it may happen on any thread.
nb::object pooled_buffer(int64_t bytes) {
  require(bytes > 0, "bytes must be positive");
  struct Managed : DLManagedTensor {
    Buffer buffer;
    int64_t size;
  };
  auto managed = std::make_unique<Managed>();
  managed->buffer = take_buffer(static_cast<std::size_t>(bytes));
  managed->size = bytes;
  managed->dl_tensor = {.data = managed->buffer.data,
                        .device = {kDLCPU, 0},
                        .ndim = 1,
                        .dtype = {kDLUInt, 8, 1},
                        .shape = &managed->size,
                        .strides = nullptr,
                        .byte_offset = 0};
  managed->manager_ctx = nullptr;
  managed->deleter = [](DLManagedTensor* self) {
    const std::unique_ptr<Managed> owned(static_cast<Managed*>(self));
    return_buffer(owned->buffer);
  };
  // A consumer renames the capsule and releases by itself.
  PyObject* capsule = PyCapsule_New(static_cast<DLManagedTensor*>(managed.get()), "dltensor", [](PyObject* self) {
    if (!PyCapsule_IsValid(self, "dltensor")) return;
    auto* unused = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(self, "dltensor"));
    unused->deleter(unused);
  });
  if (!capsule) {
    return_buffer(managed->buffer);
    nb::raise_python_error();
  }
  managed.release();
  return nb::steal(capsule);
}

}  // namespace

NB_MODULE(_native, m) {
  nb::set_leak_warnings(false);  // caches of indices live until the process ends
  m.doc() = "Attention over the tiles, the edges and the triples of a relation.";
  bind_attention(m);
  bind_triples(m);
  m.attr("LARGE") = kLarge;
  m.attr("OFTEN_GATHERED") = kOftenGathered;
  m.attr("MUCH_GATHERED") = kMuchGathered;
  m.def("pooled_buffer", pooled_buffer, "bytes"_a, "A DLPack capsule of that many bytes; the pool takes them back.");
  m.def("empty_buffer_pool", empty_buffer_pool, "Give the free buffers of the pool back to the system.");
  m.def("instruction_sets", [] {
    std::vector<std::string> names;
    for (const Kernels& each : usable_kernels()) names.emplace_back(each.instruction_set);
    return names;
  }, "The instruction sets this machine can run, the best first.");
  m.def("instruction_set", [] { return kernels().instruction_set; }, "The instruction set in use.");
  m.def("choose_instruction_set", choose_kernels, "name"_a);
}

}  // namespace erlangen
