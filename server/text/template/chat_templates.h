// ChatTemplates: the chat templates of a checkpoint by name, and which of them a chat takes.
// Immutable; any thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/text/template/chat_template.h"

namespace quire {

class ChatTemplates {
 public:
  ChatTemplates() = default;  // none

  // One template, named "default".
  static absl::StatusOr<ChatTemplates> Of(const std::string& source, TemplateVariables constants);
  // Reads DIR/chat_template.jinja and DIR/additional_chat_templates/NAME.jinja, or else
  // chat_template of DIR/tokenizer_config.json, or else of DIR/chat_template.json. A template that
  // is refused is kept with the reason.
  static ChatTemplates Load(const std::string& dir);
  // The template in `file`, with the special tokens of DIR. INVALID_ARGUMENT or NOT_FOUND with the
  // file's name and the place in it.
  static absl::StatusOr<ChatTemplates> LoadFile(const std::string& file, const std::string& dir);

  // LoadFile if a file is named, else Load.
  static absl::StatusOr<ChatTemplates> LoadEither(const std::string& file, const std::string& dir);

  bool empty() const { return templates_.empty(); }
  // The template of that name; without a name "tool_use" for a chat with tools if there is one,
  // else "default". NOT_FOUND for a name that the model does not have, FAILED_PRECONDITION without
  // a template or for one that was refused, with the reason.
  absl::StatusOr<const ChatTemplate*> Choose(const std::string& name, bool has_tools) const;
  struct Origin {
    std::string name;
    std::string file;    // empty: of no file
    std::string reason;  // of a refusal, with the file; empty: usable
  };
  // Where each template came from, by name.
  std::vector<Origin> List() const;
  // Whether the source of a usable template has this text.
  bool Mention(std::string_view text) const;
  // OK if every template was parsed and the default one renders a chat of one message.
  absl::Status Check() const;

 private:
  struct Entry {
    std::shared_ptr<const ChatTemplate> parsed;  // null: refused
    std::string file, reason;
    std::string source;
  };
  void Add(const std::string& name, const std::string& source, const std::string& path,
           const TemplateVariables& constants);

  std::map<std::string, Entry> templates_;
};

}  // namespace quire
