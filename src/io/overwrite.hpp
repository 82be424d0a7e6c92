// Overwrites a file with the bytes of another one: the last resort for an output that no other file
// can replace, such as a mount point or a file in a read-only folder.
//
// Until overwrite() is called, the file is untouched. Failures are thrown as Error.
#pragma once

#include <filesystem>

#include "io/file.hpp"

namespace corank {

// Opens a file to be overwritten, and locks it. Throws Error if it cannot be written to, or if
// another merge holds its lock.
FileDescriptor open_to_overwrite(const std::filesystem::path& path);

// Replaces the content of `file`, named `path`, by that of `from`, and makes it durable. Disk space
// is reserved first: without enough of it, the old content stays.
void overwrite(const FileDescriptor& file, const FileDescriptor& from,
               const std::filesystem::path& path);

}  // namespace corank
