// Rejects file formats that do not hold plain records, such as Parquet, by their first and last
// bytes. Merging their bytes as records would produce a file that no program can read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "io/file.hpp"

namespace corank {

// Numbers of first and last bytes of a stream that suffice to recognise a format.
inline constexpr std::size_t known_format_head_bytes = 264;
inline constexpr std::size_t known_format_tail_bytes = 8;

// Throw Error, which names the format and the remedy, if `path` begins like such a format. Without
// `decompress`, compressed formats are accepted.
void refuse_known_format(const std::filesystem::path& path, const FileDescriptor& file,
                         std::uint64_t file_bytes, bool decompress);
void refuse_known_format(const std::filesystem::path& path, std::span<const std::byte> head,
                         bool decompress);
// Does so for the formats that only their last bytes tell for sure, once all `bytes` were read:
// `head` and `tail` are the first and the last ones, or all if there are fewer.
void refuse_known_ends(const std::filesystem::path& path, std::span<const std::byte> head,
                       std::span<const std::byte> tail, std::uint64_t bytes, bool decompress);
// Throws Error if text begins with `head` and is encoded as UTF-16 or UTF-32, whose lines end with
// more than one byte.
void refuse_wide_text(const std::filesystem::path& path, std::span<const std::byte> head);

}  // namespace corank
