// Buffers of large results, used again: getting new pages takes a good part of the time in which they are filled.
#pragma once
#include <cstddef>

namespace erlangen {

// From this size on the C library asks the system for memory at every call, and gives it back at every release.
inline constexpr std::size_t kLarge = std::size_t{32} << 20;

struct Buffer {
  void* data;
  std::size_t size;
};

// At least `bytes`, aligned, of undefined contents: from the pool where a buffer of about this size is free.
Buffer take_buffer(std::size_t bytes);
// The pool keeps at most 1 GiB of free buffers.
void return_buffer(Buffer buffer);
void empty_buffer_pool();

// Asks for huge pages under a big, fresh buffer, where the system has them: touching it then costs fewer faults.
void advise_huge_pages(void* data, std::size_t bytes);

}  // namespace erlangen
