// Elementary functions on vectors.
#pragma once
#include "simd.h"

namespace erlangen::ERLANGEN_ISA {

inline constexpr double kLog2E = 1.4426950408889634074, kLn2 = 0.6931471805599453094;

// 2^x for x <= 0 (and a little above); 0 below the smallest normal number, NaN for NaN.
inline __attribute__((always_inline)) Vec<float> exp2(Vec<float> x) {
  x = x < -127.0f ? broadcast(-127.0f) : x;
  const Vec<float> shifted = x + 0x1.8p23f;  // the integer nearest to x is now in the low bits
  const Vec<float> f = x - (shifted - 0x1.8p23f);
  const Bits<float> power = (std::bit_cast<Bits<float>>(shifted) + 127) << 23;
  Vec<float> y = f * 0x1.444004p-13f + 0x1.5f0896p-10f;
  y = y * f + 0x1.3b2a1cp-7f;
  y = y * f + 0x1.c6af6cp-5f;
  y = y * f + 0x1.ebfbe0p-3f;
  y = y * f + 0x1.62e430p-1f;
  y = y * f + 1.0f;
  return y * std::bit_cast<Vec<float>>(power);
}
inline __attribute__((always_inline)) Vec<double> exp2(Vec<double> x) {
  x = x < -1023.0 ? broadcast(-1023.0) : x;
  const Vec<double> shifted = x + 0x1.8p52;
  const Vec<double> f = x - (shifted - 0x1.8p52);
  const Bits<double> power = (std::bit_cast<Bits<double>>(shifted) + 1023) << 52;
  const Vec<double> t = f * 0x1.62e42fefa39efp-1;  // e^t by its series: |t| < 0.35
  Vec<double> y = t * (1.0 / 6227020800.0) + 1.0 / 479001600.0;
  for (double c : {1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120,
                   1.0 / 24, 1.0 / 6, 1.0 / 2, 1.0, 1.0})
    y = y * t + c;
  return y * std::bit_cast<Vec<double>>(power);
}
template <class T>
inline T exp2(T x) {
  return exp2(broadcast(x))[0];
}

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

}  // namespace erlangen::ERLANGEN_ISA
