// Finds the fields of fixed-size records that columns name, and converts their values from text and
// to text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "corank/query.hpp"
#include "corank/record.hpp"
#include "util/option_items.hpp"

namespace corank {

// Return the fields that columns name, as indices into the schema's. Throw Error, which names
// `option`, if there is no such field, or find_fields() finds one twice.
std::uint32_t find_field(const Schema& schema, const TextKey& column, Setting option);
std::vector<std::uint32_t> find_fields(const Schema& schema, const std::vector<TextKey>& columns,
                                       Setting option);

// Returns the value as records store it: field.bytes bytes in the field's byte order. Throws Error,
// which names `option`, if the field cannot hold it.
std::vector<std::byte> encode_value(const Field& field, const ColumnValue& value, Setting option);

// Returns the value of the field in `record` as text.
std::string value_text(const Field& field, const std::byte* record);

// Returns the type of the field as Schema::parse() takes it.
std::string field_type_name(const Field& field);

}  // namespace corank
