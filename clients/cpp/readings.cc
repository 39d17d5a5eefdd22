// Items arrive as they are done. JSON has them so, with their index; text is in the items' order.
#include "clients/cpp/readings.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "clients/cpp/call/json_output.h"
#include "clients/cpp/call/report.h"

namespace quire::cli {
namespace {

template <typename Request>
Request ItemsOf(const Invocation& line, Terminal& terminal) {
  const ReadFlags& flags = line.read;
  Request request;
  if (line.model) request.set_model(*line.model);
  if (!flags.special_tokens) request.set_add_special_tokens(false);
  if (flags.priority) request.set_priority(*flags.priority);
  if (!flags.token_ids.empty()) {
    auto* const ids = request.add_items()->mutable_token_ids()->mutable_ids();
    ids->Add(flags.token_ids.begin(), flags.token_ids.end());
    return request;
  }
  for (const std::string& text : flags.texts) request.add_items()->set_text(text);
  if (!flags.texts.empty()) return request;
  for (std::string text; std::getline(terminal.in, text);) request.add_items()->set_text(text);
  return request;
}

std::string TextOf(const v1::ScoreResult& result) {
  return absl::StrCat(result.sum(), "\t", result.count());
}

std::string TextOf(const v1::EmbedResult& result) {
  std::string text;
  for (const float x : result.embedding()) absl::StrAppend(&text, text.empty() ? "" : " ", x);
  return text;
}

// Reads all results. `open` starts the call.
template <typename Result, typename Open>
int Print(int num_items, const Open& open, const Invocation& line, Connection& connection,
          Terminal& terminal) {
  std::vector<std::string> lines(static_cast<size_t>(num_items));
  int exit_code = kExitOk;
  const grpc::Status status = connection.Run([&](grpc::ClientContext* context) {
    const std::unique_ptr<grpc::ClientReader<Result>> reader = open(context);
    for (Result result; reader->Read(&result);) {
      if (line.json) PrintJson(result, terminal.out);
      if (result.has_status()) {
        const grpc::Status failed(static_cast<grpc::StatusCode>(result.status().code()),
                                  result.status().message());
        terminal.err << "item " << result.index() << ": ";
        const int code = Report(failed, terminal.err);
        if (exit_code == kExitOk) exit_code = code;
      } else if (result.index() < lines.size()) {
        lines[result.index()] = TextOf(result);
      }
    }
    return reader->Finish();
  });
  if (!status.ok()) return Report(status, terminal.err);
  if (!line.json) {
    for (const std::string& text : lines) terminal.out << text << "\n";
  }
  return exit_code;
}

}  // namespace

int RunScore(const Invocation& line, Connection& connection, Terminal& terminal) {
  auto request = ItemsOf<v1::ScoreRequest>(line, terminal);
  if (line.read.top_logprobs) request.set_top_logprobs(*line.read.top_logprobs);
  const auto open = [&](grpc::ClientContext* context) {
    return connection.inference().Score(context, request);
  };
  return Print<v1::ScoreResult>(request.items_size(), open, line, connection, terminal);
}

int RunEmbed(const Invocation& line, Connection& connection, Terminal& terminal) {
  auto request = ItemsOf<v1::EmbedRequest>(line, terminal);
  request.set_pooling(line.read.pooling == "mean" ? v1::EmbedRequest::POOLING_MEAN
                                                  : v1::EmbedRequest::POOLING_LAST);
  if (!line.read.normalize) request.set_normalize(false);
  const auto open = [&](grpc::ClientContext* context) {
    return connection.inference().Embed(context, request);
  };
  return Print<v1::EmbedResult>(request.items_size(), open, line, connection, terminal);
}

}  // namespace quire::cli
