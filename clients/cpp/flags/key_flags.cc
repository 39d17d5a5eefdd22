// One command for each verb.
#include "clients/cpp/flags/key_flags.h"

#include <string_view>

namespace quire::cli {
namespace {

using flags::Flag;

constexpr std::string_view kGroup = "Flags";

Flag FileRow(KeyFlags* flags, std::string_view help, std::string_view unset) {
  return {.name = "file",
          .group = kGroup,
          .help = help,
          .target = &flags->file,
          .placeholder = "FILE",
          .unset = unset};
}

flags::Command New(KeyFlags* flags) {
  return {.name = "new",
          .help = "Make a key: printed once on stdout, its digest into the file.",
          .flags = {FileRow(flags, "the server's key file; created if it is not there",
                            "print the entry for it"),
                    {.name = "tenant",
                     .group = kGroup,
                     .help = "whose key it is; defined in the file if it is new",
                     .target = &flags->tenant,
                     .placeholder = "NAME"},
                    {.name = "scopes",
                     .group = kGroup,
                     .help = "what it opens: infer, session, admin, metrics",
                     .target = &flags->scopes,
                     .placeholder = "LIST",
                     .unset = "infer,session",
                     .many = true,
                     .commas = true},
                    {.name = "models",
                     .group = kGroup,
                     .help = "served names that its requests may use",
                     .target = &flags->models,
                     .placeholder = "LIST",
                     .unset = "all",
                     .many = true,
                     .commas = true},
                    {.name = "expires-after",
                     .group = kGroup,
                     .help = "time until it is no longer valid, such as 90d",
                     .target = &flags->expires_after_seconds,
                     .unit = flags::Unit::kSeconds,
                     .highest = 1e10,
                     .unset = "never"},
                    {.name = "note",
                     .group = kGroup,
                     .help = "a text for people who read the file",
                     .target = &flags->note,
                     .placeholder = "TEXT",
                     .unset = "none"}}};
}

}  // namespace

flags::Command KeyCommand(KeyFlags* flags) {
  return {.name = "key",
          .help = "Make, list and revoke the keys of a server's key file; calls no server.",
          .flags = {},
          .positionals = {},
          .commands = {New(flags),
                       {.name = "list",
                        .help = "Print the keys of the file, without secrets.",
                        .flags = {FileRow(flags, "the server's key file", "required")}},
                       {.name = "revoke",
                        .help = "Take a key out of the file; the server drops it in a second.",
                        .flags = {FileRow(flags, "the server's key file", "required")},
                        .positionals = {{.name = "id",
                                         .group = {},
                                         .help = "the 16 digits after qk-",
                                         .target = &flags->id,
                                         .placeholder = "ID",
                                         .required = true}}}}};
}

}  // namespace quire::cli
