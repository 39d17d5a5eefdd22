// Lines are read as their calls need them, so a file may be longer than memory. The server reads
// each line and writes its result (docs/jobs.md).
#include "clients/cpp/batch.h"

#include <cstdint>
#include <string>
#include <utility>

#include "clients/cpp/call/input_file.h"
#include "clients/cpp/call/report.h"

namespace quire::cli {
namespace {

// Of one call: the server takes 1,024 lines, and 4 MiB.
constexpr int kMaxLines = 1024;
constexpr size_t kEnoughBytes = 2 << 20;

// A server from before GenerateBatch had lines does not see them, and finds no request in the call.
grpc::Status Explained(const grpc::Status& status) {
  const bool is_older = status.error_code() == grpc::StatusCode::INVALID_ARGUMENT &&
                        status.error_message().starts_with("requests:");
  if (!is_older) return status;
  return {grpc::StatusCode::UNIMPLEMENTED,
          "this server is older than this program: its GenerateBatch takes no lines of files; "
          "update the server"};
}

class Batch {
 public:
  Batch(std::istream& in, const Invocation& line, Connection& connection, Terminal& terminal)
      : in_(in), connection_(connection), terminal_(terminal) {
    if (line.model) request_.set_model(*line.model);
  }

  int Run() {
    while (Fill()) {
      const grpc::Status status = Call();
      if (!status.ok()) return Report(Explained(status), terminal_.err);
    }
    if (failed_ > 0) {
      terminal_.err << "quire: " << failed_ << " of " << answered_ << " lines failed\n";
    }
    return exit_code_;
  }

 private:
  // Reads lines for a call; false if there are none.
  bool Fill() {
    request_.clear_lines();
    size_t bytes = 0;
    while (request_.lines_size() < kMaxLines && NextText()) {
      if (text_.find_first_not_of(" \t\r") == std::string::npos) continue;
      if (request_.lines_size() > 0 && bytes + text_.size() > kEnoughBytes) {
        unread_ = true;
        break;
      }
      bytes += text_.size();
      v1::RequestLine& line = *request_.add_lines();
      line.set_number(number_);
      line.set_text(text_);
    }
    return request_.lines_size() > 0;
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
        Print(item);
        if (!terminal_.out) context->TryCancel();
      }
      return reader->Finish();
    });
  }

  void Print(const v1::GenerateBatchResult& item) {
    ++answered_;
    if (item.has_status() && failed_++ == 0) {
      exit_code_ = kExitStatusBase + static_cast<int>(item.status().code());
    }
    terminal_.out << item.line() << "\n" << std::flush;
  }

  std::istream& in_;
  Connection& connection_;
  Terminal& terminal_;
  v1::GenerateBatchRequest request_;
  std::string text_;     // the last line that was read
  bool unread_ = false;  // it belongs to the next call
  uint32_t number_ = 0;  // of the last line
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
