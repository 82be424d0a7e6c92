// Tests of input sources.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>

#include "codec/codec.hpp"
#include "codec/decompressor.hpp"
#include "support/catch.hpp"
#include "support/sources.hpp"

using namespace corank;
using namespace corank::test;

namespace {

Bytes compressible_bytes(std::size_t count, Random& random) {
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(below(random, 7));
  return bytes;
}

Bytes operator+(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Writes a file with the suffix of its codec.
std::filesystem::path write_compressed(const TemporaryFolder& folder, Codec codec,
                                       const Bytes& bytes) {
  const auto path = folder / ("file" + std::string(suffix_of(codec)));
  write_file(path, bytes);
  return path;
}

const std::string nothing = "nothing was thrown";

// Returns the message of the Error that the call throws.
template <class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return nothing;
}

}  // namespace

TEST_CASE("a source gives the bytes of a file whether it stays open or not") {
  const TemporaryFolder folder;
  Random random(1);
  for (const std::size_t size : {0, 1, 5000, 300'000}) {
    const Bytes bytes = random_bytes(size, random);
    write_file(folder / "file", bytes);
    for (const bool keep_open : {true, false}) {
      const auto source = open(folder / "file", {.keep_open = keep_open});
      CHECK(drain(*source) == bytes);
    }
  }
}

TEST_CASE("a source waits for the writer of a named pipe") {
  const TemporaryFolder folder;
  Random random(2);
  const Bytes bytes = random_bytes(300'000, random);
  const auto path = folder / "pipe";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  CHECK(look_at(path, true).is_pipe);
  const auto source = open(path);
  const std::jthread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
    const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    for (std::size_t done = 0; done < bytes.size();)
      done += static_cast<std::size_t>(
          ::write(file, bytes.data() + done, std::min<std::size_t>(bytes.size() - done, 70'001)));
    ::close(file);
  });
  CHECK(drain(*source) == bytes);
}

TEST_CASE("waiting for a pipe ends where that is asked for") {
  const TemporaryFolder folder;
  const auto path = folder / "pipe";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  std::stop_source stop;
  const auto source = open(path, {.stop = stop.get_token()});
  const std::jthread asks([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    stop.request_stop();
  });
  Bytes byte(1);
  CHECK_THROWS_AS(read_all(*source, byte), Interrupted);
}

TEST_CASE("a file that shrinks while it is read in order is told") {
  const TemporaryFolder folder;
  const auto path = folder / "file";
  write_file(path, Bytes(1'000'000));
  const auto source = open(path);
  Bytes part(4096);
  CHECK(read_all(*source, part) == 4096);
  REQUIRE(::truncate(path.c_str(), 300'000) == 0);
  CHECK(holds(message_of([&] { drain(*source); }),
              "it had 1000000 bytes and now ends at byte 300000"));
}

TEST_CASE("folders and devices are no inputs") {
  const TemporaryFolder folder;
  CHECK(holds(message_of([&] { open(folder.path()); }), "is a folder"));
  CHECK(holds(message_of([&] { look_at("/dev/zero", true); }), "neither a file nor a pipe"));
  CHECK_THROWS_AS(look_at(folder / "none", true), FileError);
}

TEST_CASE("a source decompresses the frames of every codec one after another") {
  const TemporaryFolder folder;
  Random random(3);
  for (const Codec codec : codecs)
    for (const int level : {0, 1, 9}) {
      Bytes whole;
      Bytes file;
      for (const std::size_t size : {0, 1, 5000, 0, 100'000, 300'001}) {
        const Bytes part =
            size % 2 == 1 ? random_bytes(size, random) : compressible_bytes(size, random);
        whole = whole + part;
        file = file + frame_of({codec, level}, part);
      }
      INFO(name_of(codec) << ":" << level);
      const auto path = write_compressed(folder, codec, file);
      CHECK(look_at(path, true).codec == codec);
      for (const bool keep_open : {true, false}) {
        const auto source = open(path, {.keep_open = keep_open});
        CHECK((drain(*source) == whole));
      }
      CHECK((drain(*open(path, {.decompress = false})) == file));
    }
}

TEST_CASE("decompressed bytes come whole whatever the steps they are read in") {
  const TemporaryFolder folder;
  Random random(9);
  const Bytes part = random_bytes(1 << 20, random) + compressible_bytes(1 << 20, random);
  for (const Codec codec : codecs) {
    const auto path = write_compressed(folder, codec, frame_of({codec, 1}, part));
    for (const std::size_t step : {4096, 100'003, 131'072, 1 << 20}) {
      INFO(name_of(codec) << ", steps of " << step);
      const auto source = open(path);
      Bytes whole;
      for (Bytes got(step); !got.empty();) {
        got.resize(read_all(*source, got));
        whole = std::move(whole) + got;
        if (got.size() < step) break;
      }
      CHECK((whole == part));
    }
  }
}

TEST_CASE("the programs of the codecs read what is written here and the other way about") {
  const TemporaryFolder folder;
  Random random(4);
  const Bytes whole = compressible_bytes(300'000, random);
  write_file(folder / "plain", whole);
  for (const Codec codec : codecs) {
    const std::string program(name_of(codec));
    if (std::system(("command -v " + program + " > /dev/null").c_str()) != 0) {
      WARN(program << " is not installed");
      continue;
    }
    INFO(program);
    const auto shell = [&](const std::string& command) {
      return std::system(("cd '" + folder.path().string() + "' && " + command).c_str());
    };
    const auto path = folder / ("made" + std::string(suffix_of(codec)));
    for (const std::string level : {"", " -9"}) {
      // Two frames in a file whose name does not reveal the codec.
      REQUIRE(shell(program + level + " -c < plain > one && cat one one > two") == 0);
      CHECK((drain(*open(folder / "two")) == whole + whole));
    }
    write_file(path,
               frame_of({codec}, whole) + frame_of({codec}, Bytes()) + frame_of({codec}, whole));
    REQUIRE(shell(program + " -dc < " + path.filename().string() + " > back") == 0);
    CHECK((read_file(folder / "back") == whole + whole));
  }
}

TEST_CASE("compressed data that was cut short anywhere is told") {
  const TemporaryFolder folder;
  Random random(5);
  const Bytes plain = compressible_bytes(60, random);
  for (const Codec codec : codecs) {
    const Bytes frame = frame_of({codec}, plain);
    const Bytes file = frame + frame;
    for (std::size_t size = 0; size < file.size(); ++size) {
      if (size == frame.size()) continue;  // the first frame alone is complete
      INFO(name_of(codec) << ": " << size << " of " << file.size() << " bytes");
      const auto path =
          write_compressed(folder, codec, Bytes(file.begin(), file.begin() + std::ptrdiff_t(size)));
      const std::string message = message_of([&] { drain(*open(path)); });
      CHECK(holds(message, path.string() + ": "));
      CHECK(holds(message, size < recognised_bytes
                               ? "get it anew"
                               : "data ends too early, at byte " + std::to_string(size)));
    }
  }
}

TEST_CASE("a flipped bit in compressed data never gives other bytes") {
  const TemporaryFolder folder;
  Random random(6);
  const Bytes plain = compressible_bytes(60, random);
  for (const Codec codec : codecs) {
    const Bytes frame = frame_of({codec}, plain);
    const Bytes file = frame + frame;
    std::size_t told = 0;
    for (std::size_t bit = 0; bit < 8 * frame.size(); ++bit) {
      Bytes flipped = file;
      flipped[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
      const auto path = write_compressed(folder, codec, flipped);
      INFO(name_of(codec) << ", bit " << bit);
      Bytes got;
      const std::string message = message_of([&] { got = drain(*open(path)); });
      told += message != nothing;
      CHECK(((message == nothing) ? got == plain + plain : holds(message, path.string() + ": ")));
    }
    // The other bits do not affect the data, such as the time in gzip's header.
    CHECK(told > 8 * frame.size() / 2);
  }
}

TEST_CASE("what follows the last frame is padding or an error") {
  const TemporaryFolder folder;
  Random random(7);
  const Bytes plain = compressible_bytes(3000, random);
  for (const Codec codec : codecs) {
    INFO(name_of(codec));
    const Bytes frame = frame_of({codec}, plain);
    const auto read = [&](const Bytes& file) {
      return drain(*open(write_compressed(folder, codec, file)));
    };
    const Bytes padding(300'000);
    if (codec == Codec::gzip || codec == Codec::xz)
      CHECK((read(frame + padding + frame + padding) == plain + plain));
    else
      CHECK(holds(message_of([&] { read(frame + padding); }), "is damaged"));
    CHECK(holds(message_of([&] { read(frame + random_bytes(100, random)); }),
                "at byte " + std::to_string(frame.size()) + ", after 3000 decompressed bytes"));
  }
}

TEST_CASE("legacy and skippable frames are decompressed") {
  const TemporaryFolder folder;
  Random random(8);
  const auto word = [](std::uint32_t value) {
    Bytes bytes;
    for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<std::byte>(value >> 8 * i));
    return bytes;
  };
  const auto read = [&](Codec codec, const Bytes& file) {
    return drain(*open(write_compressed(folder, codec, file)));
  };
  // LZ4 permits a block of literals only.
  const auto block = [&](const Bytes& plain) {
    Bytes data{std::byte{0xf0}};
    std::size_t more = plain.size() - 15;
    for (; more >= 255; more -= 255) data.push_back(std::byte{255});
    data.push_back(static_cast<std::byte>(more));
    data = data + plain;
    return word(static_cast<std::uint32_t>(data.size())) + data;
  };
  const Bytes plain = compressible_bytes(3000, random), other = random_bytes(200'000, random);
  const Bytes magic = word(0x184C2102);
  const Bytes skippable = word(0x184D2A53) + word(5) + Bytes(5);
  const Bytes frame = frame_of({Codec::lz4}, plain);
  CHECK((read(Codec::lz4, magic + block(plain) + block(other)) == plain + other));
  CHECK((read(Codec::lz4, magic + block(plain) + magic + block(other)) == plain + other));
  CHECK((read(Codec::lz4, magic + block(other) + frame + skippable + magic + block(other)) ==
         other + plain + other));
  CHECK((read(Codec::lz4, skippable + frame) == plain));
  CHECK((read(Codec::zstd, skippable + frame_of({Codec::zstd}, plain) + skippable) == plain));
  // A skippable frame that is longer than recognised_bytes.
  const Bytes long_skippable = word(0x184D2A50) + word(100'000) + Bytes(100'000);
  CHECK((read(Codec::lz4, long_skippable + frame) == plain));
  CHECK((read(Codec::zstd, long_skippable + frame_of({Codec::zstd}, plain)) == plain));
  const Bytes whole = magic + block(plain);
  for (const std::size_t bytes : {std::size_t{6}, std::size_t{8}, whole.size() - 1})
    CHECK(holds(message_of([&] {
                  read(Codec::lz4,
                       Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes)));
                }),
                "ends too early"));
  CHECK(holds(message_of([&] { read(Codec::lz4, magic + word(100'000'000) + Bytes(9)); }),
              "is damaged"));
}

TEST_CASE("bytes after the end of compressed data are told as such") {
  const TemporaryFolder folder;
  const Bytes plain = bytes_of_text("1\n2\n");
  for (const Codec codec : codecs)
    for (const std::string_view rest : {"\n", "end", "more than a header of any codec"}) {
      INFO(name_of(codec) << ", then " << rest);
      const Bytes frame = frame_of({codec}, plain);
      const auto path = write_compressed(folder, codec, frame + bytes_of_text(rest));
      const std::string message = message_of([&] { drain(*open(path)); });
      CHECK(!holds(message, "ends too early"));
      CHECK(holds(message, "at byte " + std::to_string(frame.size()) + ", after 4 decompressed"));
    }
}

TEST_CASE("a compressed file that needs too much memory is refused") {
  const TemporaryFolder folder;
  // A frame header that asks for a window of 2 GiB.
  Bytes file;
  for (const int byte : {0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0x01, 0x00, 0x00})
    file.push_back(static_cast<std::byte>(byte));
  const auto path = write_compressed(folder, Codec::zstd, file);
  CHECK(holds(message_of([&] { drain(*open(path)); }), "use a larger Options::memory_bytes"));
  // An empty frame that asks for a window of 512 MiB.
  file[5] = std::byte{0x98};
  write_file(path, file);
  for (const std::uint64_t budget_bytes : {std::uint64_t{256} << 20, std::uint64_t{1} << 30}) {
    auto opened = std::make_shared<const FileDescriptor>(open_input(path));
    const InputStatus status =
        verify_input(path, *opened, true, {.max_decoder_bytes = budget_bytes});
    const auto source = open_source(path, opened, status, true, {});
    const std::string message = message_of([&] { drain(*source); });
    CHECK((message == nothing) == (budget_bytes == std::uint64_t{1} << 30));
  }
}

TEST_CASE("a file that is named like a compressed one must be one") {
  const TemporaryFolder folder;
  for (const Codec codec : codecs) {
    const auto path = write_compressed(folder, codec, Bytes(100));
    CHECK(holds(message_of([&] { look_at(path, true); }),
                "named like a " + std::string(name_of(codec)) + " file"));
    CHECK(look_at(path, false).codec == Codec::none);
    CHECK((drain(*open(path, {.decompress = false})) == Bytes(100)));
  }
}

TEST_CASE("compressed data comes through a pipe as well") {
  const TemporaryFolder folder;
  Random random(8);
  const Bytes plain = compressible_bytes(400'000, random);
  for (const Codec codec : {Codec::none, Codec::gzip, Codec::zstd}) {
    const Bytes file = codec == Codec::none ? plain : frame_of({codec}, plain);
    const auto path = folder / ("pipe" + std::string(suffix_of(codec)));
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    const auto source = open(path);
    const std::jthread writer([&] { write_file(path, file); });
    CHECK((drain(*source) == plain));
  }
}

TEST_CASE("codecs and levels by their names") {
  CHECK(Compression::parse("none").codec == Codec::none);
  CHECK(Compression::parse("gzip").codec == Codec::gzip);
  CHECK(Compression::parse("zstd:19").level == 19);
  CHECK(Compression::parse("zstd:-5").level == -5);
  for (const char* wrong : {"", "zip", "zstd:", "zstd:23", "gzip:0", "xz:9x", "lz4:13", "none:1"})
    CHECK_THROWS_AS(Compression::parse(wrong), Error);
  CHECK(Compression::by_name("a/b.tar.zst") == Codec::zstd);
  CHECK(Compression::by_name("a.gz/b") == Codec::none);
  CHECK(recognise(Bytes(recognised_bytes)) == Codec::none);
}
