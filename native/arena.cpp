#include "arena.h"

#include <cstdlib>
#include <memory>
#include <new>

#include "buffer_pool.h"

namespace erlangen {

void* scratch(Scratch owner, std::size_t bytes) {
  struct Block {
    std::unique_ptr<void, void (*)(void*)> memory{nullptr, std::free};
    std::size_t size = 0;
  };
  thread_local Block blocks[2];
  Block& block = blocks[static_cast<int>(owner)];
  if (bytes > block.size) {
    block = {};
    const std::size_t rounded = (bytes + 4095) / 4096 * 4096;
    block.memory.reset(std::aligned_alloc(4096, rounded));
    if (!block.memory) throw std::bad_alloc();
    block.size = rounded;
    advise_huge_pages(block.memory.get(), rounded);
  }
  return block.memory.get();
}

}  // namespace erlangen
