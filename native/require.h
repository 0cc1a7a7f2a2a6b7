// Checks of what a caller passes.
#pragma once
#include <stdexcept>
#include <string>

namespace erlangen {

// Messages are put together only on failure: twenty of them would be a good part of a decoding step.
inline void require(bool condition, const char* message) {
  if (!condition) throw std::invalid_argument(message);
}
inline void require(bool condition, const char* name, const char* message) {
  if (!condition) throw std::invalid_argument(std::string(name) + ": " + message);
}

}  // namespace erlangen
