// Prefetching: rows of tensors, and the order in which tiles will need their keys.
#pragma once
#include <algorithm>

#include "problem.h"

namespace erlangen::ERLANGEN_ISA {

inline constexpr int kL1 = 3, kL2 = 2;  // as __builtin_prefetch names the cache a line is brought into

// Inline, because a call without any effect that a compiler knows of may vanish.
template <int cache, bool written = false, class S>
inline __attribute__((always_inline)) void prefetch(const S* row, int64_t dim) {
  for (int64_t d = 0; d < dim; d += 64 / static_cast<int64_t>(sizeof(S))) __builtin_prefetch(row + d, written, cache);
}

// Which keys to prefetch while a tile is computed. Blocks of queries are visited one after another, in steps of one row
// of tiles up or down. What the previous block has read is in cache: the next tile of this block, or else of the next
// one, that the block before it has not read is not.
class KeyPrefetch {
 public:
  int64_t key = 0, last_key = 0;

  // `indptr` is where the row of tiles begins.
  KeyPrefetch(const TileView& tiles, const int64_t* indptr, int64_t row, int step)
      : columns_(tiles.columns), before_(inside(tiles, row - step) ? indptr - step : nullptr), last_(indptr[1]) {
    after_ = indptr[0];  // in cache, if there is no other
    if (!inside(tiles, row + step)) return;
    const int64_t tile = skip_cached(indptr[step], indptr[step + 1], indptr);
    if (tile < indptr[step + 1]) after_ = tile;
  }

  // While tile t is computed.
  void during(int64_t t, int64_t keys) {
    const int64_t tile = skip_cached(std::max(tile_, t + 1), last_, before_);
    if (tile == tile_) return;
    tile_ = tile;
    key = int64_t{columns_[tile < last_ ? tile : after_]} * kTile;
    last_key = std::min(key + kTile, keys);
  }

 private:
  const int32_t* columns_;
  const int64_t* before_;
  int64_t last_, after_, tile_ = -1;

  static bool inside(const TileView& tiles, int64_t row) { return row >= 0 && row < tiles.rows; }
  int64_t skip_cached(int64_t tile, int64_t last, const int64_t* before) const {
    while (before && tile < last && std::binary_search(columns_ + before[0], columns_ + before[1], columns_[tile]))
      ++tile;
    return tile;
  }
};

}  // namespace erlangen::ERLANGEN_ISA
