// AnswerPrinter: sends a request and prints its answer while it arrives.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "clients/cpp/call/connection.h"
#include "clients/cpp/call/terminal.h"
#include "clients/cpp/flags/invocation.h"

namespace quire::cli {

// An answer, from which a conversation continues.
struct Answer {
  std::string text, reasoning;
  std::vector<v1::ToolCallDelta> calls;  // whole
  v1::Finished finished;
};

class AnswerPrinter {
 public:
  // All outlive it.
  AnswerPrinter(const Invocation& line, Connection& connection, Terminal& terminal)
      : line_(line), connection_(connection), terminal_(terminal) {}

  // Frames go to stdout as they come, the speed, when asked for, to stderr. Returns the exit code;
  // `answer` is whole when that is kExitOk.
  int Print(const v1::GenerateRequest& request, Answer* answer);
  // The same of a request that was sent before.
  int PrintRest(const v1::AttachRequest& request, Answer* answer);

 private:
  using Frames = std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>;
  using Open = std::function<Frames(grpc::ClientContext*)>;
  // `open` begins the call. Goes on with another call if the connection is lost and the request has
  // detach_seconds.
  int PrintStream(const Open& open, Answer* answer);
  int PrintWhole(const v1::GenerateRequest& request, Answer* answer);

  const Invocation& line_;
  Connection& connection_;
  Terminal& terminal_;
};

}  // namespace quire::cli
