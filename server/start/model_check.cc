// Reads the parts of a start one by one; a part that fails does not hide the others.
#include "server/start/model_check.h"

#include <ctime>
#include <filesystem>
#include <string>
#include <utility>

#include "engine/model/checkpoint/model_files.h"
#include "server/identity/key_table.h"
#include "server/session/archive/session_directory.h"
#include "server/start/chat_section.h"
#include "server/start/checked_model.h"
#include "server/start/device_sections.h"
#include "server/start/file_section.h"
#include "server/start/model_sections.h"
#include "server/start/plan_serving.h"
#include "server/start/tokenizer_section.h"
#include "server/tls/certificate_check.h"

namespace quire {
namespace {

// Reads config.json, and plans where that went well.
void ReadModel(CheckedModel& model, CheckReport& report) {
  const EngineConfig& engine = model.settings.engine;
  model.planned = engine;
  if (const absl::Status format = CheckWeightsFormat(engine.model);
      engine.load_format != "dummy" && !format.ok()) {
    report.Refuse(StartStage::kPlan, ExitCode::kModel, format);
    // The plan of the converted weights.
    model.planned.load_format = "dummy";
  }
  absl::StatusOr<ModelConfig> config = ModelConfig::Load(engine.model, &model.unread);
  report.Refuse(StartStage::kPlan, ExitCode::kModel, config.status());
  if (!config.ok()) return;
  model.config = *std::move(config);
  StartError error;
  model.setup = PlanServing(model.planned, &error);
  if (!model.setup.has_value()) report.Refuse(StartStage::kPlan, error.code, error.status);
}

CheckSection DescribeServer(const ServerConfig& server, CheckReport& report) {
  CheckSection section{.title = "Server"};
  const auto add = [&](const char* name, const std::string& path, StartStage stage,
                       const absl::Status& status) {
    section.Add(name, path.empty() ? "none" : path + (status.ok() ? "" : ": refused, see the end"));
    report.Refuse(stage, ExitCode::kBadConfig, status);
  };
  const std::string &keys = server.api_keys, &folder = server.session_dir;
  add("certificate", server.front.tls.certificate, StartStage::kCertificates,
      CheckTlsFiles(server.front.tls, time(nullptr)));
  add("key file", keys, StartStage::kKeys,
      keys.empty() ? absl::OkStatus() : ReadKeyTable(keys).status());
  add("session directory", folder, StartStage::kSessions,
      folder.empty() ? absl::OkStatus() : CheckSessionDirectory(folder));
  return section;
}

}  // namespace

CheckReport CheckModel(const Settings& settings) {
  CheckedModel model{.settings = ResolveServer(settings)};
  CheckReport report;
  std::error_code error;
  const std::string& directory = model.settings.engine.model;
  const bool there = std::filesystem::is_directory(directory, error);
  if (there) {
    ReadModel(model, report);
  } else {
    StartError refused;
    PlanServing(model.settings.engine, &refused);
    report.Refuse(StartStage::kPlan, refused.code, refused.status);
  }
  report.sections.push_back(DescribeModel(model));
  if (there) report.sections.push_back(DescribeFiles(model, report));
  if (there || TextDirectory(model.settings) != directory) {
    report.sections.push_back(DescribeTokenizer(model, report));
    report.sections.push_back(DescribeChatTemplate(model, report));
  }
  if (there) {
    report.sections.push_back(DescribeGeneration(model));
    report.sections.push_back(DescribeDevice(model));
    report.sections.push_back(DescribeGpus(model));
  }
  report.sections.push_back(DescribeServer(model.settings.server, report));
  return report;
}

}  // namespace quire
