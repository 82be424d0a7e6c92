// A temporary folder inside another one, removed with its content on destruction.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "io/file.hpp"

namespace corank {

class WorkFolder {
 public:
  explicit WorkFolder(const std::filesystem::path& parent) {
    std::string name = (parent / "corank-bench-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw_file_error(parent, "make a temporary folder");
    path_ = name;
  }
  ~WorkFolder() {
    std::error_code nobody_to_tell;
    std::filesystem::remove_all(path_, nobody_to_tell);
  }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace corank
