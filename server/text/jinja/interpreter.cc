// Walks the tree. Every evaluation is charged to a budget; one counter limits how deep evaluations,
// blocks and calls nest, and so the stack.
#include "server/text/jinja/interpreter.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/text/jinja/filters.h"
#include "server/text/jinja/functions.h"
#include "server/text/jinja/macro_call.h"
#include "server/text/jinja/scope.h"
#include "server/text/jinja/value_tests.h"
#include "server/text/jinja/values/access.h"
#include "server/text/jinja/values/callable.h"
#include "server/text/jinja/values/charges.h"
#include "server/text/jinja/values/dict.h"
#include "server/text/jinja/values/fault.h"
#include "server/text/jinja/values/format.h"
#include "server/text/jinja/values/methods.h"
#include "server/text/jinja/values/operators.h"
#include "server/text/jinja/values/value.h"

namespace quire::jinja {
namespace {

constexpr int kMaxMacroDepth = 64;
// Of expressions and blocks within each other, over all calls: each takes less than 1 KiB of stack.
constexpr int kMaxStackDepth = 1200;

enum class Flow : uint8_t { kNext, kBreak, kContinue };

absl::Status TooDeep(const char* what) {
  return Fault(what, " called deeper than ", kMaxMacroDepth);
}

Value MacroValue(const MacroStatement& macro, const std::shared_ptr<Scope>& scope) {
  auto callable = std::make_shared<Callable>();
  callable->name = macro.name;
  callable->macro = &macro;
  callable->scope = scope;
  return Value::Of(std::shared_ptr<const Callable>(std::move(callable)));
}

// Counts up while it lives.
class Deeper {
 public:
  explicit Deeper(int* depth) : depth_(depth) { ++*depth_; }
  ~Deeper() { --*depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  int* const depth_;
};

class Interpreter {
 public:
  explicit Interpreter(RunInput input) : budget_(input.limits), now_(input.now) {
    auto environment = std::make_shared<Scope>();
    environment->variables = EnvironmentFunctions();
    scope_ = std::make_shared<Scope>();
    scope_->outer = std::move(environment);
    scope_->variables = std::move(input.variables);
  }

  absl::StatusOr<Outcome> Run(const Block& block) {
    const absl::StatusOr<Flow> flow = Execute(block);
    if (flow.ok()) return Outcome{std::move(output_), false};
    if (absl::IsAborted(flow.status())) return Outcome{std::string(flow.status().message()), true};
    return Fault("line ", place_.line, ", column ", place_.column, ": ", flow.status().message());
  }

 private:
  using Kind = Expression::Kind;
  using Result = absl::StatusOr<Value>;

  absl::Status Print(std::string_view text) {
    RETURN_IF_ERROR(budget_.CheckText(output_.size() + text.size()));
    output_ += text;
    return budget_.ChargeText(text.size());
  }
  absl::Status Print(const Value& value) {
    if (value.is_string()) return Print(value.string());
    RETURN_IF_ERROR(budget_.Charge(value.weight()));
    return Print(ToString(value));
  }
  absl::Status CheckStack() const {
    return depth_ > kMaxStackDepth ? Fault("blocks, expressions and calls are nested too deep")
                                   : absl::OkStatus();
  }

  // --- statements ---

  absl::StatusOr<Flow> Execute(const Block& block) {
    const Deeper deeper(&depth_);
    RETURN_IF_ERROR(CheckStack());
    for (const auto& statement : block) {
      place_ = statement->place;
      RETURN_IF_ERROR(budget_.Charge(1));
      ASSIGN_OR_RETURN(const Flow flow, Execute(*statement));
      if (flow != Flow::kNext) return flow;
    }
    return Flow::kNext;
  }

  // With variables of its own.
  absl::StatusOr<Flow> ExecuteInner(const Block& block) {
    const std::shared_ptr<Scope> outer = Enter(scope_);
    absl::StatusOr<Flow> flow = Execute(block);
    scope_ = outer;
    return flow;
  }

  // Begins a scope within `around` and returns the one before, which the caller puts back.
  std::shared_ptr<Scope> Enter(std::shared_ptr<Scope> around) {
    auto inner = std::make_shared<Scope>();
    inner->outer = std::move(around);
    return std::exchange(scope_, std::move(inner));
  }

