// Error of a run that is out of order: both keys, the place, and the likely cause.
#pragma once

#include <cstdint>

#include "format/record_format.hpp"
#include "jobs/scan.hpp"
#include "run/run.hpp"

namespace corank {

// Throws OutOfOrder for record `index` of the block, which sorts before its predecessor. May read
// the file up to there again, to count its lines.
[[noreturn]] void throw_disorder(const Run& run, const RecordFormat& format,
                                 const ScannedBlock& block, std::uint64_t index);

}  // namespace corank
