// How the backward passes are cut into pieces of about equal work. The cut depends on the problem and the machine, never
// on the number of threads in use, so that sums of partial results do not either.
#pragma once
#include <vector>

#include "problem.h"

namespace erlangen {

std::vector<TilePiece> cut_tiles(const Problem& problem);

}  // namespace erlangen
