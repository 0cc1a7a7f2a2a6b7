#include "tile_pieces.h"

#include <algorithm>

#include "thread_pool.h"

namespace erlangen {
namespace {

// The longest interval of key blocks, roughly, that no other piece of the same key head touches.
void find_own(std::vector<TilePiece>& pieces, size_t first, size_t last) {
  for (size_t n = first; n < last; ++n) {
    int64_t low = pieces[n].first_block, high = pieces[n].last_block;
    for (size_t m = first; m < last; ++m) {
      const TilePiece& other = pieces[m];
      if (m == n || other.last_block <= low || other.first_block >= high) continue;
      if (other.first_block <= low)
        low = std::min(high, other.last_block);
      else
        high = other.first_block;
    }
    pieces[n].first_own = low;
    pieces[n].last_own = high;
  }
}

}  // namespace

std::vector<TilePiece> cut_tiles(const Problem& p) {
  std::vector<TilePiece> pieces;
  const int64_t rows = p.tiles.rows, all_heads = p.batch * p.heads;
  if (rows == 0 || all_heads == 0) return pieces;
  const int64_t per_head = std::clamp<int64_t>((pieces_of_work(8) + all_heads - 1) / all_heads, 1, rows);
  int64_t offset = 0;
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t h = 0; h < p.heads; ++h) {
      const int64_t* indptr = p.tiles.indptr + p.relation(b, h) * (rows + 1);
      int64_t row = 0;
      for (int64_t n = 1; n <= per_head; ++n) {
        TilePiece piece{b, h, row, row, 0, 0, offset, 0, 0};
        const int64_t goal = indptr[0] + (indptr[rows] - indptr[0]) * n / per_head;
        while (row < rows && (n == per_head || indptr[row] < goal)) ++row;
        piece.last_row = row;
        for (int64_t r = piece.first_row; r < row; ++r) {
          if (indptr[r] == indptr[r + 1]) continue;
          const int64_t low = p.tiles.columns[indptr[r]], high = p.tiles.columns[indptr[r + 1] - 1] + 1;
          const bool untouched = piece.first_block == piece.last_block;
          piece.first_block = untouched ? low : std::min(piece.first_block, low);
          piece.last_block = untouched ? high : std::max(piece.last_block, high);
        }
        offset += piece.last_block - piece.first_block;
        pieces.push_back(piece);
      }
    }
  const size_t of_key_head = pieces.size() / static_cast<size_t>(p.batch * p.kv_heads);
  for (size_t first = 0; first < pieces.size(); first += of_key_head) find_own(pieces, first, first + of_key_head);
  return pieces;
}

}  // namespace erlangen
