// Tests of messages that refer to settings, and of the errors that carry them.
#include "util/setting_text.hpp"

#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.hpp"
#include "corank/error.hpp"
#include "corank/text_layout.hpp"
#include "io/file.hpp"
#include "support/catch.hpp"
#include "tools/corank/setting_flags.hpp"
#include "util/messages.hpp"

using namespace corank;

namespace {

std::string_view name_in_test(Setting setting) {
  return setting == Setting::memory ? "MEMORY" : "OTHER";
}

constexpr auto settings_count = static_cast<unsigned>(Setting::backend) + 1;

}  // namespace

TEST_CASE("a message names settings as its reader does") {
  const Error error(ErrorCode::memory,
                    fmt::format("too little; use a larger {}, or say {}", Setting::memory,
                                setting_is(Setting::bad_numbers, "skip")));
  CHECK(error.code() == ErrorCode::memory);
  CHECK(error.what() == std::string("too little; use a larger Options::memory_bytes, or say "
                                    "TextFormat::bad_numbers = skip"));
  CHECK(error.worded(flag_of) == "too little; use a larger --memory, or say --bad skip");
  CHECK(error.worded(name_in_test, "=") == "too little; use a larger MEMORY, or say OTHER=skip");
  CHECK(error.settings() == std::vector{Setting::memory, Setting::bad_numbers});
}

TEST_CASE("every setting has a name in the library and a flag of the program") {
  for (unsigned i = 0; i < settings_count; ++i) {
    const auto setting = static_cast<Setting>(i);
    const Message message(to_marker(setting));
    INFO(i << ": " << message.text());
    CHECK(message.settings() == std::vector{setting});
    CHECK(!message.text().empty());
    CHECK(message.text().find("--") == std::string::npos);
    CHECK(message.worded(flag_of).starts_with("--"));
  }
}

TEST_CASE("control bytes in the text of a message are not settings") {
  using namespace std::literals;
  const auto unchanged = [](const std::string& text) {
    const Message message(text);
    CHECK(message.text() == text);
    CHECK(message.settings().empty());
  };
  std::string controls;
  for (int byte = 1; byte < 256; ++byte) controls += static_cast<char>(byte);
  unchanged(controls + ": cannot open");
  unchanged("\0"s);                  // ends early
  unchanged("\0\x80"s);              // ends early
  unchanged("\0\x80x"s);             // ends with another byte
  unchanged("\0\xff\0"s);            // no setting
  unchanged("\0\0\0\0"s);            // no setting
  unchanged("\0"s + '\0' + "\x80");  // ends early
  // Text from records may hold a whole marker.
  unchanged(without_nul("value " + to_marker(Setting::memory)));
  CHECK(without_nul("a\0b"sv) == "a\\0b");
}

TEST_CASE("a setting is found after bytes that begin like one") {
  const Message message(std::string(2, '\0') + to_marker(Setting::memory));
  CHECK(message.worded(name_in_test) == std::string(2, '\0') + "MEMORY");
}

TEST_CASE("errors carry codes") {
  CHECK(Error("a file is damaged").code() == ErrorCode::input);
  CHECK(FileError(Message("cannot open")).code() == ErrorCode::system);
  CHECK(Corrupted("a record").code() == ErrorCode::corrupted);
  CHECK(Interrupted().code() == ErrorCode::interrupted);
  const OutOfOrder disorder("run", 3, 24);
  CHECK(disorder.code() == ErrorCode::out_of_order);
  CHECK(disorder.record() == 3);
  CHECK(disorder.worded(flag_of).ends_with("or correct --by"));
  const DeviceError fault("CUDA: out of memory", true);
  CHECK(fault.code() == ErrorCode::device);
  CHECK(fault.problem() == "CUDA: out of memory");
  CHECK(fault.worded(flag_of) == "CUDA: out of memory; --backend cpu needs no GPU");
}

TEST_CASE("a value with a marker in it is shown, not read as a setting") {
  try {
    parse_text_keys("1:" + to_marker(Setting::memory));
    FAIL("was parsed");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::options);
    CHECK(error.settings() == std::vector{Setting::keys});
    CHECK(error.worded(flag_of).starts_with("--by \"1:\\0"));
  }
  const std::string marker = to_marker(Setting::memory);
  TextFormat format;
  format.kind = TextKind::csv;
  format.header = true;
  for (const std::string& header : {"a" + marker + ",c\n", "\"b " + marker + "\"\n"}) {
    format.keys = {{.name = "b" + marker + "b"}};
    try {
      TextEncoding encoding(format, header);
      FAIL("was found");
    } catch (const Error& error) {
      CHECK(error.settings() == std::vector{Setting::keys});
    }
  }
}
