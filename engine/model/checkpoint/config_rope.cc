// transformers 5 writes rope_parameters, which includes the base, perhaps one object for each type
// of layer; transformers 4 wrote rope_scaling beside the base.
#include "engine/model/checkpoint/config_rope.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace quire {
namespace {

constexpr int64_t kMaxPosition = int64_t{1} << 27;
constexpr double kHuge = 1e30;
constexpr double kSmallest = 1e-6;

constexpr const char* kKnownKeys[] = {
    "rope_type",       "type",
    "rope_theta",      "factor",
    "finetuned",       "original_max_position_embeddings",
    "beta_fast",       "beta_slow",
    "low_freq_factor", "mscale",
    "mscale_all_dim",  "high_freq_factor",
    "truncate",        "attention_factor",
    "attn_factor",     "partial_rotary_factor",
    "short_factor",    "long_factor",
};

struct ScalingName {
  const char* name;
  RopeScaling scaling;
};
constexpr ScalingName kScalings[] = {
    {"default", RopeScaling::kNone},    {"linear", RopeScaling::kLinear},
    {"llama3", RopeScaling::kLlama3},   {"yarn", RopeScaling::kYarn},
    {"dynamic", RopeScaling::kDynamic}, {"longrope", RopeScaling::kLongRope},
    {"su", RopeScaling::kLongRope},
};

// Reads one object of rotary parameters; `in` is the config around it.
class RopeReader {
 public:
  RopeReader(ConfigReader& in, ConfigReader& rope, const Family& family, const ModelConfig& model)
      : in_(in), rope_(rope), family_(family), model_(model) {}

  // `theta_key`: of the config around, for objects without "rope_theta".
  RopeConfig Read(const nlohmann::json& object, const char* theta_key, double default_theta) {
    for (auto it = object.begin(); object.is_object() && it != object.end(); ++it) {
      if (std::ranges::find(kKnownKeys, it.key()) == std::end(kKnownKeys)) {
        rope_.Fail(absl::StrCat("unknown key \"", it.key(), "\"; supported: the keys of default, ",
                                "linear, llama3, yarn, dynamic and longrope scaling"));
      }
    }
    ReadRotatedPart();
    const bool inside = rope_.Has("rope_theta");
    ConfigReader& theta_at = inside ? rope_ : in_;
    r_.theta = theta_at.OptionalNumber(inside ? "rope_theta" : theta_key, 1e-3, kHuge)
                   .value_or(default_theta);
    r_.interleaved = family_.interleaved_rotation;
    if (rope_.num_faults() == 0 && r_.rotary_dim >= 2) ReadScaling();
    return r_;
  }

 private:
  void ReadRotatedPart() {
    const double least = family_.partial_rotation ? kSmallest : 1.0;
    ConfigReader& at = rope_.Has("partial_rotary_factor") ? rope_ : in_;
    const double factor = at.OptionalNumber("partial_rotary_factor", least, 1.0)
                              .value_or(family_.defaults.rotary_factor);
    r_.rotary_dim = static_cast<int32_t>(model_.head_dim * factor);
    if (r_.rotary_dim < 2 || r_.rotary_dim % 2 != 0) {
      at.Fail(absl::StrCat("\"partial_rotary_factor\" rotates ", r_.rotary_dim, " of ",
                           model_.head_dim, " dimensions; supported: an even number from 2"));
    }
  }

  void ReadScaling() {
    const char* type_key = rope_.Has("rope_type") ? "rope_type" : "type";
    const std::string type = rope_.String(type_key, "default");
    const auto* known = std::ranges::find(kScalings, type, &ScalingName::name);
    if (known == std::end(kScalings)) {
      rope_.Refuse(type_key,
                   "\"default\", \"linear\", \"llama3\", \"yarn\", \"dynamic\", \"longrope\"");
      return;
    }
    r_.scaling = known->scaling;
    if (r_.scaling != RopeScaling::kYarn && rope_.Has("attn_factor")) {
      rope_.Refuse("attn_factor", "this key for \"yarn\" only");
    }
    if (r_.scaling == RopeScaling::kNone) return;
    if (r_.scaling == RopeScaling::kLongRope) return ReadLongRope();
    if (rope_.Has("short_factor") || rope_.Has("long_factor")) {
      rope_.Refuse(type_key, "\"longrope\" with \"short_factor\" and \"long_factor\"");
      return;
    }
    r_.factor = rope_.Number("factor", 1.0, kHuge);
    r_.original_max_position = model_.max_position;
    if (r_.scaling == RopeScaling::kLinear) return;
    if (r_.scaling == RopeScaling::kDynamic) {
      if (r_.rotary_dim <= 2) rope_.Refuse(type_key, "more than 2 rotated dimensions");
      return;
    }
    r_.original_max_position =
        rope_.OptionalInt("original_max_position_embeddings", 1, kMaxPosition)
            .value_or(model_.max_position);
    r_.scaling == RopeScaling::kLlama3 ? ReadLlama3() : ReadYarn();
  }

