// How the backward pass over tiles is cut into pieces of about equal work. The cut depends on the problem and the
// machine, never on the number of threads in use, so that sums of partial results do not either.
#pragma once
#include <vector>

#include "problem.h"

namespace erlangen {

// A piece of the tile backward: consecutive query blocks of one head. It sums its own share of dk and dv over the key
// blocks it touches; the shares of a key head are added up in the order of the pieces. What a piece alone touches it
// writes at once.
struct TilePiece {
  int64_t batch, head, first_row, last_row;
  int64_t first_block, last_block;  // key blocks touched
  int64_t offset;                   // key blocks of all earlier pieces together
  int64_t first_own, last_own;      // key blocks that no other piece of the key head touches: dk and dv are its own

  bool owns(int64_t block) const { return first_own <= block && block < last_own; }
  int64_t index(int64_t block) const { return offset + block - first_block; }  // among the key blocks of all pieces
};

// Ordered by batch, then head, then row.
std::vector<TilePiece> cut_tiles(const Problem& problem);

}  // namespace erlangen
