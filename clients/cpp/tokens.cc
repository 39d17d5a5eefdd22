// Ids are printed separated by spaces, and read separated by spaces, commas or line ends.
#include "clients/cpp/tokens.h"

#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "clients/cpp/call/chat_request.h"
#include "clients/cpp/call/generate_request.h"
#include "clients/cpp/call/json_output.h"
#include "clients/cpp/call/report.h"

namespace quire::cli {
namespace {

void PrintTokens(const v1::TokenizeResponse& response, bool offsets, std::ostream& out) {
  for (int i = 0; i < response.token_ids_size(); ++i) {
    if (offsets && i < response.begin_size() && i < response.end_size()) {
      out << response.token_ids(i) << " " << response.begin(i) << " " << response.end(i) << "\n";
    } else {
      out << (i == 0 ? "" : " ") << response.token_ids(i);
    }
  }
  if (!offsets) out << "\n";
}

}  // namespace

std::string ReadText(const std::optional<std::string>& argument, std::istream& in) {
  if (argument && *argument != "-") return *argument;
  std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

int RunTokenize(const Invocation& line, Connection& connection, Terminal& terminal) {
  const PromptFlags& prompt = line.tokenize.prompt;
  const absl::StatusOr<v1::ChatMessages> chat = ReadChat(prompt);
  if (!chat.ok()) return ReportMistake(chat.status(), terminal.err);
  const std::string text = TakesText(prompt) ? ReadText(prompt.text, terminal.in) : "";
  const v1::TokenizeRequest request = ToRequest(line.tokenize, line.model, *chat, text);
  v1::TokenizeResponse response;
  const grpc::Status status = connection.Run([&](grpc::ClientContext* context) {
    return connection.inference().Tokenize(context, request, &response);
  });
  if (!status.ok()) return Report(status, terminal.err);
  if (line.json) {
    PrintJson(response, terminal.out);
  } else {
    PrintTokens(response, line.tokenize.offsets, terminal.out);
  }
  return kExitOk;
}

int RunDetokenize(const Invocation& line, Connection& connection, Terminal& terminal) {
  v1::DetokenizeRequest request;
  if (line.model) request.set_model(*line.model);
  if (line.detokenize.keep_special_tokens) request.set_skip_special_tokens(false);
  for (const uint32_t id : line.detokenize.token_ids) request.add_token_ids(id);
  if (line.detokenize.token_ids.empty()) {
    const std::string text = ReadText(std::nullopt, terminal.in);
    for (const std::string& word : std::vector<std::string>(
             absl::StrSplit(text, absl::ByAnyChar(", \t\r\n"), absl::SkipEmpty()))) {
      uint32_t id = 0;
      if (!absl::SimpleAtoi(word, &id)) {
        return ReportLocal("not a token id on stdin: " + word, terminal.err);
      }
      request.add_token_ids(id);
    }
  }
  v1::DetokenizeResponse response;
  const grpc::Status status = connection.Run([&](grpc::ClientContext* context) {
    return connection.inference().Detokenize(context, request, &response);
  });
  if (!status.ok()) return Report(status, terminal.err);
  if (line.json) {
    PrintJson(response, terminal.out);
  } else {
    terminal.out << response.text() << "\n";
  }
  return kExitOk;
}

}  // namespace quire::cli
