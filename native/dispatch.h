// The kernels for the machine the program runs on.
#pragma once
#include <string>
#include <vector>

#include "problem.h"

namespace erlangen {

// All instruction sets this build has and this machine can run, the best first.
const std::vector<Kernels>& usable_kernels();

}  // namespace erlangen
