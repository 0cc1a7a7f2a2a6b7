// Element types of tensors: half precision is widened to float while it is read, and rounded while it is written.
#pragma once
#include "simd.h"
#include "view.h"

namespace erlangen::ERLANGEN_ISA {

struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};

inline float widen(float x) { return x; }
inline double widen(double x) { return x; }
inline float widen(bf16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }
inline float widen(f16 x) {
  const uint32_t magnitude = (x.bits & 0x7fffu) << 13, sign = (x.bits & 0x8000u) << 16;
  const uint32_t scaled = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);  // denormals too
  const uint32_t special = magnitude >= (0x7c00u << 13) ? 0x7f800000u : 0u;                     // inf and NaN
  return std::bit_cast<float>(scaled | special | sign);
}

inline void narrow(float x, float& out) { out = x; }
inline void narrow(double x, double& out) { out = x; }
inline void narrow(float x, bf16& out) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;  // to nearest, ties to even
  out.bits = static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}
inline void narrow(float x, f16& out) {
  const uint32_t u = std::bit_cast<uint32_t>(x), magnitude = u & 0x7fffffffu, sign = (u >> 16) & 0x8000u;
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const uint32_t tiny = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t huge = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  const uint32_t finite = magnitude < (113u << 23) ? tiny : normal;
  out.bits = static_cast<uint16_t>(sign | (magnitude >= (143u << 23) ? huge : finite));
}

// The type of sums.
template <class S>
using Accumulator = std::conditional_t<std::is_same_v<S, double>, double, float>;

// One vector of a stored row; `load_tail` reads only the first `count` elements and fills up with zeros.
template <class S>
inline Vec<Accumulator<S>> load_wide(const S* p) {
  using T = Accumulator<S>;
  if constexpr (std::is_same_v<S, T>) {
    return load(p);
  } else {
    T lane[kLanes<T>];
    for (int i = 0; i < kLanes<T>; ++i) lane[i] = widen(p[i]);
    return load(lane);
  }
}
template <class S>
inline Vec<Accumulator<S>> load_tail(const S* p, int count) {
  using T = Accumulator<S>;
  T lane[kLanes<T>] = {};
  for (int i = 0; i < count; ++i) lane[i] = widen(p[i]);
  return load(lane);
}

// Calls f with a value of the element type.
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