  absl::StatusOr<Flow> Execute(const Statement& statement) {
    switch (statement.kind) {
      case Statement::Kind::kText: RETURN_IF_ERROR(Print(statement.text)); break;
      case Statement::Kind::kOutput: {
        ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.expression));
        RETURN_IF_ERROR(Print(value));
        break;
      }
      case Statement::Kind::kIf: return ExecuteIf(statement);
      case Statement::Kind::kFor: return ExecuteFor(statement);
      case Statement::Kind::kSet: RETURN_IF_ERROR(ExecuteSet(statement)); break;
      case Statement::Kind::kMacro:
        scope_->Set(statement.macro->name, MacroValue(*statement.macro, scope_));
        break;
      case Statement::Kind::kCall: {
        const Value caller = MacroValue(*statement.macro, scope_);
        ASSIGN_OR_RETURN(const Value text, EvaluateCall(*statement.expression, &caller));
        RETURN_IF_ERROR(Print(text));
        break;
      }
      case Statement::Kind::kFilter: {
        ASSIGN_OR_RETURN(const Value text, CaptureFiltered(statement));
        RETURN_IF_ERROR(Print(text));
        break;
      }
      case Statement::Kind::kWith: return ExecuteWith(statement);
      case Statement::Kind::kBody: return ExecuteInner(statement.body);
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

  absl::Status Assign(const Target& target, const Value& value) {
    if (!target.field.empty()) return AssignField(target, value);
    if (target.parts.empty()) {
      scope_->Set(target.name, value);
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const List parts, ChargedItems(value, &budget_));
    if (parts.size() != target.parts.size()) {
      return Fault(parts.size(), " values for ", target.parts.size(), " names");
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      RETURN_IF_ERROR(budget_.Charge(1));
      RETURN_IF_ERROR(Assign(target.parts[i], parts[i]));
    }
    return absl::OkStatus();
  }

  absl::Status AssignField(const Target& target, const Value& value) {
    const Value* holder = scope_->Find(target.name);
    if (holder == nullptr || !holder->is_namespace()) {
      return Fault("'", target.name, "' is not a namespace");
    }
    RETURN_IF_ERROR(CheckStorable(value));
    holder->dict().Set(target.field, value);
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Passes(const Statement& statement, const Value& item,
                              const std::shared_ptr<Scope>& around) {
    const std::shared_ptr<Scope> outer = Enter(around);
    const absl::Status status = Assign(statement.target, item);
    const Result passes = status.ok() ? Evaluate(*statement.condition) : Result(status);
    scope_ = outer;
    RETURN_IF_ERROR(passes.status());
    return passes->IsTrue();
  }

  // Gives `loop` the items that it visits. It may be asked for more of them only while it runs.
  absl::Status SetItems(const Statement& statement, const Value& value, Loop* loop) {
    ASSIGN_OR_RETURN(List items, ChargedItems(value, &budget_));
    if (statement.condition == nullptr) {
      loop->items = std::move(items);
      return absl::OkStatus();
    }
    loop->read_next = [this, loop, &statement, around = scope_, items = std::move(items),
                       next = size_t{0}]() mutable -> absl::StatusOr<bool> {
      while (next < items.size()) {
        const Value item = items[next++];
        ASSIGN_OR_RETURN(const bool passes, Passes(statement, item, around));
        if (!passes) continue;
        loop->items.push_back(item);
        return true;
      }
      return false;
    };
    return absl::OkStatus();
  }

  absl::StatusOr<Flow> ExecuteFor(const Statement& statement) {
    ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.expression));
    return RunLoop(statement, value, /*loop_depth=*/1);
  }

  absl::StatusOr<Flow> RunLoop(const Statement& statement, const Value& value, int loop_depth) {
    auto loop = std::make_shared<Loop>();
    RETURN_IF_ERROR(SetItems(statement, value, loop.get()));
    loop->depth = loop_depth;
    loop->recursive = statement.recursive ? &statement : nullptr;
    loop->scope = scope_;
    auto callable = std::make_shared<Callable>();
    callable->name = "loop";
    callable->loop = loop;
    callable->depth = value.depth();
    const Value shown = Value::Of(std::shared_ptr<const Callable>(std::move(callable)));
    const absl::StatusOr<bool> ended = TakeTurns(statement, shown, loop.get());
    loop->read_next = nullptr;
    RETURN_IF_ERROR(ended.status());
    return *ended ? Flow::kNext : ExecuteInner(statement.otherwise);
  }

