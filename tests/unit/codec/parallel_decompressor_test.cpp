// Tests of decompression on several threads: it gives the bytes and the errors of one decoder.
#include "codec/parallel_decompressor.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "corank/error.hpp"
#include "support/catch.hpp"
#include "support/sources.hpp"

using namespace corank;
using namespace corank::test;

namespace {

void append(Bytes& bytes, const Bytes& more) {
  bytes.insert(bytes.end(), more.begin(), more.end());
}

// A file of frames, and what they hold.
struct Frames {
  Frames(Codec codec, std::size_t count, std::size_t max_bytes, Random& random) {
    for (std::size_t i = 0; i < count; ++i)
      add(codec, random_bytes(below(random, max_bytes), random));
  }
  void add(Codec codec, const Bytes& bytes) {
    append(plain, bytes);
    append(file, frame_of({codec, 1}, bytes));
  }
  Bytes plain, file;
};

// The bytes of a file, or how it is damaged, without the place: decoders tell the end of their last
// successful step.
struct Outcome {
  Bytes bytes;
  std::string error;
  bool operator==(const Outcome&) const = default;
};

// Reads a file, decompressed on so many threads.
Outcome outcome_of(const std::filesystem::path& path, unsigned threads) {
  auto file = std::make_shared<const FileDescriptor>(open_input(path));
  const InputStatus status =
      verify_input(path, *file, true, {.max_threads = threads, .max_parallel_bytes = 1024 * MiB});
  REQUIRE(status.decoder_threads == threads);
  const auto source = open_source(path, file, status, true, {});
  Outcome outcome;
  try {
    for (Bytes step(50'000);;) {
      const auto got = source->read(step);
      if (!got) break;
      outcome.bytes.insert(outcome.bytes.end(), step.begin(),
                           step.begin() + static_cast<std::ptrdiff_t>(*got));
    }
  } catch (const Error& error) {
    outcome = {{}, error.what()};
    std::erase_if(outcome.error, [](char c) { return c >= '0' && c <= '9'; });
  }
  return outcome;
}

}  // namespace

TEST_CASE("frames of every size are decompressed on several threads") {
  const TemporaryFolder folder;
  Random random(51);
  for (const Codec codec : codecs) {
    INFO(name_of(codec));
    Frames frames(codec, 20, 150'000, random);
    frames.add(codec, Frames(codec, 9, 50'000, random).file);  // has magic numbers inside
    frames.add(codec, random_bytes(3 * MiB, random));          // is larger than a piece
    frames.add(codec, Bytes(9 * MiB));                         // is too large for a thread
    frames.add(codec, {});
    append(frames.file, Frames(codec, 20, 100'000, random).file);
    const auto path = folder / ("file" + std::string(suffix_of(codec)));
    write_file(path, frames.file);
    const Outcome outcome = outcome_of(path, 4);
    CHECK(outcome == outcome_of(path, 1));
    CHECK(outcome.error.empty());
    CHECK(std::ranges::equal(std::span(outcome.bytes).first(frames.plain.size()), frames.plain));
  }
}

TEST_CASE("damage is told as one decoder tells it") {
  const TemporaryFolder folder;
  Random random(52);
  for (const Codec codec : codecs) {
    const Frames frames(codec, 40, 30'000, random);
    const auto path = folder / ("file" + std::string(suffix_of(codec)));
    for (int i = 0; i < 40; ++i) {
      Bytes damaged = frames.file;
      const std::size_t at = 100'000 + below(random, damaged.size() - 100'000);
      const auto place = damaged.begin() + static_cast<std::ptrdiff_t>(at);
      if (i % 4 == 0)
        damaged.erase(place, damaged.end());
      else if (i % 4 == 1)
        damaged.erase(place, place + 1);
      else if (i % 4 == 2)
        damaged.insert(place, i, std::byte{});
      else
        *place ^= static_cast<std::byte>(1u << below(random, 8));
      write_file(path, damaged);
      INFO(name_of(codec) << ", damage " << i << " at byte " << at);
      CHECK(outcome_of(path, 3) == outcome_of(path, 1));
    }
  }
}

TEST_CASE("padding between frames is skipped on several threads") {
  const TemporaryFolder folder;
  Random random(53);
  for (const Codec codec : {Codec::gzip, Codec::xz}) {
    Frames frames(codec, 9, 100'000, random);
    for (const std::size_t zeros : {4, 200'000, 3'000'000}) {
      append(frames.file, Bytes(zeros));
      frames.add(codec, random_bytes(80'000, random));
    }
    const auto path = folder / ("file" + std::string(suffix_of(codec)));
    write_file(path, frames.file);
    CHECK(outcome_of(path, 3) == Outcome{frames.plain, ""});
  }
}

TEST_CASE("threads that decompress depend on the frames and the memory") {
  const TemporaryFolder folder;
  Random random(54);
  const auto path = folder / "file.zst";
  const auto threads_of = [&](const Bytes& bytes, const DecompressionLimits& limits) {
    write_file(path, bytes);
    return verify_input(path, open_input(path), true, limits).decoder_threads;
  };
  const Bytes many = Frames(Codec::zstd, 9, 100'000, random).file;
  CHECK(threads_of(many, {}) == 1);
  CHECK(threads_of(many, {.max_threads = 3, .max_parallel_bytes = 100 * MiB}) == 3);
  CHECK(threads_of(many, {.max_threads = 99, .max_parallel_bytes = 100 * MiB}) == 8);
  CHECK(threads_of(many, {.max_threads = 99, .max_parallel_bytes = 40 * MiB}) < 8);
  CHECK(threads_of(many, {.max_threads = 99, .max_parallel_bytes = 20 * MiB}) == 1);
  const Bytes one = frame_of({Codec::zstd}, random_bytes(3 * MiB, random));
  CHECK(threads_of(one, {.max_threads = 3, .max_parallel_bytes = 100 * MiB}) == 1);
}
