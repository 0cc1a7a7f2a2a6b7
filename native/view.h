// A tensor's memory: its element type and its strides.
#pragma once
#include <cstdint>

namespace erlangen {

enum class Storage { f32, f64, bf16, f16 };

// A (batch, head, position, feature) tensor whose features are contiguous; strides count elements.
struct View {
  void* data = nullptr;
  int64_t batch = 0, head = 0, row = 0;

  template <class S>
  __attribute__((always_inline)) S* at(int64_t b, int64_t h, int64_t i) const {
    return static_cast<S*>(data) + b * batch + h * head + i * row;
  }
  // Whether the heads of a position are neighbours in memory, not the positions of a head.
  bool heads_last(int64_t heads) const { return heads > 1 && head < row; }
};

}  // namespace erlangen
