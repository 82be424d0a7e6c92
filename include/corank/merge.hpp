// The library's front door: k sorted files in, one sorted file out.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "corank/error.hpp"
#include "corank/options.hpp"
#include "corank/stats.hpp"

namespace corank {

// Merges `runs`, each sorted by `options.keys`, into `output`. Records with equal keys keep the
// order of `runs` and, within a run, their order in the file. "-" as a run is standard input, which
// can be one run only, and as output standard output; a device or a pipe is written to as it is.
// Any other output appears under its name only when it is whole and durable, and may be one of the
// runs. It takes the mode of the file that it replaces, and the owner where the process may set it;
// a link stays, and what it points to is replaced.
//
// Throws OutOfOrder if a run is not sorted, Interrupted if options.stop asks for it, Corrupted if
// the output is not what it must be, and Error for everything else, a run that is written to
// meanwhile among it, but std::bad_alloc and std::system_error where the system refuses memory or a
// thread. After a throw the old output, if any, is untouched and no temporary file is left, unless
// for Options::resume; only if the last step fails, which renames the files of several parts one
// after another and makes their names durable, some of them, or the output, may be new, and whole.
Stats merge(std::span<const std::filesystem::path> runs, const std::filesystem::path& output,
            const Options& options);

// The same from memory into memory: `output` must have room for exactly the records of the runs,
// and overlap none of them. Where Options::shaping lets fewer bytes go out, they are its first,
// and the rest holds anything. Memory that a CUDA device can't reach is registered with it for the
// time of the merge; to spare that time, register all of it beforehand or take it from
// cudaMallocHost.
// Throws Error, too, where the options ask for parts, to resume or to compress.
// After a throw the output holds anything. OutOfOrder calls the runs "run 0" and so on.
Stats merge(std::span<const std::span<const std::byte>> runs, std::span<std::byte> output,
            const Options& options);

}  // namespace corank
