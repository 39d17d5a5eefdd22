// The server checks what the texts say.
#include "clients/cpp/call/structure_request.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace quire::cli {
namespace {

absl::StatusOr<std::string> ReadText(const char* flag, const std::string& path) {
  std::error_code error;
  std::ifstream file(path, std::ios::binary);
  // A read of a directory throws.
  if (!file || std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat(flag, " ", path, ": cannot be read"));
  }
  return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace

absl::Status SetStructure(const StructureFlags& flags, v1::GenerateRequest* request) {
  const int given = flags.json_schema.has_value() + flags.json_object + flags.regex.has_value() +
                    flags.grammar.has_value() + flags.lark.has_value() + !flags.choices.empty();
  if (given == 0) return absl::OkStatus();
  if (given > 1) {
    return absl::InvalidArgumentError(
        "--json-schema, --json-object, --regex, --grammar, --lark and --choice exclude each other; "
        "give one");
  }
  v1::StructuredOutput* out = request->mutable_structured_output();
  if (flags.json_object) out->set_json_object(true);
  if (flags.regex) out->set_regex(*flags.regex);
  for (const std::string& text : flags.choices) out->mutable_choice()->add_texts(text);
  if (flags.json_schema) {
    const absl::StatusOr<std::string> text = ReadText("--json-schema", *flags.json_schema);
    if (!text.ok()) return text.status();
    out->set_json_schema(*text);
  }
  if (flags.grammar) {
    const absl::StatusOr<std::string> text = ReadText("--grammar", *flags.grammar);
    if (!text.ok()) return text.status();
    out->set_grammar(*text);
  }
  if (flags.lark) {
    const absl::StatusOr<std::string> text = ReadText("--lark", *flags.lark);
    if (!text.ok()) return text.status();
    out->set_lark(*text);
  }
  return absl::OkStatus();
}

}  // namespace quire::cli
