// Value: the value of a chat template's expression, with Python's rules for truth, equality and
// order. Copies share text and containers and are cheap. Values are immutable, except the members
// of a namespace, how far a generator was read, and the turn of a loop with what loop.changed saw.
// Any thread may hold a value, one thread renders.
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

class Dict;
class Value;
struct Callable;

using List = std::vector<Value>;

// Maximum nesting of values, and of a template's expressions and blocks.
inline constexpr int kMaxDepth = 64;

class Value {
 public:
  // How Python calls a sequence: this decides how it prints, compares, and what it can do.
  enum class Order : uint8_t {
    kList,
    kTuple,
    kRange,
    kKeys,  // these three are views of a dict: no index
    kValues,
    kItems,
    kGenerator,  // of a filter: read once, always true, no length
  };
  struct Undefined {
    std::string name;  // of the missing variable or member, for messages
  };
  struct None {};
  struct Text {
    std::shared_ptr<const std::string> bytes;
    bool safe;  // by the filter `safe` or `escape`: what is added to it is escaped
  };
  // Of all that a container holds, at any depth.
  struct Extent {
    int64_t weight = 1;
    int depth = 1;
    bool has_namespace = false;
    bool has_callable = false;

    void Add(const Value& part);
  };
  struct Sequence {
    std::shared_ptr<const List> items;
    std::shared_ptr<size_t> taken;  // items that were read; of generators only
    Order order;
    Extent extent;
  };
  struct Mapping {
    std::shared_ptr<Dict> members;
    bool is_namespace;  // its members may be set
    Extent extent;      // not of a namespace, whose members change
  };

  Value() : data_(Undefined{}) {}
  static Value MakeUndefined(std::string name) { return Value(Undefined{std::move(name)}); }
  static Value MakeNone() { return Value(None{}); }
  static Value Of(bool v) { return Value(v); }
  static Value Of(int64_t v) { return Value(v); }
  static Value Of(double v) { return Value(v); }
  static Value Of(std::string v, bool safe = false) {
    return Value(Text{std::make_shared<const std::string>(std::move(v)), safe});
  }
  static Value Of(const char* v) { return Of(std::string(v)); }
  static Value Of(List v, Order order = Order::kList);
  static Value Of(Dict v);
  static Value MakeNamespace(Dict members);
  static Value Of(std::shared_ptr<const Callable> v) { return Value(std::move(v)); }

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_int() const { return std::holds_alternative<int64_t>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  // Booleans are integers, as in Python.
  bool is_number() const { return is_bool() || is_int() || is_float(); }
  bool is_string() const { return std::holds_alternative<Text>(data_); }
  bool is_safe() const { return is_string() && std::get<Text>(data_).safe; }
  bool is_sequence() const { return std::holds_alternative<Sequence>(data_); }
  bool is_ordered(Order order) const { return is_sequence() && this->order() == order; }
  // Has items by index and a length: a list, a tuple or a range.
  bool is_indexed() const { return is_sequence() && order() <= Order::kRange; }
  bool is_dict() const {
    return std::holds_alternative<Mapping>(data_) && !std::get<Mapping>(data_).is_namespace;
  }
  bool is_namespace() const {
    return std::holds_alternative<Mapping>(data_) && std::get<Mapping>(data_).is_namespace;
  }

  // REQUIRES a value of that kind.
  const std::string& name() const { return std::get<Undefined>(data_).name; }
  const std::string& string() const { return *std::get<Text>(data_).bytes; }
  Order order() const { return std::get<Sequence>(data_).order; }
  const List& list() const { return *std::get<Sequence>(data_).items; }
  size_t& taken() const { return *std::get<Sequence>(data_).taken; }
  Dict& dict() const { return *std::get<Mapping>(data_).members; }  // of a namespace too

  const Callable* callable() const;  // nullptr for other kinds

  std::optional<int64_t> AsInt() const;  // of an integer or boolean
  double AsDouble() const;               // REQUIRES is_number()
  bool IsTrue() const;
  int depth() const;  // of nested containers and callables; 0 for other values
  // Parts of nested containers, each counted where it occurs, and 64 bytes of text for one: what it
  // costs to print or compare the value. Shared parts make it larger than the memory. Takes time
  // linear in the members of a namespace.
  int64_t weight() const;
  // Whether it is one of these or holds one, at any depth. Both change, so a value that keeps one
  // may reach itself.
  enum class Changing : uint8_t { kNamespace, kCallable };
  bool Has(Changing kind) const;
  std::string TypeName() const;  // for messages

 private:
  using Data = std::variant<Undefined, None, bool, int64_t, double, Text, Sequence, Mapping,
                            std::shared_ptr<const Callable>>;
  explicit Value(Data data) : data_(std::move(data)) {}

  Data data_;
};

// Takes time linear in the smaller weight(). Items that are one object are equal, as in Python, and
// so are items that are NaN: otherwise each would be a key of its own with the same hash.
bool Equal(const Value& a, const Value& b);
bool EqualItems(const Value& a, const Value& b);
// Equal values have equal hashes; nullopt for values that cannot be keys of a dict.
std::optional<size_t> HashOf(const Value& value);
// -1, 0 or 1; INVALID_ARGUMENT for values that have no order.
absl::StatusOr<int> Compare(const Value& a, const Value& b);

}  // namespace quire::jinja
