// Builds values from the parts of the text; open containers are on a stack.
#include "server/text/template/json_value.h"

#include <limits>
#include <utility>
#include <vector>

#include "engine/base/json_walk.h"
#include "engine/base/status_macros.h"
#include "server/text/jinja/values/dict.h"

namespace quire {
namespace {

using jinja::Value;

class ValueSink : public JsonSink {
 public:
  const char* Scalar(nlohmann::json&& value) override {
    switch (value.type()) {
      case nlohmann::json::value_t::null: Place(Value::MakeNone()); break;
      case nlohmann::json::value_t::boolean: Place(Value::Of(value.get<bool>())); break;
      case nlohmann::json::value_t::number_unsigned:
        if (value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}) {
          return LargeInteger(0);
        }
        [[fallthrough]];
      case nlohmann::json::value_t::number_integer: Place(Value::Of(value.get<int64_t>())); break;
      case nlohmann::json::value_t::number_float: Place(Value::Of(value.get<double>())); break;
      default: Place(Value::Of(std::move(value.get_ref<std::string&>())));
    }
    return nullptr;
  }
  const char* LargeInteger(double) override { return "an integer outside 64 bits"; }
  const char* Open(bool object) override {
    open_.push_back({object, {}, {}, {}});
    return nullptr;
  }
  const char* Key(std::string&& name) override {
    Container& object = open_.back();
    if (object.members.Find(name) != nullptr) return "duplicate key";
    object.key = std::move(name);
    return nullptr;
  }
  void Close() override {
    Container closed = std::move(open_.back());
    open_.pop_back();
    Place(closed.object ? Value::Of(std::move(closed.members))
                        : Value::Of(std::move(closed.items)));
  }

  Value Take() { return std::move(root_); }

 private:
  struct Container {
    bool object;
    std::string key;  // of the member that follows
    jinja::Dict members;
    jinja::List items;
  };

  void Place(Value value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().object) {
      open_.back().members.Set(open_.back().key, std::move(value));
    } else {
      open_.back().items.push_back(std::move(value));
    }
  }

  Value root_;
  std::vector<Container> open_;
};

}  // namespace

absl::StatusOr<Value> ReadJsonValue(std::string_view text, const std::string& what,
                                    const JsonLimits& limits) {
  ValueSink sink;
  RETURN_IF_ERROR(WalkJson(text, what, limits, &sink));
  return sink.Take();
}

}  // namespace quire
