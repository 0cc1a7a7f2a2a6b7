// Scalar functions of a score with their derivatives, on vectors.
#pragma once
#include "elementary.h"
#include "problem.h"

namespace erlangen::ERLANGEN_ISA {

template <class T>
struct ScoreMap {
  MapKind kind;
  T a, b;

  explicit ScoreMap(const Problem& p) : kind(p.map), a(static_cast<T>(p.map_a)), b(static_cast<T>(p.map_b)) {}
  bool active() const { return kind != MapKind::identity; }

  template <MapKind K>
  Vec<T> value(Vec<T> x) const {
    if constexpr (K == MapKind::cap) return a * tanh<T>(x / a);
    if constexpr (K == MapKind::leaky) return x > 0 ? x : x * a;
    if constexpr (K == MapKind::log) return log2<T>(magnitude<T>(x + b)) * (a * static_cast<T>(kLn2));
    return x;
  }
  template <MapKind K>
  Vec<T> slope(Vec<T> x) const {
    if constexpr (K == MapKind::cap) {
      const Vec<T> t = tanh<T>(x / a);
      return 1 - t * t;
    }
    if constexpr (K == MapKind::leaky) return x > 0 ? broadcast(T{1}) : broadcast(a);
    if constexpr (K == MapKind::log) {  // weights that vanish are not differentiated
      const Vec<T> from = x + b;
      return magnitude<T>(from) < std::numeric_limits<T>::min() ? Vec<T>{} : a / from;
    }
    return broadcast(T{1});
  }

  // Calls f with the kind as a compile-time constant.
  template <class F>
  auto with_kind(F&& f) const {
    switch (kind) {
      case MapKind::cap: return f(std::integral_constant<MapKind, MapKind::cap>());
      case MapKind::leaky: return f(std::integral_constant<MapKind, MapKind::leaky>());
      case MapKind::log: return f(std::integral_constant<MapKind, MapKind::log>());
      case MapKind::identity: break;
    }
    return f(std::integral_constant<MapKind, MapKind::identity>());
  }

  // Scores become their values in units of log2; `slopes` (if any) takes the derivatives. Whole vectors.
  __attribute__((noinline)) void apply(T* x, T* slopes, int64_t count) const {
    with_kind([&](auto k) {
      for (int64_t i = 0; i < count; i += kLanes<T>) {
        const Vec<T> from = load(x + i);
        store(x + i, value<k()>(from) * static_cast<T>(kLog2E));
        if (slopes) store(slopes + i, slope<k()>(from));
      }
    });
  }
};

// What products are multiplied by. Scores are in units of log2, unless a map is still to come.
template <class T>
inline T score_factor(const Problem& p) {
  return static_cast<T>(p.scale) * static_cast<T>(p.map == MapKind::identity ? kLog2E : 1);
}

}  // namespace erlangen::ERLANGEN_ISA
