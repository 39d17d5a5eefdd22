// The plan as JSON, with keys in the order of the table of settings.
#include "server/dry_run.h"

#include <type_traits>

#include "engine/base/status_macros.h"
#include "flags/flag.h"
#include "nlohmann/json.hpp"
#include "server/config/config_table.h"
#include "server/text/template/chat_templates.h"
#include "server/tokenizers/tokenizer_directory.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

Json ConfigJson(Settings settings) {
  Json config;
  for (const flags::Flag& row : SettingsTable(&settings)) {
    config[row.name] = flags::ValueText(row);
    std::visit(
        [&](const auto& target) {
          using T = std::remove_pointer_t<std::decay_t<decltype(target)>>;
          if constexpr (std::is_arithmetic_v<T>) config[row.name] = *target;
        },
        row.target);
  }
  return config;
}

Json SourcesJson(const ParsedSettings& parsed) {
  Json sources = Json::object();
  for (const EffectiveSetting& setting : ListSettings(parsed)) {
    if (setting.source != SettingSource::kDefault) sources[setting.name] = Name(setting.source);
  }
  return sources;
}

// The device that is taken, and why where the settings left it open.
Json DeviceJson(const EngineSetup& setup) {
  Json device = {{"name", setup.device}};
  if (!setup.device_reason.empty()) device["reason"] = setup.device_reason;
  return device;
}

Json ModelJson(const ModelConfig& model, const std::string& chat_template) {
  return {{"architecture", model.architecture},       {"parameters", model.NumParameters()},
          {"vocab_size", model.vocab_size},           {"max_position", model.max_position},
          {"stored_dtype", Name(model.stored_dtype)}, {"chat_template", chat_template}};
}

Json MemoryJson(const MemoryPlan& plan) {
  Json parts;
  for (const MemoryPlan::Part& part : plan.parts) parts[part.name] = part.bytes;
  Json memory = {{"ranks", plan.ranks},
                 {"bytes_per_rank", parts},
                 {"total_bytes_per_rank", plan.total_bytes()},
                 {"total_bytes", plan.total_bytes() * plan.ranks},
                 {"num_blocks", plan.num_blocks},
                 {"block_size", plan.block_size},
                 {"kv_tokens", plan.kv_tokens()},
                 {"host_bytes", plan.host_bytes},
                 {"num_pages", plan.num_pages},
                 {"host_kv_tokens", plan.host_kv_tokens()},
                 {"host_limit_bytes", plan.host_limit_bytes}};
  if (plan.budget_bytes == 0) return memory;
  memory["budget_bytes"] = plan.budget_bytes;
  memory["device"] = {{"name", plan.device.name},
                      {"total_bytes", plan.device.total_bytes},
                      {"free_bytes", plan.device.free_bytes}};
  return memory;
}

}  // namespace

absl::StatusOr<std::string> CheckText(const std::string& directory, const std::string& file) {
  if (directory.empty()) return "none";
  RETURN_IF_ERROR(LoadTokenizer(directory).status());
  ASSIGN_OR_RETURN(const ChatTemplates templates, ChatTemplates::LoadEither(file, directory));
  if (templates.empty()) return "none";
  const absl::Status usable = templates.Check();
  return usable.ok() ? "usable" : std::string(usable.message());
}

std::string DryRunJson(const ParsedSettings& parsed, const EngineSetup& setup,
                       const std::string& chat_template) {
  Settings resolved = ResolveServer(parsed.settings);
  resolved.engine = setup.config;
  const Json plan = {{"config", ConfigJson(resolved)},
                     {"sources", SourcesJson(parsed)},
                     {"device", DeviceJson(setup)},
                     {"model", ModelJson(setup.model, chat_template)},
                     {"memory_plan", MemoryJson(setup.memory)}};
  return plan.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace quire
