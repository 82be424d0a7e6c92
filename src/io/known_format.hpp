// Rejects file formats that do not hold plain records, such as Parquet, by their first bytes.
// Merging their bytes as records would produce a file that no program can read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "io/file.hpp"

namespace corank {

// Number of first bytes of a stream that suffice to recognise a format.
inline constexpr std::size_t known_format_head_bytes = 64;

// Throws Error, which names the format and the remedy, if `path` begins like such a format. The
// overload for files also recognises formats by their last bytes. Without `decompress`, compressed
// formats are accepted.
void refuse_known_format(const std::filesystem::path& path, const FileDescriptor& file,
                         std::uint64_t file_bytes, bool decompress);
void refuse_known_format(const std::filesystem::path& path, std::span<const std::byte> head,
                         bool decompress);

}  // namespace corank