  // Whether a turn came to its end: else jinja2 takes the else of the loop.
  absl::StatusOr<bool> TakeTurns(const Statement& statement, const Value& shown, Loop* loop) {
    bool ended = false;
    for (;; ++loop->index) {
      ASSIGN_OR_RETURN(const int64_t known, ReadItems(loop, loop->index + 1));
      if (loop->index >= known) return ended;
      const std::shared_ptr<Scope> outer = Enter(scope_);
      scope_->Set("loop", shown);
      const absl::Status status = Assign(statement.target, loop->items[loop->index]);
      const absl::StatusOr<Flow> flow =
          status.ok() ? Execute(statement.body) : absl::StatusOr<Flow>(status);
      scope_ = outer;
      RETURN_IF_ERROR(flow.status());
      if (*flow == Flow::kBreak) return ended;
      ended = ended || *flow == Flow::kNext;
    }
  }

  absl::Status ExecuteSet(const Statement& statement) {
    const bool captures = statement.expression == nullptr;
    ASSIGN_OR_RETURN(const Value value,
                     captures ? CaptureFiltered(statement) : Evaluate(*statement.expression));
    return Assign(statement.target, value);
  }

  absl::StatusOr<Flow> ExecuteWith(const Statement& statement) {
    List values;
    for (const auto& assignment : statement.assignments) {
      ASSIGN_OR_RETURN(Value value, Evaluate(*assignment.second));
      values.push_back(std::move(value));
    }
    const std::shared_ptr<Scope> outer = Enter(scope_);
    absl::Status status;
    for (size_t i = 0; i < values.size() && status.ok(); ++i) {
      status = Assign(statement.assignments[i].first, values[i]);
    }
    absl::StatusOr<Flow> flow = status.ok() ? Execute(statement.body) : status;
    scope_ = outer;
    return flow;
  }

  // The text that a block prints.
  absl::StatusOr<std::string> Capture(const Block& block) {
    std::string outside = std::exchange(output_, {});
    const absl::StatusOr<Flow> flow = ExecuteInner(block);
    std::string text = std::exchange(output_, std::move(outside));
    RETURN_IF_ERROR(flow.status());
    return text;
  }
  Result CaptureFiltered(const Statement& statement) {
    ASSIGN_OR_RETURN(std::string text, Capture(statement.body));
    Value value = Value::Of(std::move(text));
    if (statement.filter == nullptr) return value;
    const Value* const before = std::exchange(filter_input_, &value);
    Result filtered = Evaluate(*statement.filter);
    filter_input_ = before;
    return filtered;
  }

  // --- expressions ---

  Result Evaluate(const Expression& expression) {
    const Deeper deeper(&depth_);
    RETURN_IF_ERROR(CheckStack());
    RETURN_IF_ERROR(budget_.Charge(1));
    place_ = expression.place;
    ASSIGN_OR_RETURN(Value value, EvaluateKind(expression));
    if (expression.kind == Kind::kVariable || expression.kind == Kind::kConstant) return value;
    if (expression.kind == Kind::kAttribute && value.is_string()) return value;
    RETURN_IF_ERROR(ChargeResult(value, &budget_));
    return value;
  }

  Result EvaluateKind(const Expression& e) {
    switch (e.kind) {
      case Kind::kConstant: return e.value;
      case Kind::kVariable: {
        const Value* value = scope_->Find(e.name);
        return value != nullptr ? *value : Value::MakeUndefined(e.name);
      }
      case Kind::kList:
      case Kind::kTuple: {
        ASSIGN_OR_RETURN(List items, EvaluateAll(e.operands, 0));
        return Value::Of(std::move(items),
                         e.kind == Kind::kTuple ? Value::Order::kTuple : Value::Order::kList);
      }
      case Kind::kDict: return EvaluateDict(e);
      case Kind::kChain: return EvaluateChain(e);
      case Kind::kBinary: {
        ASSIGN_OR_RETURN(const Value left, Evaluate(*e.operands[0]));
        ASSIGN_OR_RETURN(const Value right, Evaluate(*e.operands[1]));
        return ApplyBinary(e.name, left, right, &budget_);
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
        place_ = e.place;
        return GetAttribute(object, e.name);
      }
      case Kind::kItem: {
        ASSIGN_OR_RETURN(const Value object, Evaluate(*e.operands[0]));
        ASSIGN_OR_RETURN(const Value key, Evaluate(*e.operands[1]));
        if (object.is_string()) RETURN_IF_ERROR(budget_.ChargeText(object.string().size()));
        place_ = e.place;
        RETURN_IF_ERROR(budget_.Charge(key.weight() - 1));  // to hash it
        return GetItem(object, key);
      }
      case Kind::kSlice: return EvaluateSlice(e);
      case Kind::kCall: return EvaluateCall(e, nullptr);
      case Kind::kFilter: return EvaluateFilter(e);
      case Kind::kTest: {
        ASSIGN_OR_RETURN(const Value object, Evaluate(*e.operands[0]));
        ASSIGN_OR_RETURN(const Arguments args, EvaluateArguments(e));
        place_ = e.place;
        ASSIGN_OR_RETURN(const bool passes, ApplyTest(e.name, object, args, &budget_));
        return Value::Of(passes);
      }
    }
    return Fault("unknown expression");
  }

