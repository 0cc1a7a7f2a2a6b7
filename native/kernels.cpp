// The table of the kernels of one instruction set.
#include "dispatch.h"

namespace erlangen::ERLANGEN_ISA {

void tiles_forward(const Problem&);
void tiles_backward(const Problem&);
void edges_forward(const Problem&);
void edges_backward(const Problem&);
void triples_forward(const TripleProblem&);
void triples_backward(const TripleProblem&);

extern const Kernels kernels{ERLANGEN_ISA_NAME, tiles_forward,   tiles_backward,  edges_forward,
                             edges_backward,    triples_forward, triples_backward};

}  // namespace erlangen::ERLANGEN_ISA
