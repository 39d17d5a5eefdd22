// Walks the tree. Counts every evaluation as a step; the depth of the tree and of macro calls
// limits recursion.
#include "server/text/template/jinja_interpreter.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/text/template/jinja_access.h"
#include "server/text/template/jinja_filters.h"
#include "server/text/template/jinja_format.h"
#include "server/text/template/jinja_methods.h"
#include "server/text/template/jinja_operators.h"
#include "server/text/template/jinja_value.h"

namespace quire::jinja {
namespace {

constexpr int kMaxMacroDepth = 16;
constexpr int64_t kBytesPerStep = 64;
constexpr int64_t kStepsPerClockRead = 256;
constexpr int64_t kMaxRange = 100'000;

// Of this thread, so that the load of the machine does not count against the template.
int64_t CpuNowNs() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Variables of one loop turn, macro call or of the whole template.
struct Scope {
  Scope* outer;
  std::vector<std::pair<std::string, Value>> variables;

  const Value* Find(const std::string& name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->outer) {
      const auto at =
          std::ranges::find(scope->variables, name, &std::pair<std::string, Value>::first);
      if (at != scope->variables.end()) return &at->second;
    }
    return nullptr;
  }
  void Set(const std::string& name, Value value) {
    const auto at = std::ranges::find(variables, name, &std::pair<std::string, Value>::first);
    if (at != variables.end()) {
      at->second = std::move(value);
    } else {
      variables.emplace_back(name, std::move(value));
    }
  }
};

struct Loop {
  const List& items;
  int64_t index;
};

enum class Flow : uint8_t { kNext, kBreak, kContinue };

class Interpreter {
 public:
  Interpreter(std::vector<std::pair<std::string, Value>> globals, const Limits& limits)
      : limits_(limits),
        deadline_ns_(CpuNowNs() + limits.time_ns),
        globals_{nullptr, std::move(globals)},
        scope_(&globals_) {}

  absl::StatusOr<Outcome> Run(const Block& block) {
    const absl::StatusOr<Flow> flow = Execute(block);
    if (raised_.has_value()) return Outcome{*raised_, true};
    if (!flow.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", line_, ": ", flow.status().message()));
    }
    return Outcome{std::move(output_), false};
  }

 private:
  using Kind = Expression::Kind;
  using Result = absl::StatusOr<Value>;

  static absl::Status Fault(const std::string& reason) {
    return absl::InvalidArgumentError(reason);
  }

  absl::Status Charge(int64_t steps) {
    steps_ += steps;
    if (steps_ > limits_.steps) return Fault(absl::StrCat("more than ", limits_.steps, " steps"));
    since_clock_ += steps;
    if (since_clock_ < kStepsPerClockRead) return absl::OkStatus();
    since_clock_ = 0;
    if (CpuNowNs() <= deadline_ns_) return absl::OkStatus();
    return Fault(absl::StrCat("more than ", limits_.time_ns / 1'000'000, " ms"));
  }

  absl::Status Print(std::string_view text) {
    if (output_.size() + text.size() > limits_.output_bytes) {
      return Fault(absl::StrCat("more than ", limits_.output_bytes, " bytes of text"));
    }
    output_ += text;
    return Charge(static_cast<int64_t>(text.size()) / kBytesPerStep);
  }

  // --- statements ---

  absl::StatusOr<Flow> Execute(const Block& block) {
    for (const auto& statement : block) {
      line_ = statement->line;
      RETURN_IF_ERROR(Charge(1));
      ASSIGN_OR_RETURN(const Flow flow, Execute(*statement));
      if (flow != Flow::kNext) return flow;
    }
    return Flow::kNext;
  }

