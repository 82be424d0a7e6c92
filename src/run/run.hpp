// A sorted input, or a span of its records: a file, a pipe or memory.
//
// Copies share the open file and the mapping. Positions and counts are in records of record_bytes()
// bytes. Where it is 1, as for variable-length records and for all runs of a merge that has a
// stream, they are in bytes. Const functions are thread-safe, except those of streams. Failures are
// thrown as Error.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "io/byte_source.hpp"
#include "io/file.hpp"
#include "io/mapped_file.hpp"
#include "run/peekable_source.hpp"

namespace corank {

class Run {
 public:
  // Options for opening a file.
  struct Opening {
    // If false, each read opens the file anew, so that there may be more runs than descriptors.
    bool keep_open = true;
    bool decompress = false;  // whether compressed files are decompressed
    DecompressionLimits decompression = {};
    std::optional<std::uint64_t> header_bytes = {};  // see Schema::header_bytes
    std::string mark = {};  // byte order mark, which a pipe without a header drops
  };
  // Opens `path`. Throws Error unless it is a file of whole records, a pipe or, with `decompress`,
  // a compressed file. Also throws if its first bytes show a format without plain records.
  Run(std::filesystem::path path, std::uint32_t record_bytes, const Opening& opening);
  // Makes a run of a stream. Reading it throws Interrupted once `stop` is requested.
  Run(const NamedSource& source, const Opening& opening, std::stop_token stop);
  // Makes a run of a file that an intermediate pass wrote.
  Run(FileDescriptor file, std::filesystem::path folder, std::uint32_t record_bytes,
      std::uint64_t records, std::uint64_t header_bytes = 0);
  // Makes a run of a nameless file, which holds `content_bytes` before compression.
  static Run compressed(FileDescriptor file, std::filesystem::path folder,
                        std::uint64_t content_bytes);
  // Makes a run of `memory`, which must outlive it. Errors call it `name`.
  Run(std::span<const std::byte> memory, std::string name, std::uint32_t record_bytes);

  // Makes read() throw Interrupted once `stop` is requested.
  void stop_on(std::stop_token stop) { stop_ = std::move(stop); }
  const std::stop_token& stop() const { return stop_; }

  const std::filesystem::path& path() const { return path_; }
  // Returns the path for messages.
  std::filesystem::path shown_path() const { return path_ == "-" ? "standard input" : path_; }
  std::uint64_t first() const { return first_; }  // its first record, counted in the whole run
  std::uint64_t records() const { return records_; }
  std::uint64_t bytes() const { return records_ * record_bytes_; }
  std::uint32_t record_bytes() const { return record_bytes_; }
  // Returns the byte of the file at which it begins.
  std::uint64_t offset() const { return header_bytes_ + first_ * record_bytes_; }
  std::uint64_t header_bytes() const { return header_bytes_; }  // bytes before its records
  std::uint64_t header_lines() const { return header_lines_; }  // lines of a text header
  std::uint64_t file_bytes() const { return file_bytes_; }      // of the whole run
  FileIdentity identity() const { return input_.identity; }
  std::int64_t modified_ns() const { return input_.modified_ns; }  // since 1970, when it was opened
  bool is_temporary() const { return file_ && identity() == FileIdentity{}; }
  // Returns the sum of its records' fingerprints, as they were when a sort read them or a pass
  // wrote them; 0 unless they are verified. Returns nothing if it is not known, as for a part of a
  // run.
  std::optional<std::uint64_t> fingerprint() const { return fingerprint_; }
  void set_fingerprint(std::uint64_t fingerprint) { fingerprint_ = fingerprint; }
  // Lets a pass give back the disk space of the parts that it has read. For temporary runs only.
  void make_read_once() { is_read_once_ = true; }
  bool is_read_once() const { return is_read_once_; }

  // Returns whether it is a pipe or compressed, so that only source() can read it, in order. Its
  // number of records is then unknown: records() and bytes() are the file's size, 0 for a pipe.
  bool is_stream() const { return is_pipe() || input_.codec != Codec::none; }
  // Returns whether it is a pipe, which can be read once only.
  bool is_pipe() const { return input_.is_pipe; }
  // Returns the size of its records; nothing if it is a stream of unknown length.
  std::optional<std::uint64_t> content_bytes() const {
    return is_stream() ? content_bytes_ : bytes();
  }
  const InputStatus& input() const { return input_; }
  // Reads a stream from its beginning, without a header that was removed. Its first read() throws
  // Error if the first bytes show a format without plain records.
  std::shared_ptr<ByteSource> source(std::stop_token stop) const;
  // Returns the first `bytes` bytes of a stream, or all if there are fewer. A pipe keeps these
  // bytes for source(). While it waits for them, it takes what comes from the pipes among `runs`,
  // too, as one program may feed all of them in turn.
  std::vector<std::byte> begin(std::uint64_t bytes, std::stop_token stop, std::span<Run> runs = {});
  // Returns the same run, counting bytes instead of records.
  Run in_bytes() const;

