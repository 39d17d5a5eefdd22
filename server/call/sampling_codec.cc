// Parameters of one number go through the table of fields and the message's reflection; lists are
// written out.
#include "server/call/sampling_codec.h"

#include <algorithm>
#include <limits>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/values/sampling_fields.h"
#include "quire/v1/inference.pb.h"
#include "server/call/status_codec.h"

namespace quire {
namespace {

const google::protobuf::FieldDescriptor* Descriptor(const SamplingField& field) {
  return v1::SamplingParams::descriptor()->FindFieldByName(field.name);
}

SampleRow DefaultsOf(const GenerationDefaults& defaults) {
  SampleRow row;
  row.temperature = defaults.do_sample ? defaults.temperature.value_or(row.temperature) : 0.0f;
  row.top_k = defaults.top_k.value_or(row.top_k);
  row.top_p = defaults.top_p.value_or(row.top_p);
  row.min_p = defaults.min_p.value_or(row.min_p);
  row.repetition_penalty = defaults.repetition_penalty.value_or(row.repetition_penalty);
  return row;
}

struct Reader {
  const v1::SamplingParams& in;
  const google::protobuf::FieldDescriptor* field;
  SampleRow& row;

  void operator()(float SampleRow::*member) const {
    row.*member = in.GetReflection()->GetFloat(in, field);
  }
  void operator()(int32_t SampleRow::*member) const {
    row.*member = Narrow(in.GetReflection()->GetUInt32(in, field));
  }
};

struct Writer {
  const SampleRow& row;
  const google::protobuf::FieldDescriptor* field;
  v1::SamplingParams* out;

  void operator()(float SampleRow::*member) const {
    out->GetReflection()->SetFloat(out, field, row.*member);
  }
  void operator()(int32_t SampleRow::*member) const {
    out->GetReflection()->SetUInt32(out, field, static_cast<uint32_t>(row.*member));
  }
};

template <typename Ids>
void AppendIds(const Ids& ids, std::vector<int32_t>* out) {
  for (const uint32_t id : ids) out->push_back(Narrow(id));
}

void AddIds(const std::vector<int32_t>& ids, google::protobuf::RepeatedField<uint32_t>* out) {
  for (const int32_t id : ids) out->Add(static_cast<uint32_t>(id));
}

absl::Status DecodeBadWords(const v1::SamplingParams& in, std::vector<int32_t>* out) {
  const int banned = in.banned_token_ids_size();
  if (banned > SamplingParams::kMaxBadWordIds) {
    return InvalidField("sampling.banned_token_ids",
                        absl::StrCat("has ", banned, " ids; at most ",
                                     SamplingParams::kMaxBadWordIds, " are allowed"));
  }
  for (const uint32_t id : in.banned_token_ids()) out->push_back(~Narrow(id));
  for (const v1::TokenIds& word : in.bad_word_ids()) {
    if (word.ids().empty()) return InvalidField("sampling.bad_word_ids", "holds an empty word");
    AppendIds(word.ids(), out);
    out->back() = ~out->back();
  }
  return absl::OkStatus();
}

// Words of one id are banned ids.
void EncodeBadWords(const std::vector<int32_t>& bad_words, v1::SamplingParams* out) {
  std::vector<uint32_t> word;
  for (const int32_t id : bad_words) {
    word.push_back(static_cast<uint32_t>(id < 0 ? ~id : id));
    if (id >= 0) continue;
    if (word.size() == 1) {
      out->add_banned_token_ids(word[0]);
    } else {
      out->add_bad_word_ids()->mutable_ids()->Add(word.begin(), word.end());
    }
    word.clear();
  }
}

}  // namespace

int32_t Narrow(uint32_t value) {
  return value > static_cast<uint32_t>(std::numeric_limits<int32_t>::max())
             ? std::numeric_limits<int32_t>::max()
             : static_cast<int32_t>(value);
}

absl::Status DecodeSampling(const v1::SamplingParams& in, const GenerationDefaults& defaults,
                            uint64_t seed, SamplingParams* out) {
  out->row = DefaultsOf(defaults);
  for (const SamplingField& field : SamplingFields()) {
    const google::protobuf::FieldDescriptor* descriptor = Descriptor(field);
    if (!in.GetReflection()->HasField(in, descriptor)) continue;
    std::visit(Reader{in, descriptor, out->row}, field.member);
  }
  out->row.seed = in.has_seed() ? in.seed() : seed;
  out->logit_bias.reserve(in.logit_bias().size());
  for (const auto& [token, bias] : in.logit_bias()) {
    out->logit_bias.push_back({Narrow(token), bias});
  }
  std::sort(out->logit_bias.begin(), out->logit_bias.end(),
            [](const LogitBias& a, const LogitBias& b) { return a.token < b.token; });
  AppendIds(in.allowed_token_ids(), &out->allowed_token_ids);
  AppendIds(in.dry_breaker_ids(), &out->dry_breaker_ids);
  return DecodeBadWords(in, &out->bad_words);
}

void EncodeSampling(const SamplingParams& in, v1::SamplingParams* out) {
  for (const SamplingField& field : SamplingFields()) {
    std::visit(Writer{in.row, Descriptor(field), out}, field.member);
  }
  out->set_seed(in.row.seed);
  for (const LogitBias& entry : in.logit_bias) {
    (*out->mutable_logit_bias())[static_cast<uint32_t>(entry.token)] = entry.bias;
  }
  AddIds(in.allowed_token_ids, out->mutable_allowed_token_ids());
  AddIds(in.dry_breaker_ids, out->mutable_dry_breaker_ids());
  EncodeBadWords(in.bad_words, out);
}

}  // namespace quire
