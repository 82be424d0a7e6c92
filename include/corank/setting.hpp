// Settings that messages refer to. Callers name them differently: a field of Options, a flag of the
// command line, an argument of a function in another language.
#pragma once

#include <cstdint>

namespace corank {

enum class Setting : std::uint8_t {
  // Format of the runs
  record,
  keys,
  lines,
  delimiter,
  escape,
  header,
  header_lines,
  comment,
  skip_bytes,
  drop_header,
  bad_numbers,
  ragged,
  no_decompression,  // the state, not the switch: no run is decompressed
  // Query
  on_equal,
  overflow,
  tombstone,
  where,
  having,
  select,
  from,
  to,
  limit,
  copy_only,
  // Output and resources
  overwrite,
  resume,
  parts,
  temporary_folders,
  temporary_compression,
  memory,
  io,
  backend,
};

}  // namespace corank