  Result EvaluateFilter(const Expression& e) {
    Value object = e.operands[0] == nullptr ? *filter_input_ : Value();
    if (e.operands[0] != nullptr) {
      ASSIGN_OR_RETURN(object, Evaluate(*e.operands[0]));
    }
    ASSIGN_OR_RETURN(const Arguments args, EvaluateArguments(e));
    place_ = e.place;
    return ApplyFilter(e.name, object, args, &budget_);
  }

  absl::StatusOr<List> EvaluateAll(const std::vector<ExpressionPtr>& operands, size_t first) {
    List out;
    for (size_t i = first; i < operands.size(); ++i) {
      ASSIGN_OR_RETURN(Value value, Evaluate(*operands[i]));
      out.push_back(std::move(value));
    }
    return out;
  }

  // Of a call, filter or test: all operands but the first.
  absl::StatusOr<Arguments> EvaluateArguments(const Expression& e) {
    Arguments args;
    ASSIGN_OR_RETURN(args.positional, EvaluateAll(e.operands, 1));
    for (const auto& [name, expression] : e.keywords) {
      ASSIGN_OR_RETURN(Value value, Evaluate(*expression));
      args.named.emplace_back(name, std::move(value));
    }
    if (e.more_arguments != nullptr) {
      ASSIGN_OR_RETURN(const Value more, Evaluate(*e.more_arguments));
      ASSIGN_OR_RETURN(const List items, ChargedItems(more, &budget_));
      args.positional.insert(args.positional.end(), items.begin(), items.end());
    }
    if (e.more_keywords != nullptr) {
      ASSIGN_OR_RETURN(const Value more, Evaluate(*e.more_keywords));
      if (!more.is_dict()) return Fault("** needs a dict");
      RETURN_IF_ERROR(budget_.ChargeItems(kItemsOfPair * more.dict().size()));
      for (const auto& [key, value] : more.dict()) {
        if (!key.is_string()) return Fault("** needs names as keys");
        args.named.emplace_back(key.string(), value);
      }
    }
    return args;
  }

  Result EvaluateDict(const Expression& e) {
    Dict members;
    for (size_t i = 0; i < e.operands.size(); i += 2) {
      ASSIGN_OR_RETURN(Value key, Evaluate(*e.operands[i]));
      ASSIGN_OR_RETURN(Value value, Evaluate(*e.operands[i + 1]));
      RETURN_IF_ERROR(budget_.Charge(key.weight() - 1));  // to hash it
      const std::string type = key.TypeName();
      if (!members.Set(std::move(key), std::move(value))) {
        return Fault(type, " cannot be a key of a dict");
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
        if (!value.is_string()) RETURN_IF_ERROR(budget_.Charge(value.weight()));
        text += ToString(value);
        RETURN_IF_ERROR(budget_.CheckText(text.size()));
      }
      return Value::Of(std::move(text));
    }
    ASSIGN_OR_RETURN(Value sum, Evaluate(*e.operands[0]));
    for (size_t i = 1; i < e.operands.size(); ++i) {
      ASSIGN_OR_RETURN(const Value next, Evaluate(*e.operands[i]));
      place_ = e.place;
      ASSIGN_OR_RETURN(sum, Add(sum, next, &budget_));
    }
    return sum;
  }

