// Lines are read as their calls need them, so a file may be longer than memory. Results have the
// form of a job's (docs/jobs.md).
#include "clients/cpp/batch.h"

#include <google/protobuf/util/json_util.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "clients/cpp/call/input_file.h"
#include "clients/cpp/call/json_output.h"
#include "clients/cpp/call/report.h"

namespace quire::cli {
namespace {

using Json = nlohmann::json;

// Of one call: the server takes 1,024 requests, and 4 MiB.
constexpr int kMaxRequests = 1024;
constexpr size_t kEnoughBytes = 2 << 20;

// A line that waits for its result.
struct Line {
  int64_t number;      // in the file, from 1
  std::string custom;  // its custom_id as JSON
};

// The line's mistake; empty: it has none.
std::string ReadLine(const std::string& text, Line* line, v1::GenerateRequest* request) {
  const Json object = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return "is no JSON object";
  const auto id = object.find("custom_id");
  if (id == object.end() || !id->is_string()) return "has no text custom_id";
  line->custom = id->dump();
  const auto member = object.find("request");
  if (member == object.end()) return "has no request";
  if (object.size() > 2) return "has other members than custom_id and request";
  const auto read = google::protobuf::util::JsonStringToMessage(member->dump(), request, {});
  return read.ok() ? "" : absl::StrCat("request: ", std::string(read.message()));
}

class Batch {
 public:
  Batch(std::istream& in, const Invocation& line, Connection& connection, Terminal& terminal)
      : in_(in), model_(line.model), connection_(connection), terminal_(terminal) {}

  int Run() {
    while (Fill()) {
      const grpc::Status status = Call();
      if (!status.ok()) return Report(status, terminal_.err);
    }
    if (failed_ > 0) {
      terminal_.err << "quire: " << failed_ << " of " << answered_ << " lines failed\n";
    }
    return exit_code_;
  }

 private:
  // Reads lines for a call; false if there are none.
  bool Fill() {
    lines_.clear();
    request_.Clear();
    size_t bytes = 0;
    while (request_.requests_size() < kMaxRequests && NextText()) {
      if (!lines_.empty() && bytes + text_.size() > kEnoughBytes) {
        unread_ = true;
        break;
      }
      Line line{.number = number_, .custom = "\"\""};
      if (text_.find_first_not_of(" \t\r") == std::string::npos) continue;
      v1::GenerateRequest request;
      const std::string fault = ReadLine(text_, &line, &request);
      if (!fault.empty()) {
        v1::ItemStatus status;
        status.set_code(grpc::StatusCode::INVALID_ARGUMENT);
        status.set_message("the line " + fault);
        status.set_field("line");
        Fail(line, status);
        continue;
      }
      if (model_ && !request.has_model()) request.set_model(*model_);
      bytes += text_.size();
      *request_.add_requests() = std::move(request);
      lines_.push_back(line);
    }
    return !lines_.empty();
  }

  // Reads a line, or gives the one again that was left for the next call; false at the end.
  bool NextText() {
    if (std::exchange(unread_, false)) return true;
    if (!std::getline(in_, text_)) return false;
    ++number_;
    return true;
  }

  grpc::Status Call() {
    return connection_.Run([this](grpc::ClientContext* context) {
      const auto reader = connection_.inference().GenerateBatch(context, request_);
      for (v1::GenerateBatchResult item; reader->Read(&item);) {
        if (item.index() >= lines_.size()) continue;
        const Line& line = lines_[item.index()];
        if (item.has_status()) {
          Fail(line, item.status());
        } else {
          Print(line, "result", item.result());
        }
        if (!terminal_.out) context->TryCancel();
      }
      return reader->Finish();
    });
  }

  void Fail(const Line& line, const v1::ItemStatus& status) {
    if (failed_++ == 0) exit_code_ = kExitStatusBase + static_cast<int>(status.code());
    Print(line, "status", status);
  }
  void Print(const Line& line, const char* what, const google::protobuf::Message& message) {
    ++answered_;
    terminal_.out << "{\"custom_id\":" << line.custom << ",\"line\":" << line.number << ",\""
                  << what << "\":" << ToJson(message) << "}\n"
                  << std::flush;
  }

  std::istream& in_;
  const std::optional<std::string> model_;
  Connection& connection_;
  Terminal& terminal_;
  v1::GenerateBatchRequest request_;
  std::vector<Line> lines_;  // of request_
  std::string text_;         // the last line that was read
  bool unread_ = false;      // it belongs to the next call
  int64_t number_ = 0;       // of the last line
  int64_t answered_ = 0, failed_ = 0;
  int exit_code_ = kExitOk;
};

}  // namespace

int RunBatch(const Invocation& line, Connection& connection, Terminal& terminal) {
  InputFile file;
  std::istream* const in = file.Open(line.batch_file, terminal);
  if (in == nullptr) return kExitLocal;
  return Batch(*in, line, connection, terminal).Run();
}

}  // namespace quire::cli
