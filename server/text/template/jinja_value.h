// Value: the value of a chat template's expression, with Python's rules for truth, equality, order
// and printing. Copies share text and containers and are cheap. Values are immutable, except the
// members of a namespace. One thread per render.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"

namespace quire::jinja {

struct MacroStatement;
class Value;

using List = std::vector<Value>;
using Dict = std::vector<std::pair<std::string, Value>>;  // in the order of insertion; few members

class Value {
 public:
  struct Undefined {
    std::string name;  // of the missing variable or member, for messages
  };
  struct None {};
  struct Sequence {
    std::shared_ptr<const List> items;
    bool tuple;
    int depth;
  };
  struct Mapping {
    std::shared_ptr<Dict> members;
    bool is_namespace;  // its members may be set
    int depth;
  };

  Value() : data_(Undefined{}) {}
  static Value MakeUndefined(std::string name) { return Value(Undefined{std::move(name)}); }
  static Value MakeNone() { return Value(None{}); }
  static Value Of(bool v) { return Value(v); }
  static Value Of(int64_t v) { return Value(v); }
  static Value Of(double v) { return Value(v); }
  static Value Of(std::string v) {
    return Value(std::make_shared<const std::string>(std::move(v)));
  }
  static Value Of(const char* v) { return Of(std::string(v)); }
  static Value Of(List v, bool tuple = false);
  static Value Of(Dict v);
  static Value MakeNamespace(Dict members);
  static Value Of(const MacroStatement* macro) { return Value(macro); }

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_int() const { return std::holds_alternative<int64_t>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  // Booleans are integers, as in Python.
  bool is_number() const { return is_bool() || is_int() || is_float(); }
  bool is_string() const { return std::holds_alternative<Text>(data_); }
  bool is_list() const { return std::holds_alternative<Sequence>(data_); }
  bool is_dict() const { return std::holds_alternative<Mapping>(data_); }
  bool is_namespace() const { return is_dict() && std::get<Mapping>(data_).is_namespace; }
  bool is_tuple() const { return is_list() && std::get<Sequence>(data_).tuple; }

  // REQUIRES a value of that kind.
  const std::string& name() const { return std::get<Undefined>(data_).name; }
  const std::string& string() const { return *std::get<Text>(data_); }
  const List& list() const { return *std::get<Sequence>(data_).items; }
  Dict& dict() const { return *std::get<Mapping>(data_).members; }
  const MacroStatement* macro() const;  // nullptr for other kinds

  std::optional<int64_t> AsInt() const;  // of an integer or boolean
  double AsDouble() const;               // REQUIRES is_number()
  bool IsTrue() const;
  int depth() const;                              // of nested containers; 0 for other values
  const Value* Find(std::string_view key) const;  // member of a dict, nullptr if none
  std::string TypeName() const;                   // for messages

 private:
  using Text = std::shared_ptr<const std::string>;
  using Data = std::variant<Undefined, None, bool, int64_t, double, Text, Sequence, Mapping,
                            const MacroStatement*>;
  explicit Value(Data data) : data_(std::move(data)) {}

  Data data_;
};

bool Equal(const Value& a, const Value& b);
// -1, 0 or 1; INVALID_ARGUMENT for values that have no order.
absl::StatusOr<int> Compare(const Value& a, const Value& b);

}  // namespace quire::jinja
