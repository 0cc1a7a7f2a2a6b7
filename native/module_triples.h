// The part of the Python module that is about triples.
#pragma once
#include <nanobind/nanobind.h>

namespace erlangen {

void add_triples(nanobind::module_& m, const char* (*instruction_set)());

}  // namespace erlangen
