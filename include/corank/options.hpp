// Options of a merge: record format, keys, query, and the resources that it may use.
//
// Plain data, which merge() only reads; it must stay unchanged and alive during the call. Sizes are
// bytes. merge() throws Error if options contradict each other.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "corank/compression.hpp"
#include "corank/error.hpp"
#include "corank/query.hpp"
#include "corank/record.hpp"
#include "corank/text.hpp"

namespace corank {

enum class BackendChoice {
  automatic,  // CUDA if the input is large enough and a usable device exists, else the CPU
  cpu,
  cuda,  // throws Error if no usable device exists
};

// How files are read and written.
enum class Io {
  automatic,  // mapped or buffered if the runs are in the page cache, else direct if possible
  buffered,   // copy from and to the page cache
  direct,     // direct I/O with many reads in flight; runs that have none are read buffered:
              // variable-length records, compressed files, file systems without it
  mapped,     // read runs in place, in the page cache; the output is buffered
};

struct Progress {
  std::uint64_t bytes_done = 0;  // merged and written so far, by all passes
  // Bytes that all passes will merge; 0 if unknown, because a run is compressed or a pipe.
  std::uint64_t bytes_total = 0;
};

struct Options {
  Schema record;
  std::vector<KeyField> keys;  // most significant first; empty: the first field, ascending

  // If set, the runs are files of variable-length records in this format and order; `record` and
  // `keys` are ignored. A terminator that the last record of a run lacks is added. CUDA does not
  // merge by keys of type f64.
  std::optional<TextFormat> text;

  // Whether the output lacks the header of the runs: Schema::header_bytes, or of text the comment
  // lines, header lines and header. Dropped header bytes and header lines may differ between runs.
  bool drop_header = false;

  BackendChoice backend = BackendChoice::automatic;
  // Numbers of the CUDA devices, which share the work units; empty: all that there are.
  std::vector<int> devices = {0};

  // Min input size in bytes, for each thread, at which BackendChoice::automatic uses a device for a
  // merge of 256 runs or more: the runs within the range and the limit, compressed runs by the size
  // of their files. Fewer runs need more, in inverse proportion to log2 of their number, which the
  // CPU's time grows with; a sort needs a quarter, but never less than this. Smaller ones end
  // before a device has started. Pipes always count as large enough.
  std::uint64_t min_device_bytes = std::uint64_t{512} << 20;

  // Makes a failing device end the merge. By default, a device that lacks memory gets smaller
  // units, then fewer in flight. After any other failure it gets no units. Other devices, or else
  // the CPU, merge the unit at which it failed and all later ones. The output is the same.
  bool strict_backend = false;

  // Number of threads, at most 4096; 0 means all cores that this process may use: fewer than the
  // machine's by its processor affinity, its control group or Slurm's variables.
  unsigned threads = 0;

  Io io = Io::automatic;

  // Upper bound on the memory for buffers. The program itself needs about 64 MiB more, and a
  // device's driver its own mappings. 0 means a quarter of the memory that the process may use:
  // that of the machine, or the limit of its control group, Slurm job or address space.
  //
  // If the runs do not fit in one pass, several passes use temporary files next to the output. If
  // not even that fits, merge() throws Error, which names the smallest budget that works.
  std::uint64_t memory_bytes = 0;

  // Folders for temporary files, which are used in turn; empty: that of the output, or the system's
  // folder for temporary files if the output is a pipe or device.
  std::vector<std::filesystem::path> temporary_folders;

  // Compression of the temporary files of a sort, by lz4 or zstd; default: none. The sort then
  // counts bytes, which costs records of a fixed size some speed.
  std::optional<Compression> temporary_compression;

  // Replaces an existing output, once the new one is complete and durable. By default it is an
  // error if the output exists.
  bool overwrite = false;

  // Resumes a stopped merge of the same runs with the same options from its partial output. If that
  // does not match the inputs, the merge sends a warning and starts over. Throws Error if the
  // output is not a regular file.
  //
  // The last 64 KiB of the partial output, or at most its last hundredth if records are dropped or
  // combined, are merged again and compared. Parts resume independently. Temporary files of
  // intermediate passes are not kept; these passes skip the input of the partial output. If such a
  // merge is interrupted or a system call fails, it keeps its partial output for the next one.
  //
  // A sort keeps its temporary runs, too, in hidden files, and resumes after them, until the system
  // is started anew. They do not give their space back while they are merged. It excludes
  // temporary_compression, limits, ranges and conditions on records.
  bool resume = false;

  // Interval at which the output is made durable, in the background. After a power failure, a merge
  // resumes from the last checkpoint; after any other stop, from the last byte written.
  std::chrono::milliseconds checkpoint_interval{5000};

  // Computes Stats::checksum.
  bool checksum = false;

  // Verifies that the output is sorted and holds exactly the records that were read. Costs almost
  // nothing if the merge is bound by I/O, more on few cores. With copy_only, order is not checked.
  //
  // Covers records from the return of the read to the return of the write. Runs that are in memory
  // or mapped are covered from the time at which they are merged. A device verifies its output
  // before it copies it back, so that copy is not covered. A resumed merge covers only the records
  // that it merges itself. See docs/TRUST.md.
  bool verify = true;

  // Number of output files; 0 means one file, at the given path. Otherwise the output is a folder,
  // created if needed, of files part-00000, part-00001 and so on, each sorted and in order. They
  // hold nearly equally many input records, or bytes of records of variable length, and are written
  // concurrently, or one after another where the runs cannot be searched: CSV, pairs, compressed
  // runs and pipes. The parts then share the bytes of the output. If their number is not known
  // beforehand, as for pipes and queries, the output is written to a temporary file first.
  unsigned parts = 0;
  // Keeps fixed-size records with equal keys in one part, as records of variable length and groups
  // always are unless a limit is shared; parts then hold different numbers of records.
  bool parts_by_key = false;

  // Decompresses runs that start with the magic bytes of gzip, zstd, bzip2, xz or lz4. Plain
  // records that do so by chance are rejected as corrupt, never misread. Compressed runs and pipes
  // are read from start to end, so they exclude `resume`.
  bool decompress = true;

  // Compression of the output; excludes `resume`. Default: by the suffix of the output's name (see
  // Compression::by_name), and none for parts. Part files get the codec's suffix.
  //
  // The output is a sequence of frames with checksums, each holding 1 MiB before compression, which
  // the codec's own program can read. Its bytes depend only on the records, the codec and the
  // codec's version, not on the number of threads.
  std::optional<Compression> compression;

  // Operators on the merged records.
  //
  // Parts divide the input records evenly, without splitting a group of equal keys. With operators
  // or lines, a limit is instead divided among the parts, which are then written one after another
  // and cannot resume.
  //
  // A merge that drops or combines records resumes at the start of the last group in its output, as
  // far as the output holds the key. The fewer leading key fields it holds, the more is merged
  // again; without the first, everything is. Nothing is written twice.
  Query query;

  // Copies the runs one after another, ignoring their keys, with the same engine. Baseline for the
  // cost of merging.
  bool copy_only = false;

  // File for a trace of chunks and units, in Chrome's trace-event format; empty: no trace.
  std::filesystem::path trace;

  // Receives warnings, each a sentence for the user, such as that several passes are needed. Called
  // on the thread that called merge().
  std::function<void(const Message&)> notice;

  // Receives the progress, about ten times a second at most. Called by one thread at a time, but by
  // any thread.
  std::function<void(const Progress&)> progress;

  // Stops the merge within about a second; merge() then throws Interrupted.
  std::stop_token stop;
};

}  // namespace corank
