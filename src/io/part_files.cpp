#include "io/part_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <system_error>

#include "corank/error.hpp"
#include "util/messages.hpp"

namespace corank {

std::string part_name(unsigned part, std::string_view suffix) {
  return fmt::format("part-{:05}{}", part, suffix);
}

PartFiles::PartFiles(const std::filesystem::path& folder, unsigned count, std::string_view suffix)
    : folder_(folder) {
  assert(count != 0);
  if (std::filesystem::exists(folder) && !std::filesystem::is_directory(folder))
    throw_error(ErrorCode::options, "{}: is not a folder; {} needs one for its files", folder,
                Setting::parts);
  std::error_code error;
  made_ = std::filesystem::create_directory(folder, error);
  if (error)
    throw_error(ErrorCode::system, "{}: cannot be made: {}; check its name and the folder it is in",
                folder, error.message());
  for (unsigned part = 0; part < count; ++part) paths_.push_back(folder / part_name(part, suffix));
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().filename().string().starts_with("part-") &&
        std::ranges::find(paths_, entry.path()) == paths_.end())
      throw Error(entry.path().string() +
                  ": would stand among the new parts; remove it or write to another folder");
}

PartFiles::~PartFiles() {
  std::error_code not_empty;
  if (made_) std::filesystem::remove(folder_, not_empty);
}

}  // namespace corank