  absl::StatusOr<Flow> Execute(const Statement& statement) {
    switch (statement.kind) {
      case Statement::Kind::kText: RETURN_IF_ERROR(Print(statement.name)); break;
      case Statement::Kind::kOutput: {
        ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.expression));
        RETURN_IF_ERROR(Print(value.is_string() ? value.string() : ToString(value)));
        break;
      }
      case Statement::Kind::kIf: return ExecuteIf(statement);
      case Statement::Kind::kFor: return ExecuteFor(statement);
      case Statement::Kind::kSet: RETURN_IF_ERROR(ExecuteSet(statement)); break;
      case Statement::Kind::kSetField: RETURN_IF_ERROR(ExecuteSetField(statement)); break;
      case Statement::Kind::kMacro:
        scope_->Set(statement.macro->name, Value::Of(statement.macro.get()));
        break;
      case Statement::Kind::kBody: return Execute(statement.body);
      case Statement::Kind::kBreak: return Flow::kBreak;
      case Statement::Kind::kContinue: return Flow::kContinue;
    }
    return Flow::kNext;
  }

  absl::StatusOr<Flow> ExecuteIf(const Statement& statement) {
    for (const auto& [condition, body] : statement.branches) {
      ASSIGN_OR_RETURN(const Value value, Evaluate(*condition));
      if (value.IsTrue()) return Execute(body);
    }
    return Execute(statement.otherwise);
  }

  absl::Status Assign(const std::vector<std::string>& targets, const Value& value) {
    if (targets.size() == 1) {
      scope_->Set(targets[0], value);
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const List parts, Iterate(value));
    if (parts.size() != targets.size()) {
      return Fault(absl::StrCat(parts.size(), " values for ", targets.size(), " names"));
    }
    for (size_t i = 0; i < parts.size(); ++i) scope_->Set(targets[i], parts[i]);
    return absl::OkStatus();
  }

  absl::StatusOr<List> LoopItems(const Statement& statement) {
    ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.expression));
    ASSIGN_OR_RETURN(List items, Iterate(value));
    RETURN_IF_ERROR(Charge(static_cast<int64_t>(items.size())));
    if (statement.condition == nullptr) return items;
    List kept;
    for (Value& item : items) {
      Scope turn{scope_, {}};
      scope_ = &turn;
      absl::Status status = Assign(statement.targets, item);
      Result passes = status.ok() ? Evaluate(*statement.condition) : Result(status);
      scope_ = turn.outer;
      RETURN_IF_ERROR(passes.status());
      if (passes->IsTrue()) kept.push_back(std::move(item));
    }
    return kept;
  }

  absl::StatusOr<Flow> ExecuteFor(const Statement& statement) {
    ASSIGN_OR_RETURN(const List items, LoopItems(statement));
    if (items.empty()) return Execute(statement.otherwise);
    loops_.push_back({items, 0});
    for (; loops_.back().index < static_cast<int64_t>(items.size()); ++loops_.back().index) {
      Scope turn{scope_, {}};
      scope_ = &turn;
      absl::Status status = Assign(statement.targets, items[loops_.back().index]);
      absl::StatusOr<Flow> flow =
          status.ok() ? Execute(statement.body) : absl::StatusOr<Flow>(status);
      scope_ = turn.outer;
      if (!flow.ok()) return flow;
      if (*flow == Flow::kBreak) break;
    }
    loops_.pop_back();
    return Flow::kNext;
  }

  absl::Status ExecuteSet(const Statement& statement) {
    if (statement.expression != nullptr) {
      ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.expression));
      return Assign(statement.targets, value);
    }
    ASSIGN_OR_RETURN(std::string text, Capture(statement.body));
    scope_->Set(statement.targets[0], Value::Of(std::move(text)));
    return absl::OkStatus();
  }

  absl::Status ExecuteSetField(const Statement& statement) {
    const Value* target = scope_->Find(statement.name);
    if (target == nullptr || !target->is_namespace()) {
      return Fault(absl::StrCat("'", statement.name, "' is not a namespace"));
    }
    const Value held = *target;  // computing the value may move the scope
    ASSIGN_OR_RETURN(Value value, Evaluate(*statement.expression));
    RETURN_IF_ERROR(CheckStorable(value));
    Dict& members = held.dict();
    const auto at = std::ranges::find(members, statement.field, &Dict::value_type::first);
    if (at != members.end()) {
      at->second = std::move(value);
    } else {
      members.emplace_back(statement.field, std::move(value));
    }
    return absl::OkStatus();
  }

  // The text that a block prints.
  absl::StatusOr<std::string> Capture(const Block& block) {
    std::string outside = std::exchange(output_, {});
    const absl::StatusOr<Flow> flow = Execute(block);
    std::string text = std::exchange(output_, std::move(outside));
    RETURN_IF_ERROR(flow.status());
    return text;
  }

  // --- expressions ---

  // A namespace within a value could contain itself.
  static absl::Status CheckStorable(const Value& value) {
    return value.is_namespace() ? Fault("a namespace within another value is not supported")
                                : absl::OkStatus();
  }

  Result Evaluate(const Expression& expression) {
    RETURN_IF_ERROR(Charge(1));
    line_ = expression.line;
    ASSIGN_OR_RETURN(Value value, EvaluateKind(expression));
    if (value.depth() > kMaxDepth)
      return Fault(absl::StrCat("values nested deeper than ", kMaxDepth));
    if (value.is_string()) {
      if (value.string().size() > limits_.output_bytes) {
        return Fault(absl::StrCat("more than ", limits_.output_bytes, " bytes of text"));
      }
      RETURN_IF_ERROR(Charge(static_cast<int64_t>(value.string().size()) / kBytesPerStep));
    } else if (value.is_list() && expression.kind != Kind::kVariable) {
      RETURN_IF_ERROR(Charge(static_cast<int64_t>(value.list().size())));
    }
    return value;
  }

  Result EvaluateKind(const Expression& e) {
    switch (e.kind) {
      case Kind::kConstant: return e.value;
      case Kind::kVariable: {
        const Value* value = scope_->Find(e.name);
        return value != nullptr ? *value : Value::MakeUndefined(e.name);
      }
      case Kind::kLoop: return EvaluateLoop(e);
      case Kind::kList:
      case Kind::kTuple: {
        ASSIGN_OR_RETURN(List items, EvaluateAll(e.operands, 0));
        for (const Value& item : items) RETURN_IF_ERROR(CheckStorable(item));
        return Value::Of(std::move(items), e.kind == Kind::kTuple);
      }
      case Kind::kDict: return EvaluateDict(e);
      case Kind::kChain: return EvaluateChain(e);
      case Kind::kBinary: {
        ASSIGN_OR_RETURN(const Value left, Evaluate(*e.operands[0]));
        ASSIGN_OR_RETURN(const Value right, Evaluate(*e.operands[1]));
        return ApplyBinary(e.name, left, right, limits_.output_bytes);
      }
      case Kind::kUnary: {
        ASSIGN_OR_RETURN(const Value operand, Evaluate(*e.operands[0]));
        return e.name == "not" ? Value::Of(!operand.IsTrue()) : ApplySign(e.name, operand);
      }
      case Kind::kCompare: return EvaluateCompare(e);
      case Kind::kIf: {
        ASSIGN_OR_RETURN(const Value condition, Evaluate(*e.operands[1]));
        const ExpressionPtr& chosen = e.operands[condition.IsTrue() ? 0 : 2];
        return chosen == nullptr ? Value() : Evaluate(*chosen);
      }
      case Kind::kAttribute: {
        ASSIGN_OR_RETURN(const Value object, Evaluate(*e.operands[0]));
        return GetAttribute(object, e.name);
      }
      case Kind::kItem: {
        ASSIGN_OR_RETURN(const Value object, Evaluate(*e.operands[0]));
        ASSIGN_OR_RETURN(const Value key, Evaluate(*e.operands[1]));
        return GetItem(object, key);
      }
      case Kind::kSlice: return EvaluateSlice(e);
      case Kind::kCall: return EvaluateCall(e);
      case Kind::kMethod:
      case Kind::kFilter:
      case Kind::kTest: {
        ASSIGN_OR_RETURN(const Value object, Evaluate(*e.operands[0]));
        ASSIGN_OR_RETURN(const Arguments args, EvaluateArguments(e, 1));
        if (e.kind == Kind::kMethod) return CallMethod(e.name, object, args);
        if (e.kind == Kind::kFilter) return ApplyFilter(e.name, object, args);
        ASSIGN_OR_RETURN(const bool passes, ApplyTest(e.name, object, args));
        return Value::Of(passes);
      }
    }
    return Fault("unknown expression");
  }

  absl::StatusOr<List> EvaluateAll(const std::vector<ExpressionPtr>& operands, size_t first) {
    List out;
    for (size_t i = first; i < operands.size(); ++i) {
      ASSIGN_OR_RETURN(Value value, Evaluate(*operands[i]));
      out.push_back(std::move(value));
    }
    return out;
  }

  absl::StatusOr<Arguments> EvaluateArguments(const Expression& e, size_t first) {
    Arguments args;
    ASSIGN_OR_RETURN(args.positional, EvaluateAll(e.operands, first));
    for (const auto& [name, expression] : e.keywords) {
      ASSIGN_OR_RETURN(Value value, Evaluate(*expression));
      args.named.emplace_back(name, std::move(value));
    }
    return args;
  }

  Result EvaluateDict(const Expression& e) {
    Dict members;
    for (size_t i = 0; i < e.operands.size(); i += 2) {
      ASSIGN_OR_RETURN(const Value key, Evaluate(*e.operands[i]));
      ASSIGN_OR_RETURN(Value value, Evaluate(*e.operands[i + 1]));
      if (!key.is_string()) return Fault("a key of a dict is not a string");
      RETURN_IF_ERROR(CheckStorable(value));
      const auto at = std::ranges::find(members, key.string(), &Dict::value_type::first);
      if (at != members.end()) {
        at->second = std::move(value);
      } else {
        members.emplace_back(key.string(), std::move(value));
      }
    }
    return Value::Of(std::move(members));
  }

  Result EvaluateChain(const Expression& e) {
    if (e.name == "and" || e.name == "or") {
      for (size_t i = 0; i + 1 < e.operands.size(); ++i) {
        ASSIGN_OR_RETURN(Value value, Evaluate(*e.operands[i]));
        if (value.IsTrue() == (e.name == "or")) return value;
      }
      return Evaluate(*e.operands.back());
    }
    if (e.name == "~") {
      std::string text;
      for (const ExpressionPtr& operand : e.operands) {
        ASSIGN_OR_RETURN(const Value value, Evaluate(*operand));
        text += ToString(value);
      }
      return Value::Of(std::move(text));
    }
    ASSIGN_OR_RETURN(Value sum, Evaluate(*e.operands[0]));
    for (size_t i = 1; i < e.operands.size(); ++i) {
      ASSIGN_OR_RETURN(const Value next, Evaluate(*e.operands[i]));
      ASSIGN_OR_RETURN(sum, Add(sum, next));
      if (sum.is_string()) RETURN_IF_ERROR(Charge(sum.string().size() / kBytesPerStep));
    }
    return sum;
  }

  Result EvaluateCompare(const Expression& e) {
    ASSIGN_OR_RETURN(Value left, Evaluate(*e.operands[0]));
    for (size_t i = 0; i < e.operators.size(); ++i) {
      ASSIGN_OR_RETURN(Value right, Evaluate(*e.operands[i + 1]));
      ASSIGN_OR_RETURN(const bool holds, Holds(e.operators[i], left, right));
      if (!holds) return Value::Of(false);
      left = std::move(right);
    }
    return Value::Of(true);
  }

  Result EvaluateSlice(const Expression& e) {
    ASSIGN_OR_RETURN(const Value object, Evaluate(*e.operands[0]));
    Value bounds[3];
    for (int i = 0; i < 3; ++i) {
      if (e.operands[i + 1] == nullptr) continue;
      ASSIGN_OR_RETURN(bounds[i], Evaluate(*e.operands[i + 1]));
    }
    return GetSlice(object, bounds[0], bounds[1], bounds[2]);
  }

  Result EvaluateLoop(const Expression& e) {
    if (loops_.empty()) return Value::MakeUndefined("loop");
    const Loop loop = loops_.back();
    const int64_t size = static_cast<int64_t>(loop.items.size());
    if (e.name == "index") return Value::Of(loop.index + 1);
    if (e.name == "index0") return Value::Of(loop.index);
    if (e.name == "revindex") return Value::Of(size - loop.index);
    if (e.name == "revindex0") return Value::Of(size - loop.index - 1);
    if (e.name == "first") return Value::Of(loop.index == 0);
    if (e.name == "last") return Value::Of(loop.index + 1 == size);
    if (e.name == "length") return Value::Of(size);
    if (e.name == "previtem") {
      return loop.index > 0 ? loop.items[loop.index - 1] : Value::MakeUndefined("previtem");
    }
    if (e.name == "nextitem") {
      return loop.index + 1 < size ? loop.items[loop.index + 1] : Value::MakeUndefined("nextitem");
    }
    if (e.name == "cycle" && !e.operands.empty()) {
      return Evaluate(*e.operands[loop.index % static_cast<int64_t>(e.operands.size())]);
    }
    return Fault(absl::StrCat("loop.", e.name, " is not supported"));
  }

  Result EvaluateCall(const Expression& e) {
    ASSIGN_OR_RETURN(Arguments args, EvaluateArguments(e, 0));
    if (const Value* callee = scope_->Find(e.name); callee != nullptr) {
      if (callee->macro() == nullptr) {
        return Fault(absl::StrCat(callee->TypeName(), " cannot be called"));
      }
      return CallMacro(*callee->macro(), args);
    }
    if (e.name == "raise_exception") {
      raised_ = args.positional.empty() ? "" : ToString(args.positional[0]);
      return Fault("raised");
    }
    if (e.name == "namespace" || e.name == "dict") {
      if (!args.positional.empty()) return Fault(absl::StrCat(e.name, " needs named arguments"));
      for (const auto& named : args.named) RETURN_IF_ERROR(CheckStorable(named.second));
      return e.name == "dict" ? Value::Of(Dict(std::move(args.named)))
                              : Value::MakeNamespace(std::move(args.named));
    }
    if (e.name == "range") return MakeRange(args);
    return Fault(absl::StrCat("function '", e.name, "' is not supported"));
  }

  Result MakeRange(const Arguments& args) {
    int64_t bounds[3] = {0, 0, 1};
    const size_t count = args.positional.size();
    if (count < 1 || count > 3) return Fault("range needs one to three integers");
    for (size_t i = 0; i < count; ++i) {
      if (!args.positional[i].AsInt()) return Fault("range needs integers");
      bounds[count == 1 ? 1 : i] = *args.positional[i].AsInt();
    }
    const int64_t step = bounds[2];
    if (step == 0) return Fault("range with step 0");
    List out;
    for (int64_t i = bounds[0]; step > 0 ? i < bounds[1] : i > bounds[1];) {
      if (static_cast<int64_t>(out.size()) >= kMaxRange) {
        return Fault(absl::StrCat("range of more than ", kMaxRange));
      }
      out.push_back(Value::Of(i));
      if (__builtin_add_overflow(i, step, &i)) break;
    }
    return Value::Of(std::move(out));
  }

  Result CallMacro(const MacroStatement& macro, const Arguments& args) {
    if (++macro_depth_ > kMaxMacroDepth) {
      return Fault(absl::StrCat("macros called deeper than ", kMaxMacroDepth));
    }
    if (args.positional.size() > macro.parameters.size()) {
      return Fault(
          absl::StrCat("macro '", macro.name, "' takes ", macro.parameters.size(), " arguments"));
    }
    for (const auto& named : args.named) {
      if (std::ranges::find(macro.parameters, named.first,
                            &std::pair<std::string, ExpressionPtr>::first) ==
          macro.parameters.end()) {
        return Fault(absl::StrCat("macro '", macro.name, "' has no argument '", named.first, "'"));
      }
    }
    // A macro sees the template's variables, not its caller's.
    Scope call{&globals_, {}};
    Scope* const caller = std::exchange(scope_, &call);
    std::vector<Loop> loops = std::exchange(loops_, {});
    absl::Status status;
    for (size_t i = 0; i < macro.parameters.size() && status.ok(); ++i) {
      const auto& [name, otherwise] = macro.parameters[i];
      const Value* given = args.Find(i, name);
      Result value = given != nullptr       ? Result(*given)
                     : otherwise != nullptr ? Evaluate(*otherwise)
                                            : Result(Value::MakeUndefined(name));
      status = value.status();
      if (status.ok()) call.Set(name, *std::move(value));
    }
    absl::StatusOr<std::string> text = status.ok() ? Capture(macro.body) : status;
    scope_ = caller;
    loops_.swap(loops);
    --macro_depth_;
    RETURN_IF_ERROR(text.status());
    return Value::Of(*std::move(text));
  }

  const Limits limits_;
  const int64_t deadline_ns_;

  Scope globals_;
  Scope* scope_;
  std::vector<Loop> loops_;  // innermost last
  std::string output_;
  std::optional<std::string> raised_;
  int64_t steps_ = 0;
  int64_t since_clock_ = 0;
  int macro_depth_ = 0;
  int line_ = 1;  // of what is being evaluated
};

}  // namespace

absl::StatusOr<Outcome> Run(const Block& block, std::vector<std::pair<std::string, Value>> globals,
                            const Limits& limits) {
  return Interpreter(std::move(globals), limits).Run(block);
}

}  // namespace quire::jinja
