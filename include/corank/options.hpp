// What a merge is to do, and with what means.
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
#include "corank/query.hpp"
#include "corank/record.hpp"
#include "corank/text.hpp"

namespace corank {

enum class BackendChoice {
  automatic,  // CUDA where there is enough to merge and a usable device is found, else the CPU
  cpu,
  cuda,  // an error where no usable device is found
};

// How files are read and written.
enum class Io {
  automatic,  // mapped or buffered where the runs are in the page cache, else direct where possible
  buffered,   // copied from the page cache, and to it
  direct,     // past the page cache, by many reads in flight; buffered where that is not possible
  mapped,     // runs are read in place, in the page cache; the output is buffered
};

struct Progress {
  std::uint64_t bytes_done = 0;  // merged and written so far, by all passes
  // That all passes will merge; 0 where it is not known, since a run is compressed or a pipe.
  std::uint64_t bytes_total = 0;
};

struct Options {
  Schema record;
  std::vector<KeyField> keys;  // empty: the first field, ascending

  // Where it is set, the runs hold records of variable length, ordered as it says; `record` and
  // `keys` play no part. The last line of a run may lack its newline, and gets it. Such runs are
  // files; CUDA does not merge them by a key of type f64.
  std::optional<TextFormat> text;

  BackendChoice backend = BackendChoice::automatic;
  int device = 0;  // CUDA's number of the device

  // What is enough: the runs, within the range and the limit that are given, hold so much, or one
  // is a pipe; compressed runs count as many bytes as their files. Of less, no device is looked
  // for: to start one takes a few tenths of a second, which so small a merge does not make up for.
  std::uint64_t min_device_bytes = std::uint64_t{4} << 30;

  // Whether a failing device ends the merge. Without it, a device that has too little memory gets
  // smaller units, then fewer at once; a unit that it fails at is merged by the CPU, and after a
  // failure other than a lack of memory all the rest is. The output is the same.
  bool strict_backend = false;

  // 0 means all cores that this process may use.
  unsigned threads = 0;

  Io io = Io::automatic;

  // Bound on the memory that the merge takes for its buffers, beside about 64 MiB that the program
  // itself needs and what a device's driver maps. 0 means a quarter of the physical memory, at
  // most 4 GiB. Too little for all runs at once means several passes over temporary files beside
  // the output; too little for even that throws Error, which names the smallest budget that works.
  std::uint64_t memory_bytes = 0;

  // Whether an output that exists already is replaced, once the new one is whole and durable.
  bool overwrite = false;

  // Goes on with what a stopped merge of the same runs by the same options left beside the output,
  // if the runs and what is left agree; begins anew, and says why, if not. The last 64 KiB of it,
  // or where records are dropped or combined the last hundredth, are merged again and compared. Of
  // several parts each goes on by itself. What passes before the last had written is not kept, but
  // they leave out what is in the output already. Interrupted, or where a system call fails, such a
  // merge leaves what it has for the next. Throws Error where the output is no file.
  bool resume = false;

  // How often what was written is made durable, in the background, so that it can be gone on from
  // after a loss of power; after anything else the system remembers all that was written.
  std::chrono::milliseconds checkpoint_interval{5000};

  // Whether Stats::checksum is computed.
  bool checksum = false;

  // Whether the merge proves its output: that its records are in order, and that they are, as a
  // multiset, the records that were read. What is covered is all that happens to records between
  // the return of the read and that of the write; of a merge that went on where another had
  // stopped, only what it merged itself. Runs in memory, or mapped, are looked at when they are
  // merged. A device looks at what it merged before that leaves it, which leaves out the way back.
  // Next to nothing where the file is what the merge waits for, more on few cores. With copy_only
  // the order plays no part.
  bool verify = true;

  // More than 0: the output is a folder, made if need be, of so many files of equally many records,
  // part-00000 and so on, which hold the merged records in that order and are written side by side.
  unsigned parts = 0;

  // Whether runs that begin as gzip, zstd, bzip2, xz or lz4 files do are decompressed; a run of
  // records that begins so by chance is an error then, never other records. Such runs, and pipes,
  // are read from their beginning to their end, so that they can be neither merged into parts nor
  // gone on with.
  bool decompress = true;

  // How the output is compressed; without it, as the end of its name says (see
  // Compression::by_name), and parts of it not at all. It is written as frames that each hold 1 MiB
  // of it, with checksums, on all threads; one after another they are what the codec's own program
  // writes and reads. Which bytes come out depends on nothing but the records, the codec and its
  // version. Can't be gone on with by `resume`. Parts get the codec's suffix to their names.
  std::optional<Compression> compression;

  // What becomes of the merged records. Several parts have equally many of the runs' records; the
  // records of a group go into one. Where records are shaped, or are lines, a limit is shared out
  // among the parts instead, which are filled one after another and can't be gone on with. A merge
  // that drops or combines records is gone on with where the key begins that the output ends with,
  // as far as key fields go out: the fewer of the first of them do, the more is merged again, all
  // where the first does not. What is written already is not written again.
  Query query;

  // Copies instead of merging: the runs are read and written by the same engine, one after another,
  // whatever their keys. The ruler for how much time a merge takes beyond what the bytes need.
  bool copy_only = false;

  // Where the times of chunks and units are written, in Chrome's trace-event format; empty:
  // nowhere.
  std::filesystem::path trace;

  // Told in a sentence what a user may want to change, such as that several passes are needed.
  std::function<void(const std::string&)> notice;

  // Called from one thread at a time, at most about ten times a second.
  std::function<void(const Progress&)> progress;

  // Stops the merge within about a second; merge() then throws Interrupted.
  std::stop_token stop;
};

}  // namespace corank
