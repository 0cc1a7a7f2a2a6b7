// Memory of large results, used again.
#pragma once
#include <cstddef>

namespace erlangen {

// From this size on the C library asks the system for memory at every call, and gives it back at every release.
inline constexpr std::size_t kLarge = std::size_t{32} << 20;

struct Memory {
  void* data;
  std::size_t size;
};

// Memory of at least `bytes`, aligned, of undefined contents: freed memory of about this size where there is some, since
// getting new pages takes a good part of the time in which they are filled. Throws where there is none at all.
Memory take_memory(std::size_t bytes);
void give_back(Memory memory);

// Releases what is kept for later, up to 1 GiB, to the system.
void release_kept_memory();

}  // namespace erlangen
