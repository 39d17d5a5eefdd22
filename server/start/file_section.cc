// Opens the checkpoint as ModelIdentity and LoadModel do.
#include "server/start/file_section.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/model/checkpoint/model_files.h"
#include "engine/model/checkpoint/safetensors.h"
#include "engine/model/model.h"

namespace quire {
namespace {

struct TypeCount {
  int64_t tensors = 0;
  int64_t bytes = 0;
};

void AddTotals(const Checkpoint& checkpoint, CheckSection& section) {
  std::map<std::string, TypeCount> types;
  int64_t bytes = 0;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    TypeCount& type = types[tensor.dtype];
    ++type.tensors;
    type.bytes += static_cast<int64_t>(tensor.bytes);
    bytes += static_cast<int64_t>(tensor.bytes);
  }
  section.Add("listed by", checkpoint.listing_path());
  section.Add("files", CountText(static_cast<int64_t>(checkpoint.num_files())));
  section.Add("tensors", absl::StrCat(CountText(static_cast<int64_t>(checkpoint.tensors().size())),
                                      ", ", BytesText(bytes)));
  for (const auto& [type, count] : types) {
    section.Add(type, absl::StrCat(CountText(count.tensors), ", ", BytesText(count.bytes)));
  }
}

void AddComparison(const CheckedModel& model, const Checkpoint& checkpoint, CheckSection& section,
                   CheckReport& report) {
  const ModelConfig& config = *model.config;
  std::vector<std::string> skipped;
  for (const auto& [prefix, count] : SkippedTensors(config, checkpoint)) {
    skipped.push_back(absl::StrCat(prefix, "*: ", CountText(count)));
  }
  section.Add("not part of it", skipped.empty() ? "none" : absl::StrJoin(skipped, ", "));
  // Names and shapes are those of the files, whatever the ranks; the plan reports the wrong number.
  const absl::Status tensors = CheckTensors(
      checkpoint, config, {}, model.setup ? model.setup->model_options : ModelOptions());
  section.Add("names and shapes",
              tensors.ok() ? "as config.json makes them" : "wrong, see the end");
  report.Refuse(StartStage::kTensors, ExitCode::kModel, tensors);
}

}  // namespace

CheckSection DescribeFiles(const CheckedModel& model, CheckReport& report) {
  CheckSection section{.title = "Weights"};
  const EngineConfig& engine = model.settings.engine;
  if (engine.load_format == "dummy") {
    section.Add("files", "not read: --load-format dummy makes random weights");
    return section;
  }
  if (!CheckWeightsFormat(engine.model).ok()) {
    section.Add("files", "of another format, see the end");
    return section;
  }
  const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(engine.model);
  if (!checkpoint.ok()) {
    section.Add("files", "refused, see the end");
    report.Refuse(StartStage::kFiles, ExitCode::kModel, checkpoint.status());
    return section;
  }
  AddTotals(*checkpoint, section);
  if (model.config.has_value()) {
    AddComparison(model, *checkpoint, section, report);
  } else {
    section.Add("names and shapes", "not compared without config.json");
  }
  return section;
}

}  // namespace quire
