#include "mstar/resources/spec.h"

#include <cstdint>
#include <limits>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar {

namespace {

int64_t get_in_range(JsonReader& reader, const char* key, int64_t fallback, int64_t low) {
  const int64_t value = reader.get_int(key, fallback);
  if (value < low || value > std::numeric_limits<int32_t>::max()) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[",
                        reader.where(),
                        "] ",
                        key,
                        " is ",
                        value,
                        ", expected ",
                        low,
                        " to ",
                        std::numeric_limits<int32_t>::max()));
  }
  return value;
}

// Index of the value among `names`.
int64_t get_choice(JsonReader& reader,
                   const char* key,
                   const std::vector<std::string>& names,
                   int64_t fallback) {
  const std::string value = reader.get_string(key, names[static_cast<size_t>(fallback)]);
  for (size_t index = 0; index < names.size(); ++index) {
    if (names[index] == value) {
      return static_cast<int64_t>(index);
    }
  }
  throw Error(ErrorCode::kInvalidArgument,
              str_cat("[",
                      reader.where(),
                      "] ",
                      key,
                      " is '",
                      value,
                      "', expected one of ",
                      str_join(names, ", ")));
}

void apply(KVSpec& spec, JsonReader& reader) {
  spec.max_num_pages = get_in_range(reader, "max_num_pages", spec.max_num_pages, 2);
  spec.page_size = get_in_range(reader, "page_size", spec.page_size, 1);
  spec.max_seq_len = get_in_range(reader, "max_seq_len", spec.max_seq_len, 0);
  spec.cpu_offload_pages = get_in_range(reader, "cpu_offload_pages", spec.cpu_offload_pages, 0);
  const bool is_f32 = spec.dtype == DType::kF32;
  spec.dtype = get_choice(reader, "dtype", {"f32", "bf16"}, is_f32 ? 0 : 1) == 0 ? DType::kF32
                                                                                 : DType::kBF16;
  spec.prefix_cache = reader.get_bool("prefix_cache", spec.prefix_cache);
  spec.prefix_cache_salt = reader.get_string("prefix_cache_salt", spec.prefix_cache_salt);
  spec.admission.fit = static_cast<AdmissionFit>(get_choice(
      reader, "admission_fit", {"sum", "peak"}, static_cast<int64_t>(spec.admission.fit)));
  spec.admission.order = static_cast<AdmissionOrder>(get_choice(
      reader, "admission_order", {"fifo", "backfill"}, static_cast<int64_t>(spec.admission.order)));
  get_choice(reader, "backfill_protect", {"easy"}, 0);  // the only one there is
  spec.admission.backfill_window = static_cast<int32_t>(
      get_in_range(reader, "backfill_window", spec.admission.backfill_window, 1));
}

void apply(AttentionSpec& spec, JsonReader& reader) {
  if (spec.kind == AttentionKind::kPaged || spec.kind == AttentionKind::kDense) {
    spec.kind = static_cast<AttentionKind>(
        get_choice(reader, "backend", {"paged", "dense"}, static_cast<int64_t>(spec.kind)));
  }
}

void apply(PositionSpec& /*spec*/, JsonReader& /*reader*/) {}

void apply(SamplerSpec& spec, JsonReader& reader) {
  const bool misspelled =  // upstream's key
      reader.get_bool("enable_repetion_penalty", spec.enable_repetition_penalty);
  spec.enable_repetition_penalty = reader.get_bool("enable_repetition_penalty", misspelled);
  spec.enable_count_penalty = reader.get_bool("enable_count_penalty", spec.enable_count_penalty);
  spec.enable_logit_bias = reader.get_bool("enable_logit_bias", spec.enable_logit_bias);
}

}  // namespace

void follow_activations(DType activation_dtype, ResourceSpec& spec) {
  auto* kv = std::get_if<KVSpec>(&spec);
  if (kv != nullptr && kv->follows_activations && activation_dtype == DType::kBF16) {
    kv->dtype = DType::kBF16;
  }
}

void apply_overrides(ResourceSpec& spec, const Json& overrides, std::string_view where) {
  JsonReader reader(overrides, std::string(where));
  std::visit([&](auto& given) { apply(given, reader); }, spec);
  reader.finish();
}

}  // namespace mstar