  // Returns the line that begins at the byte of the file, or after decompression, from 1: its
  // number of terminators before the byte, which it reads again. Returns nothing for a pipe.
  std::optional<std::uint64_t> line_at(std::uint64_t byte, char terminator) const;

  // Switches all copies to direct I/O, before any of them is read by several threads. Returns false
  // if the file system does not support it.
  bool make_direct();
  bool is_direct() const;

  // Maps the file into `files`; from now on its records are read in place.
  void map_into(const std::shared_ptr<MappedFiles>& files);
  bool is_mapped() const { return mapping_ != nullptr; }
  bool is_in_memory() const { return memory_ && !mapping_; }  // of the caller
  std::uint64_t mapped_page_bytes() const;  // see MappedFiles::page_bytes(); 0 if not mapped

  // Maps the file and returns its records in place, for a reader that lacks memory for them;
  // returns nothing if it is not a plain file. The mapping lasts as long as any copy of the run.
  std::span<const std::byte> mapped_later() const;

  // Returns whether a sample of its pages, the first and the last included, is in the page cache.
  bool is_cached() const;

  // Returns the records from `first` on in memory; null if they are only in a file.
  const std::byte* in_place(std::uint64_t first) const {
    assert(first <= records_ || is_stream());
    return memory_ ? memory_ + offset() + first * record_bytes_ : nullptr;
  }

  // Returns the span of `count` records from `first` on.
  Run subspan(std::uint64_t first, std::uint64_t count) const;
  // Lets searches find records whose starts the bytes around them do not tell: `starts` are those
  // of some records of the whole run, ascending.
  void set_starts(std::vector<std::uint64_t> starts);
  // Returns the last of these starts at or before `position`; 0 if there is none.
  std::uint64_t start_before(std::uint64_t position) const;
  // Returns the run without a header of `header_bytes` bytes and `header_lines` lines. The run must
  // count bytes.
  Run without_header(std::uint64_t header_bytes, std::uint64_t header_lines = 0) const;
  // Returns the whole run that this is a span of, without its header.
  Run whole() const;

  // Reads `count` records from record `first` on. Throws Error if the file was truncated or
  // replaced. Thread-safe.
  void read(std::uint64_t first, std::uint64_t count, std::span<std::byte> into) const;
  // Makes the system read `count` records from record `first` on into the page cache, if the file
  // is open and not direct.
  void prefetch(std::uint64_t first, std::uint64_t count) const;

  // Byte range of the file that holds a span of records, to be read into page-aligned memory. With
  // direct I/O it is extended to whole pages.
  struct Part {
    std::uint64_t offset;  // in the file
    std::uint64_t bytes;   // to read; the file may end earlier
    std::uint64_t skew;    // offset of the first record in the range
    std::uint64_t wanted;  // size of the records
  };
  // Returns the range of `count` records from record `first` on.
  Part part(std::uint64_t first, std::uint64_t count) const;
  // Returns the open file, for callers that read parts themselves. Throws as read() does.
  std::shared_ptr<const FileDescriptor> descriptor() const;
  // Throws Error if the first `got` bytes of a part do not hold all its records.
  void check_got(const Part& part, std::uint64_t got) const;

  // Throws Error if a mapped byte of the file could not be read.
  void check_readable() const;
  // Also throws if the size or modification time of the file has changed since it was opened.
  void check_unchanged() const;

 private:
  struct OpenFile;

  std::shared_ptr<PeekableSource> open_stream(std::stop_token stop) const;
  void check_mapped(const MappedFiles& files, const std::byte* memory) const;
  bool is_named_file() const { return !memory_ && identity() != FileIdentity{}; }
  FileDescriptor reopen() const;

  std::filesystem::path path_;
  std::shared_ptr<const FileDescriptor> file_;  // null in memory, and if opened for each read
  const std::byte* memory_ = nullptr;           // start of the whole run, if in memory
  std::shared_ptr<const MappedFiles> mapping_;  // holds memory_ if the file is mapped
  std::shared_ptr<OpenFile> open_file_;         // of a file: state that all copies share
  bool is_read_once_ = false;
  std::optional<std::uint64_t> fingerprint_;
  std::stop_token stop_;
  InputStatus input_;
  InputContent content_;
  std::shared_ptr<PeekableSource> pipe_;  // a pipe of which begin() has read, or a given source
  std::uint32_t record_bytes_;
  std::uint64_t file_bytes_;
  std::uint64_t header_bytes_ = 0;
  std::uint64_t header_lines_ = 0;
  std::uint64_t first_ = 0;
  std::uint64_t records_;
  std::shared_ptr<const std::vector<std::uint64_t>> starts_;  // of set_starts(); null without
  std::optional<std::uint64_t> content_bytes_;                // of a stream, if that is known
};

// Returns the bytes of all runs; see Run::bytes().
std::uint64_t total_bytes(std::span<const Run> runs);

}  // namespace corank
