// For loops whose choices are unforeseeable.
#pragma once

// GCC's -fsplit-paths, part of -O3, would make a jump of one of a loop's choices, which is then
// mispredicted half of the time.
#if defined(__GNUC__) && !defined(__clang__)
#define CORANK_CONDITIONAL_MOVES __attribute__((optimize("no-split-paths")))
#else
#define CORANK_CONDITIONAL_MOVES
#endif
