// AnswerStreams: the streams of one request's answers, as members of one writer: a stream for each
// answer that is drawn. They enter the engine together (Engine::Submit), share the KV of the prompt
// and the bound of unsent output, and the failure of one ends all.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "server/generate/generate_resources.h"
#include "server/generate/generation_stream.h"
#include "server/generate/request_codec.h"
#include "server/wire/shared_writer.h"

namespace quire {

class AnswerMember;

class AnswerStreams {
 public:
  // The first answer's stream joins the writer at once. `one_reply`: the answers are one
  // GenerateResult, the writer's last message, else frames. A null `trace`: the request is not
  // traced. `resources` and `writer` outlive it.
  AnswerStreams(const GenerateResources* resources, SharedWriter* writer,
                const GenerationStream::Origin& origin, bool one_reply,
                std::unique_ptr<RequestTrace> trace = nullptr);

  const std::shared_ptr<GenerationStream>& first() const;
  // Makes the other streams, and registers all. `enter` takes one of the server's streams for each
  // further answer. Not OK: the caller refuses the first stream, which ends them all.
  absl::Status Open(const ParsedRequest& parsed, const std::function<absl::Status()>& enter);
  // Closes the writer to others and hands the request to the engine. Requires Open. From here on
  // the streams may end at any time, and their owner with them.
  void Send(ParsedRequest parsed);

 private:
  void Add(std::unique_ptr<RequestTrace> trace);

  const GenerateResources* const resources_;
  SharedWriter* const writer_;
  const GenerationStream::Origin origin_;
  const bool one_reply_;
  std::vector<std::shared_ptr<AnswerMember>> members_;
};

}  // namespace quire
