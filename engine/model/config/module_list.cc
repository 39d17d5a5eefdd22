// Names are looked up; everything else becomes an expression of PCRE2, anchored at the beginning.
#include "engine/model/config/module_list.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/base/status_macros.h"

namespace quire {
namespace {

// Steps of one match. A published expression takes a few for each character of a name; a hostile
// one stops after some tens of microseconds, because a list is asked for every module of a model.
constexpr uint32_t kMatchLimit = 5'000;
constexpr std::string_view kRegex = "re:";

struct Free {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

PCRE2_SPTR Chars(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

// Each "*" stands for any characters, and everything else for itself.
std::string FromWildcards(const std::string& entry) {
  // A quoted run ends at "\E", which no part of an entry may do by itself.
  const std::string quoted =
      absl::StrReplaceAll(entry, {{"\\E", "\\E\\\\E\\Q"}, {"*", "\\E.*\\Q"}});
  return absl::StrCat("\\Q", quoted, "\\E\\z");
}

}  // namespace

struct ModuleList::Expression {
  std::string entry;
  bool is_negative = false;  // has a lookaround that says what must not be there
  std::unique_ptr<pcre2_code, Free> code;
};

ModuleList::ModuleList() = default;
ModuleList::~ModuleList() = default;
ModuleList::ModuleList(ModuleList&&) noexcept = default;
ModuleList& ModuleList::operator=(ModuleList&&) noexcept = default;

absl::Status ModuleList::Add(const std::string& entry) {
  const bool is_regex = entry.starts_with(kRegex);
  if (!is_regex && entry.find('*') == std::string::npos) {
    names_.insert(entry);
    return absl::OkStatus();
  }
  if (!is_regex && entry.find('*') == entry.size() - 1) {
    beginnings_.push_back(entry.substr(0, entry.size() - 1));
    return absl::OkStatus();
  }
  if (expressions_.size() == kMostExpressions) {
    return absl::InvalidArgumentError(
        absl::StrCat("has more than ", kMostExpressions, " expressions"));
  }
  const std::string regex = is_regex ? entry.substr(kRegex.size()) : FromWildcards(entry);
  int error = 0;
  PCRE2_SIZE at = 0;
  auto expression = std::make_unique<Expression>();
  expression->entry = entry;
  expression->is_negative = entry.find("(?!") != entry.npos || entry.find("(?<!") != entry.npos;
  expression->code.reset(pcre2_compile(Chars(regex), regex.size(),
                                       PCRE2_ANCHORED | PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C, &error,
                                       &at, nullptr));
  if (expression->code == nullptr) {
    std::array<PCRE2_UCHAR, 256> text{};
    pcre2_get_error_message(error, text.data(), text.size());
    return absl::InvalidArgumentError(
        absl::StrCat("\"", entry, "\" is no expression that PCRE2 ",
                     "reads: ", reinterpret_cast<const char*>(text.data())));
  }
  expressions_.push_back(std::move(expression));
  return absl::OkStatus();
}

absl::StatusOr<bool> ModuleList::Covers(std::string_view module, bool alias) const {
  for (std::string_view name = module;;) {
    if (names_.contains(name)) return true;
    const size_t dot = name.rfind('.');
    if (dot == std::string_view::npos) break;
    name = name.substr(0, dot);
  }
  for (const std::string& fragment : fragments_) {
    if (module.find(fragment) != std::string_view::npos) return true;
  }
  const auto begins = [&](const std::string& entry) { return module.starts_with(entry); };
  const auto ends = [&](const std::string& entry) {
    return module == entry || module.ends_with(absl::StrCat(".", entry));
  };
  if (std::ranges::any_of(beginnings_, begins) || std::ranges::any_of(endings_, ends)) return true;
  const std::unique_ptr<pcre2_match_context, Free> limits(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(limits.get(), kMatchLimit);
  for (const auto& expression : expressions_) {
    if (alias && expression->is_negative) continue;
    const std::unique_ptr<pcre2_match_data, Free> data(
        pcre2_match_data_create_from_pattern(expression->code.get(), nullptr));
    const int matches = pcre2_match(expression->code.get(), Chars(module), module.size(), 0, 0,
                                    data.get(), limits.get());
    if (matches >= 0) return true;
    if (matches != PCRE2_ERROR_NOMATCH) {
      return absl::InvalidArgumentError(absl::StrCat("\"", expression->entry,
                                                     "\" needs too many steps to match \"",
                                                     std::string(module), "\""));
    }
  }
  return false;
}

}  // namespace quire
