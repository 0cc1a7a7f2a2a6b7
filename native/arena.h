// Scratch memory of a thread, kept between calls so that its pages are touched only once, and the arena that hands it
// out.
#pragma once
#include <cstddef>
#include <cstdint>

namespace erlangen {

enum class Scratch {
  driver,  // of a kernel's driver, shared by its tasks
  task,    // of the running task
};

// Aligned to 64 bytes; contents are undefined.
void* scratch(Scratch owner, std::size_t bytes);

template <class T>
class Arena {
 public:
  // `count` is to leave room for rounding up: 15 elements for each allocation.
  Arena(Scratch owner, int64_t count) : next_(static_cast<T*>(scratch(owner, sizeof(T) * count))) {}
  T* allocate(int64_t count) {
    T* const block = next_;
    next_ += (count + 15) / 16 * 16;
    return block;
  }

 private:
  T* next_;
};

}  // namespace erlangen
