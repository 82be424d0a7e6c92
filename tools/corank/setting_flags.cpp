#include "setting_flags.hpp"

namespace corank {

std::string_view flag_of(Setting setting) {
  switch (setting) {
    case Setting::record:
      return "--record";
    case Setting::keys:
      return "--by";
    case Setting::lines:
      return "--lines";
    case Setting::delimiter:
      return "--delimiter";
    case Setting::escape:
      return "--escape";
    case Setting::header:
      return "--header";
    case Setting::header_lines:
      return "--header-lines";
    case Setting::comment:
      return "--comment";
    case Setting::skip_bytes:
      return "--skip-bytes";
    case Setting::drop_header:
      return "--drop-header";
    case Setting::bad_numbers:
      return "--bad";
    case Setting::ragged:
      return "--ragged";
    case Setting::no_decompression:
      return "--compressed none";
    case Setting::on_equal:
      return "--on-equal";
    case Setting::overflow:
      return "--overflow";
    case Setting::tombstone:
      return "--tombstone";
    case Setting::where:
      return "--where";
    case Setting::having:
      return "--having";
    case Setting::select:
      return "--select";
    case Setting::from:
      return "--from";
    case Setting::to:
      return "--to";
    case Setting::limit:
      return "--limit";
    case Setting::copy_only:
      return "--copy-only";
    case Setting::overwrite:
      return "--force";
    case Setting::resume:
      return "--resume";
    case Setting::parts:
      return "--parts";
    case Setting::temporary_folders:
      return "--temp";
    case Setting::temporary_compression:
      return "--compress-spill";
    case Setting::memory:
      return "--memory";
    case Setting::io:
      return "--io";
    case Setting::backend:
      return "--backend";
  }
  return {};
}

}  // namespace corank
