// Flag: one row of a program's table. The row alone makes the flag, its line in --help, the man
// page and the completion, and the words of every complaint about its value.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"

namespace quire::flags {

// How a number may be written, beside plain digits.
enum class Unit : uint8_t {
  kNone,
  kCount,      // 32k is 32,000 and 32K is 32,768; likewise m and M, g and G, t and T
  kBytes,      // as kCount; 64MB is 64,000,000 and 64MiB is 67,108,864
  kGibibytes,  // a plain number is GiB; with a unit as kBytes
  kSeconds,    // 250ms, 90s, 30m or 30min, 12h, 2d
  kShare,      // 0.9 or 90%
};

// Takes a text whose form only the program knows, or returns false and takes nothing.
using TakeText = std::function<bool(const std::string& text)>;

// Where a value goes. An optional stays unset without its flag. A list takes every value in turn.
using Target =
    std::variant<std::string*, bool*, int32_t*, int64_t*, uint64_t*, double*,
                 std::optional<std::string>*, std::optional<int32_t>*, std::optional<uint32_t>*,
                 std::optional<uint64_t>*, std::optional<float>*, std::optional<double>*,
                 std::vector<std::string>*, std::vector<uint32_t>*, TakeText>;

// Texts live as long as the program; `target` outlives the row.
struct Flag {
  std::string_view name;   // "max-num-seqs"; behind two dashes on a command line
  std::string_view group;  // heading in --help
  std::string_view help;   // its effect, unit and special values
  Target target;           // a bool is a switch: --name and --no-name
  Unit unit = Unit::kNone;
  double lowest = 0;  // of numbers, both ends accepted; both 0: the range of the target's type
  double highest = 0;
  // Of words: "text|json"; with other spellings behind "=": "float32=float|float16=half". Letter
  // case does not matter. Empty: any text.
  std::string choices = {};
  std::string_view aliases = {};      // other servers' names for the same: "tp|tp-size"
  std::string_view short_name = {};   // "n": a single letter behind one dash, or none
  std::string_view placeholder = {};  // "FILE": shown for the value; empty: made from the kind
  std::string_view wants = {};        // of TakeText: the form of the text, for messages
  std::string_view unset = {};        // shown as the default of a target without a value
  bool many = false;                  // of a list of texts: takes all words up to the next flag
  bool commas = false;                // of a list of texts: a comma ends one and begins the next
  bool required = false;              // of a positional
};

// Reads `text` into the target; a list gets it added. INVALID_ARGUMENT says what is accepted,
// without the flag's name, which the caller knows as the user spelled it.
absl::Status SetValue(const Flag& flag, const std::string& text);
// Empties a list, so that a stronger source replaces a weaker one. Leaves other targets alone.
void ClearList(const Flag& flag);
// The target's value in a spelling that SetValue takes; empty: unset, or TakeText.
std::string ValueText(const Flag& flag);
// "1 to 4096", "0 to 600 s", "one of text, json", "true or false"; empty: any text.
std::string AcceptedValues(const Flag& flag);
// "N", "SECONDS", "FILE": the stand-in for the value in --help; empty for a switch.
std::string Placeholder(const Flag& flag);
// The words of `choices` in their first spelling.
std::vector<std::string> Choices(const Flag& flag);

bool IsSwitch(const Flag& flag);
bool IsList(const Flag& flag);

}  // namespace quire::flags
