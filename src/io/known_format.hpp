// File formats that hold no plain records, known by their first bytes: merging their bytes as
// records would give a file that no program reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "io/file.hpp"

namespace corank {

// The first bytes of a stream that tell its format, or all of a shorter one.
inline constexpr std::size_t known_format_head_bytes = 64;

// Throws Error, which names the format and says what to do, where the first bytes of `path` show
// such a format. The first overload also knows formats that only the last bytes tell for sure.
// Without `decompress` compressed formats are accepted.
void refuse_known_format(const std::filesystem::path& path, const FileDescriptor& file,
                         std::uint64_t file_bytes, bool decompress);
void refuse_known_format(const std::filesystem::path& path, std::span<const std::byte> head,
                         bool decompress);

}  // namespace corank
