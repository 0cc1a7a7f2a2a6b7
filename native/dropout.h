// Dropout decided by a hash, so that the backward pass drops the same pairs without storing them.
#pragma once
#include <cstdint>

namespace erlangen::ERLANGEN_ISA {

// Whether pair (i, j) of head h of batch item b is kept depends on (seed, b, h, i, j) alone.
inline uint32_t mix(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  return x ^ (x >> 16);
}
inline uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
struct Dropout {
  uint64_t seed;
  uint32_t threshold;  // a pair is kept when its hash is at least this
  double keep_scale;
  bool active;

  Dropout(double probability, uint64_t seed_)
      : seed(seed_),
        threshold(static_cast<uint32_t>(probability * 4294967295.0)),
        keep_scale(probability < 1 ? 1 / (1 - probability) : 0),
        active(probability > 0) {}
  uint32_t row_key(int64_t head, int64_t i) const {
    const uint64_t row = mix(mix(seed + 0x9e3779b97f4a7c15u) + static_cast<uint64_t>(head));
    return static_cast<uint32_t>(mix(row + static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15u));
  }
  template <class T>
  T factor(uint32_t row_key, int64_t j) const {
    const uint32_t hash = mix(row_key ^ mix(static_cast<uint32_t>(j) + 0x9e3779b9u));
    return hash >= threshold ? static_cast<T>(keep_scale) : T{0};
  }
};

}  // namespace erlangen::ERLANGEN_ISA
