// Scalar functions of a score with their derivatives, on vectors.
#pragma once
#include "problem.h"
#include "simd.h"

namespace erlangen::ERLANGEN_ISA {

template <class T>
inline Vec<T> magnitude(Vec<T> x) {
  return x < 0 ? -x : x;
}

// Exact to a few units in the last place also where x is small.
template <class T>
inline Vec<T> tanh(Vec<T> x) {
  const Vec<T> e = exp2(magnitude<T>(x) * static_cast<T>(-2 * kLog2E));
  const Vec<T> large = (1 - e) / (1 + e);
  const Vec<T> signed_large = x < 0 ? -large : large;
  const Vec<T> y = x * x;
  Vec<T> series = y * static_cast<T>(-1382.0 / 155925) + static_cast<T>(62.0 / 2835);
  for (double c : {-17.0 / 315, 2.0 / 15, -1.0 / 3, 1.0}) series = series * y + static_cast<T>(c);
  const T bound = static_cast<T>(sizeof(T) == 4 ? 0.25 : 0.01);
  return (x < bound) & (x > -bound) ? x * series : signed_large;
}

// log2 x for x >= 0; -inf below the smallest normal number.
template <class T>
inline Vec<T> log2(Vec<T> x) {
  constexpr bool single = sizeof(T) == 4;
  using I = Bits<T>;
  using Scalar = std::conditional_t<single, int32_t, int64_t>;
  constexpr Scalar one = single ? Scalar(0x3f800000) : Scalar(0x3ff0000000000000);
  constexpr Scalar root = single ? Scalar(0x3f3504f3) : Scalar(0x3fe6a09e667f3bcd);  // sqrt(1/2)
  constexpr int digits = single ? 23 : 52;
  constexpr Scalar bias = single ? 127 : 1023;
  const Vec<T> usual = x - x == 0 ? x : broadcast(T{1});  // the bits of a NaN plus the next number would overflow
  const I shifted = std::bit_cast<I>(usual) + (one - root);
  const Vec<T> power = __builtin_convertvector((shifted >> digits) - bias, Vec<T>);
  const I mantissa = (shifted & ((Scalar(1) << digits) - 1)) + root;
  const Vec<T> f = std::bit_cast<Vec<T>>(mantissa) - 1;
  const Vec<T> z = f / (2 + f), y = z * z;  // |z| < 0.172; log(1 + f) = 2 artanh z
  Vec<T> series = y * static_cast<T>(single ? 1.0 / 11 : 1.0 / 23) + static_cast<T>(single ? 1.0 / 9 : 1.0 / 21);
  if constexpr (!single)
    for (double c : {19.0, 17.0, 15.0, 13.0, 11.0, 9.0}) series = series * y + static_cast<T>(1 / c);
  for (double c : {7.0, 5.0, 3.0, 1.0}) series = series * y + static_cast<T>(1 / c);
  Vec<T> result = power + series * z * static_cast<T>(2 * kLog2E);
  result = x < std::numeric_limits<T>::min() ? broadcast(-kInf<T>) : result;
  return x - x == 0 ? result : x;  // inf and NaN stay
}

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

}  // namespace erlangen::ERLANGEN_ISA
