// One sorted input, or a stretch of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <stop_token>
#include <vector>

#include "io/byte_source.hpp"
#include "io/file.hpp"
#include "io/mapped_file.hpp"

namespace corank {

class Run {
 public:
  // Throws Error if `path` is neither a readable file of whole records nor a compressed file, if
  // `decompress` says that such are wanted, nor a pipe. With `keep_open` false a file is opened
  // anew for each read, so that there may be more runs than descriptors.
  Run(std::filesystem::path path, std::uint32_t record_bytes, bool keep_open,
      bool decompress = false);
  // A run that an earlier pass wrote.
  Run(FileDescriptor file, std::filesystem::path folder, std::uint32_t record_bytes,
      std::uint64_t records);
  // A run in memory, which errors call `name`.
  Run(std::span<const std::byte> memory, std::string name, std::uint32_t record_bytes);

  // From now on throws Interrupted from read() where `stop` asks for it.
  void stop_on(std::stop_token stop) { stop_ = std::move(stop); }
  const std::stop_token& stop() const { return stop_; }

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t first() const { return first_; }  // record of the whole run that it begins with
  std::uint64_t records() const { return records_; }
  std::uint64_t bytes() const { return records_ * record_bytes_; }
  std::uint32_t record_bytes() const { return record_bytes_; }
  // Where in the file it begins, in bytes.
  std::uint64_t offset() const { return first_ * record_bytes_; }
  std::uint64_t file_bytes() const { return file_bytes_; }  // of the whole that this is part of
  FileIdentity identity() const { return input_.identity; }
  std::int64_t modified_ns() const { return input_.modified_ns; }  // since 1970, at the start
  bool is_temporary() const { return file_ && identity() == FileIdentity{}; }

  // Whether it can only be read from its beginning to its end, by its source, since it is
  // compressed or a pipe. Then its length in records is not known: records() and bytes() are of the
  // file, and 0 of a pipe.
  bool is_stream() const { return input_.is_stream || input_.codec != Codec::none; }
  const InputStatus& input() const { return input_; }
  std::unique_ptr<Source> source(std::stop_token stop) const;
  // The first bytes, `bytes` of them if there are so many, of one that is a stream. A pipe keeps
  // them for its source, which is then made here.
  std::vector<std::byte> begin(std::uint64_t bytes, std::stop_token stop);
  // From now on its bytes are what it counts as records.
  void count_bytes();

  // Reads straight from the device from now on, past the page cache. False where the file system
  // does not do that.
  bool make_direct();
  bool is_direct() const { return direct_; }

  // Maps the file into `files`, from where its records are used in place from now on.
  void map_into(const std::shared_ptr<MappedFiles>& files);
  bool is_mapped() const { return mapping_ != nullptr; }
  std::uint64_t mapped_page_bytes() const;  // see MappedFiles::page_bytes(); 0 if it is not mapped

  // Whether some pages of it, the first and the last of them, are in the page cache.
  bool is_cached() const;

  // The records from `first` on, in memory; null where they are in a file.
  const std::byte* in_place(std::uint64_t first) const {
    return memory_ ? memory_ + (first_ + first) * record_bytes_ : nullptr;
  }

  // `count` of its records, from `first` on.
  Run stretch(std::uint64_t first, std::uint64_t count) const;
  // What follows the first `header` records, which are none of the run any more.
  Run behind(std::uint64_t header) const;
  // The run that this is a stretch of.
  Run whole() const;

  // Reads `count` records from record `first` on. Throws Error if the file has become shorter or is
  // another one. Thread-safe.
  void read(std::uint64_t first, std::uint64_t count, std::span<std::byte> into) const;

  // The part of the file to read for `count` records from record `first` on, into memory at a
  // page's start: what they need, and where the run is direct the rest of the first and last page.
  struct Part {
    std::uint64_t offset;  // in the file
    std::uint64_t bytes;   // fewer may be there at the end of the file
    std::uint64_t skew;    // of the first record in it
    std::uint64_t wanted;  // bytes of the records
  };
  Part part(std::uint64_t first, std::uint64_t count) const;
  // To read it oneself. Throws what read() throws.
  std::shared_ptr<const FileDescriptor> descriptor() const;
  // Throws Error where the `got` bytes of a part hold not all that is wanted.
  void check_got(const Part& part, std::uint64_t got) const;

  // Throws Error if the file has another size or time of change than at the start, or could not be
  // read where it is mapped.
  void check_unchanged() const;

 private:
  // Of a pipe, what was taken from its source before the source is asked for.
  struct Begun {
    std::unique_ptr<Source> source;
    std::vector<std::byte> bytes;
  };

  bool is_named_file() const { return !memory_ && identity() != FileIdentity{}; }
  FileDescriptor reopen() const;

  std::filesystem::path path_;
  std::shared_ptr<const FileDescriptor> file_;  // null in memory, and if opened for each read
  const std::byte* memory_ = nullptr;           // of the whole run
  std::shared_ptr<const MappedFiles> mapping_;  // that memory_ is in, if any
  bool direct_ = false;
  std::stop_token stop_;
  InputStatus input_;
  bool decompress_ = false;
  std::shared_ptr<Begun> begun_;
  std::uint32_t record_bytes_;
  std::uint64_t file_bytes_;
  std::uint64_t header_ = 0;  // records that are none
  std::uint64_t first_ = 0;
  std::uint64_t records_;
};

}  // namespace corank