  Result EvaluateCompare(const Expression& e) {
    ASSIGN_OR_RETURN(Value left, Evaluate(*e.operands[0]));
    for (size_t i = 0; i < e.operators.size(); ++i) {
      ASSIGN_OR_RETURN(Value right, Evaluate(*e.operands[i + 1]));
      place_ = e.place;
      ASSIGN_OR_RETURN(const bool holds, Holds(e.operators[i], left, right, &budget_));
      if (!holds) return Value::Of(false);
      left = std::move(right);
    }
    return Value::Of(true);
  }

  Result EvaluateSlice(const Expression& e) {
    ASSIGN_OR_RETURN(const Value object, Evaluate(*e.operands[0]));
    Value bounds[3];
    for (int i = 0; i < 3; ++i) {
      bounds[i] = Value::MakeNone();
      if (e.operands[i + 1] == nullptr) continue;
      ASSIGN_OR_RETURN(bounds[i], Evaluate(*e.operands[i + 1]));
    }
    place_ = e.place;
    if (object.is_string()) RETURN_IF_ERROR(budget_.ChargeText(object.string().size()));
    return GetSlice(object, bounds[0], bounds[1], bounds[2]);
  }

  // --- calls ---

  // `caller` is of a call block, else null.
  Result EvaluateCall(const Expression& e, const Value* caller) {
    ASSIGN_OR_RETURN(const Value callee, Evaluate(*e.operands[0]));
    ASSIGN_OR_RETURN(Arguments args, EvaluateArguments(e));
    if (caller != nullptr) args.named.emplace_back("caller", *caller);
    place_ = e.place;
    const Callable* const callable = callee.callable();
    if (callable == nullptr) return Fault(callee.TypeName(), " cannot be called");
    if (callable->macro != nullptr) return CallMacro(*callable, std::move(args));
    if (callable->loop != nullptr) return CallLoop(*callable->loop, args);
    if (callable->object.is_undefined()) {
      RETURN_IF_ERROR(ChargeArguments(args, &budget_));
      return CallFunction(callable->name, args, now_);
    }
    return CallMethod(callable->name, callable->object, args, &budget_);
  }

  Result CallLoop(const Loop& loop, const Arguments& args) {
    const std::shared_ptr<Scope> around = loop.scope.lock();
    if (loop.recursive == nullptr || around == nullptr) {
      return Fault("only a loop that says 'recursive' can be called, and only while it runs");
    }
    if (args.positional.size() != 1 || !args.named.empty()) return Fault("loop needs one value");
    const Deeper deeper(&calls_);
    if (calls_ > kMaxMacroDepth) return TooDeep("loops");
    const std::shared_ptr<Scope> caller = std::exchange(scope_, around);
    std::string outside = std::exchange(output_, {});
    const absl::StatusOr<Flow> flow = RunLoop(*loop.recursive, args.positional[0], loop.depth + 1);
    std::string text = std::exchange(output_, std::move(outside));
    scope_ = caller;
    RETURN_IF_ERROR(flow.status());
    return Value::Of(std::move(text));
  }

  Result CallMacro(const Callable& callable, Arguments args) {
    const Deeper deeper(&calls_);
    if (calls_ > kMaxMacroDepth) return TooDeep("macros");
    const std::shared_ptr<Scope> defined_in = callable.scope.lock();
    if (defined_in == nullptr) {
      return Fault("macro '", callable.name, "' is called outside of its block");
    }
    // Each parameter is looked for among the named arguments, and among those that are set.
    const size_t parameters = callable.macro->parameters.size();
    RETURN_IF_ERROR(budget_.ChargeItems(parameters * (parameters + args.named.size())));
    const std::shared_ptr<Scope> caller = Enter(defined_in);
    const absl::Status bound = BindArguments(*callable.macro, std::move(args), scope_.get(),
                                             [this](const Expression& e) { return Evaluate(e); });
    absl::StatusOr<std::string> text = bound.ok() ? Capture(callable.macro->body) : bound;
    scope_ = caller;
    RETURN_IF_ERROR(text.status());
    return Value::Of(*std::move(text));
  }

  Budget budget_;
  const absl::Time now_;

  std::shared_ptr<Scope> scope_;
  std::string output_;
  const Value* filter_input_ = nullptr;  // the text of the filter block or set block being filtered
  int depth_ = 0;                        // of blocks and expressions
  int calls_ = 0;                        // of macros and recursive loops within each other
  Place place_;                          // of what is being evaluated
};

}  // namespace

absl::StatusOr<Outcome> Run(const Block& block, RunInput input) {
  return Interpreter(std::move(input)).Run(block);
}

}  // namespace quire::jinja
