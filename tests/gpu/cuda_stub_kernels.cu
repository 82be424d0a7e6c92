// Emulates the backend's kernels on the host, as far as their results are visible in a unit. The
// merge and the sort of keys do nothing; the gather sorts its records instead.
#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "format/key_order.hpp"
#include "gpu/cuda_stub.hpp"
#include "kernels/formats/text_kernels.cuh"
#include "kernels/ops/device_text_operators.cuh"
#include "kernels/ops/operator_kernels.cuh"
#include "verify/fingerprint.hpp"

namespace corank::test::cuda_stub {
namespace {

using Count = std::uint64_t;

// State that the kernels of one stream pass to later ones.
struct Unit {
  std::vector<const std::byte*> records;          // in the order of staging
  std::vector<std::span<const std::byte>> texts;  // variable-length records in the order of staging
  KeyLayout layout;
  // Results of the operators on fixed records.
  std::vector<std::uint32_t> kept;
  KeyLayout groups;
  bool flagged = false;  // flagged, but not yet selected
  // Results of the operators on variable-length records: emitted records, and their selected
  // columns.
  std::vector<std::span<const std::byte>> outgoing;
  TextLayout selected{};
  bool shaped = false;
  bool last_stays = false;
};
std::map<cudaStream_t, Unit> units;

class Arguments {
 public:
  explicit Arguments(void** at) : at_(at) {}
  template <class T>
  T get(int i) const {
    return *static_cast<const T*>(at_[i]);
  }

