// The entry points of one instruction set.
#pragma once
#include "problem.h"
#include "simd.h"

namespace erlangen::ERLANGEN_ISA {

void tiles_forward(const Problem&);
void tiles_backward(const Problem&);
void edges_forward(const Problem&);
void edges_backward(const Problem&);

template <class F>
void with_storage(Storage storage, F&& f) {
  switch (storage) {
    case Storage::f32: return f(float{});
    case Storage::f64: return f(double{});
    case Storage::bf16: return f(bf16{});
    case Storage::f16: return f(f16{});
  }
}

}  // namespace erlangen::ERLANGEN_ISA
