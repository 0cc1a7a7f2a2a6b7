#include "exchange.h"

#include <stdexcept>
#include <string>
#include <vector>

namespace erlangen {

const Exchange* exchange_of(nb::handle tensor) noexcept {
  static PyObject* const name = PyUnicode_InternFromString("__dlpack_c_exchange_api__");
  PyObject* capsule = name ? PyObject_GetAttr(reinterpret_cast<PyObject*>(Py_TYPE(tensor.ptr())), name) : nullptr;
  // The table outlives every capsule.
  const void* found = capsule ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api") : nullptr;
  Py_XDECREF(capsule);
  if (!found) PyErr_Clear();
  const auto* exchange = static_cast<const Exchange*>(found);
  while (exchange && exchange->major != 1) exchange = exchange->previous;
  return exchange;
}

std::pair<nb::object, void*> new_tensor(const Exchange& maker, nb::dlpack::dtype type,
                                        std::initializer_list<int64_t> shape) {
  std::vector<int64_t> sizes(shape);
  Tensor prototype;
  prototype.device = {nb::device::cpu::value, 0};
  prototype.ndim = static_cast<int32_t>(sizes.size());
  prototype.dtype = type;
  prototype.shape = sizes.data();
  std::string error = "no memory for a tensor";
  ManagedTensor* made = nullptr;
  if (maker.allocate(&prototype, &made, &error, [](void* context, const char*, const char* message) {
        static_cast<std::string*>(context)->assign(message);
      }) != 0)
    throw std::runtime_error(error);
  void* data = static_cast<char*>(made->tensor.data) + made->tensor.byte_offset;
  void* object = nullptr;
  if (maker.to_python(made, &object) != 0) nb::raise_python_error();
  return {nb::steal(static_cast<PyObject*>(object)), data};
}

}  // namespace erlangen
