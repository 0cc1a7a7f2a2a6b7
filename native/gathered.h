// From when on rows are gathered so often, and so much in all, that it pays to copy them to one place first: measured on
// graphs of 2,000 to 100,000 nodes.
#pragma once
#include <cstdint>

namespace erlangen {

inline constexpr int64_t kOftenGathered = 12;                  // times each row, on average
inline constexpr int64_t kMuchGathered = int64_t{256} << 20;   // bytes, by all heads of an item

}  // namespace erlangen
