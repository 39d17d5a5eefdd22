// The forms in which weights are published, by the endings of their files.
#include "engine/model/checkpoint/model_files.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

// Single-quoted for a shell.
std::string Quoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

// The command that reads the weights and writes safetensors and the tokenizer to `to`. `options`
// are those of from_pretrained.
std::string Conversion(const std::string& from, const std::string& to, const char* options) {
  return absl::StrCat(
      "python3 -c 'import sys, transformers as t; d, o, *f = sys.argv[1:]; k = ", options,
      "; t.AutoModelForCausalLM.from_pretrained(d, dtype=\"auto\", **k).save_pretrained(o); ",
      "t.AutoTokenizer.from_pretrained(d, **k).save_pretrained(o)' ", Quoted(from), " ",
      Quoted(to));
}

absl::Status Refusal(const std::string& file, const std::string& format,
                     const std::string& command) {
  return absl::InvalidArgumentError(absl::StrCat(
      "--model: ", file, " holds weights as ", format,
      "; Quire reads safetensors only. Convert them and serve the new directory: ", command));
}

absl::Status RefuseGguf(const fs::path& file) {
  const fs::path dir = file.has_parent_path() ? file.parent_path() : fs::path(".");
  const std::string to = (dir / file.stem()).string() + "-safetensors";
  return Refusal(file.string(), "GGUF",
                 absl::StrCat(Conversion(dir.string(), to, "{\"gguf_file\": f[0]}"), " ",
                              Quoted(file.filename().string())));
}

bool IsGguf(const fs::path& file) { return file.extension() == ".gguf"; }

// torch's own format, split over several files or not.
bool IsTorch(const fs::path& file) {
  const std::string ending = file.extension().string();
  const std::string name = file.filename().string();
  return (ending == ".bin" && name.starts_with("pytorch_model")) || ending == ".pth" ||
         ending == ".pt";
}

}  // namespace

absl::Status CheckWeightsFormat(const std::string& model) {
  std::error_code error;
  if (fs::is_regular_file(model, error) && IsGguf(model)) return RefuseGguf(model);
  std::vector<fs::path> files;
  for (fs::directory_iterator it(model, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".safetensors") return absl::OkStatus();
    files.push_back(it->path());
  }
  std::ranges::sort(files);
  const auto torch = std::ranges::find_if(files, IsTorch);
  if (torch != files.end()) {
    const fs::path dir = (fs::path(model) / "").parent_path();
    return Refusal(torch->string(), "a pickle of torch",
                   Conversion(dir.string(), dir.string() + "-safetensors", "{}"));
  }
  const auto gguf = std::ranges::find_if(files, IsGguf);
  return gguf == files.end() ? absl::OkStatus() : RefuseGguf(*gguf);
}

std::string RepositoryName(const std::string& dir) {
  std::error_code error;
  const fs::path path = fs::weakly_canonical(dir, error);
  const fs::path named = path.has_filename() ? path : path.parent_path();
  const fs::path snapshots = named.parent_path();
  const std::string repository = snapshots.parent_path().filename().string();
  constexpr std::string_view kPrefix = "models--";
  if (snapshots.filename() != "snapshots" || !repository.starts_with(kPrefix)) {
    return named.filename().string();
  }
  const std::vector<std::string> parts =
      absl::StrSplit(repository.substr(kPrefix.size()), absl::MaxSplits("--", 1));
  return absl::StrJoin(parts, "/");
}

}  // namespace quire
