// Tests of the background writer thread.
#include "io/write_behind.hpp"

#include <algorithm>
#include <atomic>
#include <latch>
#include <stdexcept>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/support.hpp"

using namespace corank;
using namespace corank::test;

namespace {

using Memory = std::shared_ptr<const Bytes>;

Memory some(std::size_t number) {
  return std::make_shared<Bytes>(100 + number % 7, static_cast<std::byte>(number));
}

}  // namespace

TEST_CASE("what is written behind is written in order, and its owners are let go of") {
  Bytes written, expected;
  std::vector<std::weak_ptr<const Bytes>> owners;
  WriteBehind behind([&](auto bytes) { written.insert(written.end(), bytes.begin(), bytes.end()); },
                     {});
  for (std::size_t number = 0; number < 1000; ++number) {
    const Memory memory = some(number);
    expected.insert(expected.end(), memory->begin(), memory->end());
    owners.push_back(memory);
    behind.add(*memory, memory);
  }
  behind.finish();
  CHECK(written == expected);
  CHECK(std::ranges::all_of(owners, [](const auto& owner) { return owner.expired(); }));
}

TEST_CASE("nobody waits for what is written behind until it is to be finished") {
  std::latch may_write(1);
  std::atomic<int> writes = 0;
  WriteBehind behind(
      [&](auto) {
        may_write.wait();
        ++writes;
      },
      {});
  for (std::size_t number = 0; number < 10; ++number) {
    const Memory memory = some(number);
    behind.add(*memory, memory);
  }
  CHECK(writes == 0);
  may_write.count_down();
  behind.finish();
  CHECK(writes == 10);
}

TEST_CASE("what was written behind is looked at after that, in order") {
  std::atomic<std::size_t> written = 0;
  std::vector<std::size_t> looked_at, written_then;
  WriteBehind behind([&](auto) { ++written; }, {});
  const Memory memory = some(1);
  for (std::size_t number = 0; number < 1000; ++number) {
    behind.add(*memory, memory);
    behind.then([&, number, memory] {
      looked_at.push_back(number);
      written_then.push_back(written);
    });
  }
  behind.finish();
  CHECK(memory.use_count() == 1);
  REQUIRE(looked_at.size() == 1000);
  for (std::size_t number = 0; number < 1000; ++number) {
    CHECK(looked_at[number] == number);
    CHECK(written_then[number] > number);
  }
}

TEST_CASE("after a look that fails nothing is written, and all is let go of") {
  std::latch has_failed(1);
  std::atomic<int> looks = 0;
  WriteBehind behind([](auto) {}, {});
  const Memory memory = some(1);
  behind.then([&] {
    ++looks;
    has_failed.wait();
    throw std::runtime_error("wrong");
  });
  for (int number = 0; number < 10; ++number) behind.then([&, memory] { ++looks; });
  has_failed.count_down();
  CHECK_THROWS_WITH(behind.finish(), "wrong");
  CHECK(looks == 1);
  CHECK(memory.use_count() == 1);
  CHECK_THROWS_WITH(behind.add(*memory, memory), "wrong");
}

TEST_CASE("after a write that fails nothing is written, and all is let go of") {
  int writes = 0;
  WriteBehind behind(
      [&](auto) {
        if (++writes == 3) throw std::runtime_error("full");
      },
      {});
  const Memory memory = some(1);
  const auto add = [&] { behind.add(*memory, memory); };
  for (int number = 0; number < 3; ++number) add();
  CHECK_THROWS_WITH(behind.finish(), "full");
  CHECK(memory.use_count() == 1);
  CHECK_THROWS_WITH(add(), "full");
  CHECK_THROWS_WITH(behind.finish(), "full");
  behind.abandon();
  CHECK(writes == 3);
}

TEST_CASE("what is abandoned is not written, and what is being written is waited for") {
  std::latch has_begun(1), may_end(1);
  std::atomic<int> begun = 0, ended = 0;
  const Memory memory = some(1);
  {
    WriteBehind behind(
        [&](auto) {
          ++begun;
          has_begun.count_down();
          may_end.wait();
          ++ended;
        },
        {});
    for (int number = 0; number < 4; ++number) behind.add(*memory, memory);
    // The first write ends only after the last buffer in the queue was let go of.
    const auto let_go = [&](const void*) { may_end.count_down(); };
    behind.add(*memory, WriteBehind::Owner(memory->data(), let_go));
    has_begun.wait();
    behind.abandon();
    CHECK(ended == 1);
    CHECK(memory.use_count() == 1);
  }
  CHECK(begun == 1);
}
