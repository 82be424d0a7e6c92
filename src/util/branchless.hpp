// Function attribute for loops whose data-dependent choices must compile to conditional moves.
// `CORANK_CONDITIONAL_MOVES` precedes the definition of such a function.
#pragma once

// GCC's -fsplit-paths, part of -O3, turns such a choice into a branch, which random data
// mispredicts half of the time.
#if defined(__GNUC__) && !defined(__clang__)
#define CORANK_CONDITIONAL_MOVES __attribute__((optimize("no-split-paths")))
#else
#define CORANK_CONDITIONAL_MOVES
#endif
