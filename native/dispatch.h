// The kernels are compiled once per instruction set; which of them run is decided on the machine that runs them.
#pragma once
#include <string>
#include <vector>

#include "problem.h"

namespace erlangen {

struct Kernels {
  const char* instruction_set;
  void (*tiles_forward)(const Problem&);
  void (*tiles_backward)(const Problem&);
  void (*edges_forward)(const Problem&);
  void (*edges_backward)(const Problem&);
  void (*triples_forward)(const TripleProblem&);
  void (*triples_backward)(const TripleProblem&);
};

// Those that this build has and this machine can run, the best first.
const std::vector<Kernels>& usable_kernels();
// Those in use: the best, unless others were chosen.
const Kernels& kernels();
void choose_kernels(const std::string& instruction_set);

}  // namespace erlangen