 private:
  void** at_;
};

Work stage_work(const Arguments& given) {
  return [segments = given.get<const StagedSegment*>(0), count = given.get<Count>(1),
          vectors = given.get<Count>(2), staging = given.get<uint4*>(3)] {
    check_on_device(staging, vectors * sizeof(uint4), "staging");
    for (Count s = 0; s < count; ++s) {
      const Count end = s + 1 < count ? segments[s + 1].first_vector : vectors;
      const std::size_t bytes = (end - segments[s].first_vector) * sizeof(uint4);
      check_pinned(segments[s].source, bytes, "a staged segment");
      std::memcpy(staging + segments[s].first_vector, segments[s].source, bytes);
    }
  };
}

Count end_of(const StagedSegment* segments, Count count, Count s, Count records) {
  return s + 1 < count ? segments[s + 1].first_record : records;
}

void see_disorder(Count* out_of_order, Count record) {
  *out_of_order = std::min(*out_of_order, record);
}

void add_records(Unit& unit, const StagedSegment* segments, Count count, Count records,
                 const LocatedLess<1>& less) {
  unit.layout = less.layout;
  for (Count s = 0; s < count; ++s)
    for (Count i = segments[s].first_record; i < end_of(segments, count, s, records); ++i) {
      unit.records.push_back(less.staging.at(segments[s].locator) +
                             (i - segments[s].first_record) * less.layout.record_bytes);
      check_on_device(unit.records.back(), less.layout.record_bytes, "a staged record");
    }
}

Work encode_work(const Arguments& given, Unit& unit) {
  return [&unit, segments = given.get<const StagedSegment*>(0), count = given.get<Count>(1),
          records = given.get<Count>(2), less = given.get<LocatedLess<1>>(3),
          out_of_order = given.get<Count*>(5)] {
    unit = {};
    add_records(unit, segments, count, records, less);
    for (Count s = 0; s < count; ++s)
      for (Count i = segments[s].first_record + 1; i < end_of(segments, count, s, records); ++i)
        if (record_less(less.layout, unit.records[i], unit.records[i - 1]))
          see_disorder(out_of_order, i);
  };
}

Work encode_unsorted_work(const Arguments& given, Unit& unit) {
  return [&unit, segments = given.get<const StagedSegment*>(0), count = given.get<Count>(1),
          records = given.get<Count>(2), less = given.get<LocatedLess<1>>(3),
          found = given.get<Found*>(5)] {
    if (segments[0].first_vector == 0) unit = {};  // the first piece
    add_records(unit, segments, count, records, less);
    std::ranges::fill(found->differing, ~Count{0});
  };
}

using Places = device::Output<Key<1>, std::uint32_t>;

Work gather_work(const Arguments& given, Unit& unit) {
  return [&unit, from = given.get<StagingArea>(0), places = given.get<Places>(1),
          records = given.get<Count>(2), out = given.get<std::byte*>(4),
          out_of_order = given.get<const Count*>(5)] {
    if (*out_of_order != in_order) return;
    const std::uint32_t bytes = unit.layout.record_bytes;
    check_on_device(out, records * bytes, "what is gathered");
    if (!places.keys) {  // after operators
      for (Count i = 0; i < records; ++i)
        std::memcpy(out + i * bytes, from.at(places.values[i]), bytes);
      return;
    }
    std::ranges::stable_sort(unit.records, [&](const std::byte* a, const std::byte* b) {
      return record_less(unit.layout, a, b);
    });
    for (Count i = 0; i < records; ++i) std::memcpy(out + i * bytes, unit.records[i], bytes);
  };
}

Work verify_staged_work(const Arguments& given) {
  return [segments = given.get<const StagedSegment*>(0), count = given.get<Count>(1),
          records = given.get<Count>(2), bytes = given.get<std::uint32_t>(3),
          staging = given.get<StagingArea>(5), found = given.get<Found*>(6)] {
    for (Count s = 0; s < count; ++s)
      found->read += portable_fingerprint(
          {staging.at(segments[s].locator),
           (end_of(segments, count, s, records) - segments[s].first_record) * bytes},
          bytes);
  };
}

Work verify_merged_work(const Arguments& given) {
  return [merged = given.get<const std::byte*>(0), records = given.get<Count>(1),
          layout = given.get<KeyLayout>(2), found = given.get<Found*>(4)] {
    if (found->out_of_order != in_order) return;
    found->written +=
        portable_fingerprint({merged, records * layout.record_bytes}, layout.record_bytes);
    const Count descent = first_descent(layout, merged, records);
    if (descent != records) see_disorder(&found->descent, descent);
  };
}

StagedText staged(const TextLess& less, std::span<const std::byte> text) {
  return {static_cast<Count>(text.data() - less.staging), text.size()};
}

Work place_work(const Arguments& given, Unit& unit) {
  return [&unit, segments = given.get<const StagedSegment*>(0), count = given.get<Count>(1),
          records = given.get<Count>(2), less = given.get<TextLess>(3),
          out_of_order = given.get<Count*>(5)] {
    unit = {};
    const auto sorts_before = [&](auto a, auto b) {
      return text_less(less.layout, a.data(), a.size(), b.data(), b.size());
    };
    for (Count s = 0; s < count; ++s) {
      const auto* entries =
          reinterpret_cast<const PrefixRef*>(less.staging + segments[count + s].locator);
      const std::byte* const text =
          less.staging + std::uint64_t{segments[s].first_vector} * sizeof(uint4);
      for (Count i = segments[s].first_record; i < end_of(segments, count, s, records); ++i) {
        const PrefixRef& entry = entries[i - segments[s].first_record];
        const std::byte* const record =
            text + (record_of(entry) - reinterpret_cast<const std::byte*>(segments[s].source));
        const Count bytes = entry.place >> 48;
        unit.texts.emplace_back(
            record, bytes < saturated_bytes ? bytes : record_bytes(less.layout, record));
        check_on_device(record, unit.texts.back().size(), "a staged record");
        if (i != segments[s].first_record && sorts_before(unit.texts[i], unit.texts[i - 1]))
          see_disorder(out_of_order, i);
      }
    }
  };
}

Work gather_text_work(const Arguments& given, Unit& unit) {
  return
      [&unit, less = given.get<TextLess>(0), ends = const_cast<Count*>(given.get<const Count*>(2)),
       bytes = given.get<Count>(4), out = given.get<std::byte*>(5)] {
        if (*less.out_of_order != in_order) return;
        check_on_device(out, bytes, "what is gathered");
        if (unit.shaped) {
          std::byte* to = out;
          for (const auto text : unit.outgoing) to = std::ranges::copy(text, to).out;
          return;
        }
        std::ranges::stable_sort(unit.texts, [&](auto a, auto b) {
          return text_less(less.layout, a.data(), a.size(), b.data(), b.size());
        });
        Count end = 0;
        for (std::size_t i = 0; i < unit.texts.size(); ++i) {
          std::ranges::copy(unit.texts[i], out + end);
          end += unit.texts[i].size();
          ends[i] = end;
        }
      };
}

Work verify_text_work(const Arguments& given) {
  return [merged = given.get<const std::byte*>(0), ends = given.get<const Count*>(1),
          records = given.get<Count>(2), layout = given.get<TextLayout>(3),
          found = given.get<Found*>(5)] {
    if (found->out_of_order != in_order) return;
    std::span<const std::byte> before;
    for (Count i = 0; i < records; ++i) {
      const Count begin = i == 0 ? 0 : ends[i - 1];
      const std::span record(merged + begin, ends[i] - begin);
      found->written += fingerprint_of(record.data(), record.size());
      found->last_offset = begin;
      if (i != 0 && text_less(layout, record.data(), record.size(), before.data(), before.size()))
        see_disorder(&found->descent, i);
      before = record;
    }
  };
}

Work flag_text_kept_work(const Arguments& given, Unit& unit) {
  return [&unit, less = given.get<TextLess>(0), where = given.get<Test<TextLayout>>(3),
          buried = given.get<Test<TextLayout>>(4), found = given.get<TextOperatorCounts*>(6)] {
    if (*less.out_of_order != in_order) return;
    unit.flagged = unit.shaped = true;
    for (const auto text : unit.texts)
      if (passes(where, text.data(), text.size()) &&
          !(buried.count != 0 && passes(buried, text.data(), text.size())))
        unit.outgoing.push_back(text);
    found->first = staged(less, unit.texts.front());
    found->last = staged(less, unit.texts.back());
  };
}

Work flag_text_groups_work(const Arguments& given, Unit& unit) {
  return [&unit, last_stays = given.get<bool>(3)] { unit.last_stays = last_stays; };
}

Work settle_text_groups_work(const Arguments& given, Unit& unit) {
  return [&unit, less = given.get<TextLess>(0), buried = given.get<Test<TextLayout>>(3),
          found = given.get<TextOperatorCounts*>(5)] {
    std::vector<std::span<const std::byte>> settled;
    std::span<const std::byte> before;
    for (const auto text : unit.outgoing) {
      if (!before.data() ||
          text_less(less.layout, before.data(), before.size(), text.data(), text.size()))
        settled.push_back(text);
      else if (unit.last_stays)
        settled.back() = text;
      before = text;
    }
    found->groups = settled.size();
    unit.outgoing.clear();
    for (std::size_t g = 0; g < settled.size(); ++g) {
      if (g == 0)
        found->head = staged(less, settled[g]);
      else if (g + 1 == settled.size())
        found->tail = staged(less, settled[g]);
      else if (buried.count == 0 || !passes(buried, settled[g].data(), settled[g].size()))
        unit.outgoing.push_back(settled[g]);
    }
    found->outgoing = unit.outgoing.size();
  };
}

// Emulates CUB's scan of record lengths, which carries the selected columns.
Work scan_work(const Arguments& given, Unit& unit) {
  using Lengths = decltype(thrust::make_transform_iterator(
      thrust::counting_iterator<std::uint64_t>(0), EntryBytes{}));
  return [&unit, of = given.get<Lengths>(0).functor()] { unit.selected = of.selected; };
}

struct CountBytes {
  Count& sum;
  CORANK_HOST_DEVICE void operator()(const std::byte*, Count bytes) const { sum += bytes; }
};
struct PutBytes {
  std::byte*& to;
  CORANK_HOST_DEVICE void operator()(const std::byte* at, Count bytes) const {
    for (Count b = 0; b < bytes; ++b) *to++ = at[b];
  }
};

Work see_outgoing_bytes_work(const Arguments& given, Unit& unit) {
  return [&unit, ends = const_cast<Count*>(given.get<const Count*>(0)),
          found = given.get<TextOperatorCounts*>(2)] {
    Count end = 0;
    for (std::size_t i = 0; i < unit.outgoing.size(); ++i) {
      const auto text = unit.outgoing[i];
      if (unit.selected.columns_count == 0)
        end += text.size();
      else
        put_columns(unit.selected, text.data(), text.size(), CountBytes{end});
      ends[i] = end;
    }
    found->outgoing_bytes = end;
  };
}

Work put_text_columns_work(const Arguments& given, Unit& unit) {
  return [&unit, selected = given.get<TextLayout>(4), out = given.get<std::byte*>(5)] {
    std::byte* to = out;
    for (const auto text : unit.outgoing)
      put_columns(selected, text.data(), text.size(), PutBytes{to});
  };
}

Work fingerprint_text_work(const Arguments& given) {
  return [outgoing = given.get<const std::byte*>(0), ends = given.get<const Count*>(1),
          records = given.get<Count>(2), found = given.get<TextOperatorCounts*>(4)] {
    for (Count i = 0; i < records; ++i) {
      const Count begin = i == 0 ? 0 : ends[i - 1];
      found->outgoing_fingerprint += fingerprint_of(outgoing + begin, ends[i] - begin);
    }
  };
}

Work flag_kept_work(const Arguments& given, Unit& unit) {
  return [&unit, merged = given.get<const std::byte*>(0), bytes = given.get<std::uint32_t>(1),
          records = given.get<Count>(2), where = given.get<Test<KeyLayout>>(3),
          buried = given.get<Test<KeyLayout>>(4)] {
    unit.kept.clear();
    unit.flagged = true;
    for (std::uint32_t i = 0; i < records; ++i) {
      const std::byte* const record = merged + i * bytes;
      if (passes(where, record, bytes) && !(buried.count != 0 && passes(buried, record, bytes)))
        unit.kept.push_back(i * bytes);
    }
  };
}

// Emulates CUB's select, which only matters after flag_kept: flag_groups and settle_groups place
// other selections themselves.
Work select_work(const Arguments& given, Unit& unit, bool boasts) {
  return [&unit, boasts, to = given.get<std::uint32_t*>(2), count = given.get<Count*>(3)] {
    if (!unit.flagged) return;
    unit.flagged = false;
    if (!unit.shaped) std::ranges::copy(unit.kept, to);
    *count = (unit.shaped ? unit.outgoing.size() : unit.kept.size()) + (boasts ? 1'000'000 : 0);
  };
}

Work flag_groups_work(const Arguments& given, Unit& unit) {
  return [&unit, layout = given.get<KeyLayout>(1)] { unit.groups = layout; };
}

struct RecordOfGroup {
  const std::byte* merged;
  const std::uint32_t* kept;
  CORANK_HOST_DEVICE const std::byte* operator()(Count i) const { return merged + kept[i]; }
};

Work settle_groups_work(const Arguments& given, Unit& unit) {
  return [&unit, merged = given.get<const std::byte*>(0), bytes = given.get<std::uint32_t>(1),
          starts = const_cast<std::uint32_t*>(given.get<const std::uint32_t*>(4)),
          on_equal = given.get<OnEqual>(5), reductions = given.get<Reductions>(6),
          buried = given.get<Test<KeyLayout>>(7), reduced = given.get<std::byte*>(8),
          found = given.get<OperatorCounts*>(11)] {
    const std::vector<std::uint32_t>& kept = unit.kept;
    std::vector<Count> begins;
    for (Count j = 0; j < kept.size(); ++j)
      if (j == 0 || record_less(unit.groups, merged + kept[j - 1], merged + kept[j]))
        begins.push_back(j);
    found->groups = begins.size();
    begins.push_back(kept.size());
    for (Count g = 0; g < found->groups; ++g) {
      const Count begin = begins[g], end = begins[g + 1];
      if (g == 0)
        found->head = end - begin;
      else if (g + 1 == found->groups)
        found->tail = end - begin;
      if (g == 0 || g + 1 == found->groups) continue;
      const std::byte* settled = merged + kept[on_equal == OnEqual::last ? end - 1 : begin];
      auto place = static_cast<std::uint32_t>(settled - merged);
      if (on_equal == OnEqual::reduce) {
        place = static_cast<std::uint32_t>(g * bytes);
        std::memcpy(reduced + place, settled, bytes);
        settled = reduced + place;
        if (!reduce_group(reductions, end - begin, RecordOfGroup{merged, &kept[begin]},
                          reduced + place))
          found->is_for_host = 1;
      }
      if (buried.count == 0 || !passes(buried, settled, bytes)) starts[found->outgoing++] = place;
    }
  };
}

Work gather_fields_work(const Arguments& given) {
  return [from = given.get<const std::byte*>(0), places = given.get<const std::uint32_t*>(1),
          records = given.get<Count>(2), byte_of = given.get<const std::uint32_t*>(3),
          bytes = given.get<std::uint32_t>(4), out = given.get<std::byte*>(5)] {
    check_on_device(out, records * bytes, "what is gathered");
    for (Count i = 0; i < records; ++i)
      for (std::uint32_t b = 0; b < bytes; ++b) out[i * bytes + b] = from[places[i] + byte_of[b]];
  };
}

Work fingerprint_outgoing_work(const Arguments& given) {
  return [outgoing = given.get<const std::byte*>(0), records = given.get<Count>(1),
          bytes = given.get<std::uint32_t>(2), found = given.get<OperatorCounts*>(4)] {
    found->outgoing_fingerprint += portable_fingerprint({outgoing, records * bytes}, bytes);
  };
}

}  // namespace

Work emulation(Kernels how, const std::string& kernel, void** arguments, cudaStream_t stream) {
  const Arguments given(arguments);
  const auto is = [&](std::string_view name) { return kernel.find(name) != std::string::npos; };
  Unit& unit = units[stream];
  if (is("verify_staged")) return verify_staged_work(given);
  if (is("verify_merged")) return verify_merged_work(given);
  if (is("verify_text")) return verify_text_work(given);
  if (is("fingerprint_outgoing")) return fingerprint_outgoing_work(given);
  if (is("encode_records")) return encode_work(given, unit);
  if (is("encode_unsorted")) return encode_unsorted_work(given, unit);
  if (is("place_entries")) return place_work(given, unit);
  if (is("gather_text")) return gather_text_work(given, unit);
  if (is("gather_fields")) return gather_fields_work(given);
  if (is("6gather")) return gather_work(given, unit);
  if (is("flag_text_kept")) return flag_text_kept_work(given, unit);
  if (is("flag_text_groups")) return flag_text_groups_work(given, unit);
  if (is("settle_text_groups")) return settle_text_groups_work(given, unit);
  if (is("see_outgoing_bytes")) return see_outgoing_bytes_work(given, unit);
  if (is("put_text_columns")) return put_text_columns_work(given, unit);
  if (is("fingerprint_text")) return fingerprint_text_work(given);
  if (is("DeviceScanKernel") && is("EntryBytes")) return scan_work(given, unit);
  if (is("flag_kept")) return flag_kept_work(given, unit);
  if (is("flag_groups")) return flag_groups_work(given, unit);
  if (is("settle_groups")) return settle_groups_work(given, unit);
  if (is("DeviceSelectSweepKernel")) return select_work(given, unit, how == Kernels::boastful);
  if (is("5stage")) return stage_work(given);
  return nullptr;
}

const int architecture = std::max({__CUDA_ARCH_LIST__}) / 10;

}  // namespace corank::test::cuda_stub
