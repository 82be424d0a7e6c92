// Inputs that are read in order.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "catch.hpp"
#include "source.hpp"
#include "support.hpp"

using namespace corank;
using namespace corank::test;

namespace {

Bytes random_bytes(std::size_t count, Random& random) {
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// All that is in it, by reads of several sizes.
Bytes drain(Source& source) {
  Bytes all;
  for (const std::size_t step : {1, 3, 4096, 100'000})
    for (Bytes part(step);;) {
      const std::size_t got = source.read(part);
      all.insert(all.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(got));
      if (got < step) return all;
      if (step < 4096) break;
    }
  return all;
}

// Of the Error that it throws.
template <class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a source gives the bytes of a file whether it stays open or not") {
  const TemporaryFolder folder;
  Random random(1);
  for (const std::size_t size : {0, 1, 5000, 300'000}) {
    const Bytes bytes = random_bytes(size, random);
    write_file(folder / "file", bytes);
    for (const bool keep_open : {true, false}) {
      const auto source = open_source(folder / "file", {.keep_open = keep_open});
      CHECK(drain(*source) == bytes);
      CHECK(source->input_bytes() == size);
    }
  }
}

TEST_CASE("a source waits for the writer of a named pipe") {
  const TemporaryFolder folder;
  Random random(2);
  const Bytes bytes = random_bytes(300'000, random);
  const auto path = folder / "pipe";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  CHECK(look_at_input(path).is_stream);
  const auto source = open_source(path, {});
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
  const auto source = open_source(path, {.stop = stop.get_token()});
  const std::jthread asks([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    stop.request_stop();
  });
  Bytes byte(1);
  CHECK_THROWS_AS(source->read(byte), Interrupted);
}

TEST_CASE("a file that shrinks while it is read in order is told") {
  const TemporaryFolder folder;
  const auto path = folder / "file";
  write_file(path, Bytes(10'000));
  const auto source = open_source(path, {});
  Bytes part(4096);
  CHECK(source->read(part) == 4096);
  REQUIRE(::truncate(path.c_str(), 5000) == 0);
  CHECK(holds(message_of([&] { source->read(part); }),
              "it had 10000 bytes and now ends at byte 5000"));
}

TEST_CASE("folders and devices are no inputs") {
  const TemporaryFolder folder;
  CHECK(holds(message_of([&] { open_source(folder.path(), {}); }), "is a folder"));
  CHECK(holds(message_of([&] { look_at_input("/dev/null"); }), "neither a file nor a pipe"));
  CHECK_THROWS_AS(look_at_input(folder / "none"), FileError);
}