  void ReadLlama3() {
    r_.low_freq_factor = rope_.Number("low_freq_factor", kSmallest, kHuge);
    r_.high_freq_factor = rope_.Number("high_freq_factor", kSmallest, kHuge);
    if (rope_.status().ok() && r_.high_freq_factor <= r_.low_freq_factor) {
      rope_.Refuse("high_freq_factor", "a number above low_freq_factor");
    }
  }

  void ReadYarn() {
    // Zero counts as unset here, as in transformers.
    const auto unless_zero = [this](const char* key) {
      std::optional<double> v = rope_.OptionalNumber(key, 0.0, kHuge);
      return v == 0.0 ? std::nullopt : v;
    };
    r_.beta_fast = unless_zero("beta_fast").value_or(32.0);
    r_.beta_slow = unless_zero("beta_slow").value_or(1.0);
    r_.attention_factor = rope_.OptionalNumber("attention_factor", 0.0, kHuge);
    r_.attn_factor = rope_.OptionalNumber("attn_factor", 0.0, kHuge).value_or(1.0);
    r_.mscale = unless_zero("mscale");
    r_.mscale_all_dim = unless_zero("mscale_all_dim");
    r_.truncate = rope_.Bool("truncate", true);
    if (r_.theta <= 1.0) rope_.Fail("\"rope_theta\" must be above 1 for yarn");
  }

  void ReadLongRope() {
    ConfigReader& at = in_.Has("original_max_position_embeddings") ? in_ : rope_;
    r_.original_max_position = at.Int("original_max_position_embeddings", 2, kMaxPosition);
    const double stretch = static_cast<double>(model_.max_position) /
                           static_cast<double>(std::max<int64_t>(1, r_.original_max_position));
    r_.factor = rope_.OptionalNumber("factor", kSmallest, kHuge).value_or(stretch);
    r_.attention_factor = rope_.OptionalNumber("attention_factor", 0.0, kHuge);
    r_.short_factor = ReadFactors("short_factor");
    r_.long_factor = ReadFactors("long_factor");
  }

  // A divisor for each pair of rotated dimensions.
  std::vector<float> ReadFactors(const char* key) {
    const std::vector<double> values = rope_.NumberList(key, kSmallest, kHuge);
    if (rope_.status().ok() && values.size() != static_cast<size_t>(r_.rotary_dim / 2)) {
      rope_.Refuse(key, absl::StrCat("a list of ", r_.rotary_dim / 2,
                                     " numbers, one for each pair of rotated dimensions"));
    }
    return {values.begin(), values.end()};
  }

  ConfigReader& in_;
  ConfigReader& rope_;
  const Family& family_;
  const ModelConfig& model_;
  RopeConfig r_;
};

struct RopeObject {
  const nlohmann::json& json;
  std::string where;
  const char* theta_key;
  double default_theta;
};

RopeConfig ReadObject(ConfigReader& in, const Family& family, const ModelConfig& model,
                      const RopeObject& object) {
  ConfigReader rope(object.json, object.where);
  const RopeConfig result =
      RopeReader(in, rope, family, model).Read(object.json, object.theta_key, object.default_theta);
  in.Adopt(rope.status());
  return result;
}

}  // namespace

void ReadRope(ConfigReader& in, const Family& family, ModelConfig& out) {
  const bool is_new = in.Has("rope_parameters");
  if (is_new && in.Has("rope_scaling") && in.At("rope_scaling") != in.At("rope_parameters")) {
    in.Refuse("rope_scaling", "one of \"rope_scaling\" and \"rope_parameters\"");
  }
  const char* name = is_new ? "rope_parameters" : "rope_scaling";
  const std::string where = absl::StrCat(in.where(), ": \"", name, "\"");
  const nlohmann::json none = nlohmann::json::object();
  const nlohmann::json& object = in.Has(name) ? in.At(name) : none;
  const bool two_bases = family.rotation == RotationRule::kLocalWindows;
  const bool by_type = two_bases && object.is_object() && object.contains("full_attention");
  const auto part = [&](const char* type) -> const nlohmann::json& {
    const auto it = object.find(type);
    return it == object.end() || it->is_null() ? none : *it;
  };
  const nlohmann::json& global = by_type ? part("full_attention") : object;
  out.rope = ReadObject(in, family, out, {global, where, "rope_theta", family.defaults.rope_theta});
  if (two_bases) {
    const nlohmann::json& local = by_type ? part("sliding_attention") : none;
    constexpr double kDefaultLocalTheta = 10000.0;
    out.local_rope =
        ReadObject(in, family, out, {local, where, "rope_local_base_freq", kDefaultLocalTheta});
  }
  // YaRN names the context before scaling; some checkpoints leave that in max_position_embeddings.
  out.longest_position = out.max_position;
  const bool yarn = out.rope.scaling == RopeScaling::kYarn;
  if (!yarn && out.rope.scaling != RopeScaling::kDynamic) return;
  const double scaled =
      std::floor(out.rope.factor * static_cast<double>(out.rope.original_max_position));
  out.longest_position = static_cast<int32_t>(
      std::min<double>(kMaxPosition, std::max<double>(out.max_position, scaled)));
  if (yarn) out.max_position = out.longest_position;
}

}  // namespace quire
