#include "exchange.h"

#include <stdexcept>
#include <string>
#include <vector>

namespace erlangen {

const DLPackExchangeAPI* exchange_of(nb::handle tensor) noexcept {
  static PyObject* const name = PyUnicode_InternFromString("__dlpack_c_exchange_api__");
  PyObject* capsule = name ? PyObject_GetAttr(reinterpret_cast<PyObject*>(Py_TYPE(tensor.ptr())), name) : nullptr;
  // The table outlives every capsule.
  const void* found = capsule ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api") : nullptr;
  Py_XDECREF(capsule);
  if (!found) PyErr_Clear();
  const auto* header = static_cast<const DLPackExchangeAPIHeader*>(found);
  while (header && header->version.major != DLPACK_MAJOR_VERSION) header = header->prev_api;
  return reinterpret_cast<const DLPackExchangeAPI*>(header);
}

std::pair<nb::object, void*> new_tensor(const DLPackExchangeAPI& maker, DLDataType type,
                                        std::initializer_list<int64_t> shape) {
  std::vector<int64_t> sizes(shape);
  DLTensor prototype{};
  prototype.device = {kDLCPU, 0};
  prototype.ndim = static_cast<int32_t>(sizes.size());
  prototype.dtype = type;
  prototype.shape = sizes.data();
  std::string error = "no memory for a tensor";
  DLManagedTensorVersioned* made = nullptr;
  if (maker.managed_tensor_allocator(&prototype, &made, &error, [](void* context, const char*, const char* message) {
        static_cast<std::string*>(context)->assign(message);
      }) != 0)
    throw std::runtime_error(error);
  void* data = static_cast<char*>(made->dl_tensor.data) + made->dl_tensor.byte_offset;
  void* object = nullptr;
  if (maker.managed_tensor_to_py_object_no_sync(made, &object) != 0) nb::raise_python_error();
  return {nb::steal(static_cast<PyObject*>(object)), data};
}

}  // namespace erlangen
