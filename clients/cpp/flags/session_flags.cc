// One command for each verb.
#include "clients/cpp/flags/session_flags.h"

#include <utility>

namespace quire::cli {
namespace {

using flags::Flag;

constexpr std::string_view kOptions = "Options of the session";
constexpr std::string_view kUnset = "the server's, or unchanged";

Flag NameRow(SessionFlags* flags) {
  return {.name = "name",
          .group = {},
          .help = "the session's name",
          .target = &flags->name,
          .placeholder = "NAME",
          .required = true};
}

Flag ChosenNameRow(std::optional<std::string>* name) {
  return {.name = "new name",
          .group = {},
          .help = "its name; none: the server chooses one",
          .target = name,
          .placeholder = "NEW"};
}

Flag FileRow(SessionFlags* flags, std::string_view help) {
  return {.name = "file",
          .group = {},
          .help = help,
          .target = &flags->file,
          .placeholder = "FILE",
          .required = true};
}

std::vector<Flag> OptionRows(SessionFlags* flags) {
  return {
      {.name = "ttl",
       .group = kOptions,
       .help = "close the session after this time without use",
       .target = &flags->ttl_seconds,
       .unit = flags::Unit::kSeconds,
       .highest = 1e9,
       .unset = kUnset},
      {.name = "idle-offload-after",
       .group = kOptions,
       .help = "copy its KV to host memory after this idle time; 0: at once",
       .target = &flags->idle_offload_after_seconds,
       .unit = flags::Unit::kSeconds,
       .highest = 1e9,
       .unset = kUnset},
      {.name = "retain-priority",
       .group = kOptions,
       .help = "on a full host the lowest loses its copy first; from -100 to 100",
       .target = &flags->retain_priority,
       .unset = kUnset},
  };
}

// A verb that takes the session's name alone.
flags::Command Named(SessionFlags* flags, std::string_view verb, std::string_view help) {
  return {.name = verb, .help = help, .flags = {}, .positionals = {NameRow(flags)}};
}

flags::Command Fork(SessionFlags* flags) {
  return {.name = "fork",
          .help = "Create a session with the same beginning.",
          .flags = {{.name = "position",
                     .group = kOptions,
                     .help = "number of tokens to take over",
                     .target = &flags->position,
                     .placeholder = "TOKENS",
                     .unset = "all"}},
          .positionals = {NameRow(flags), ChosenNameRow(&flags->new_name)}};
}

flags::Command Truncate(SessionFlags* flags) {
  return {.name = "truncate",
          .help = "Forget the tokens from a position on.",
          .flags = {},
          .positionals = {NameRow(flags),
                          {.name = "position",
                           .group = {},
                           .help = "the position to cut at, the number of tokens that stay",
                           .target = &flags->position,
                           .placeholder = "position",
                           .required = true}}};
}

}  // namespace

flags::Command SessionCommand(Invocation* line) {
  SessionFlags* flags = &line->session;
  Flag created = ChosenNameRow(&flags->name);
  created.placeholder = "NAME";
  flags::Command touch = Named(flags, "touch", "Renew the lease and change options.");
  touch.flags = OptionRows(flags);
  flags::Command save = Named(flags, "export", "Write tokens and KV to a file.");
  save.positionals.push_back(FileRow(flags, "file to write; '-': stdout"));
  flags::Command load{.name = "import",
                      .help = "Create a session from an exported file.",
                      .flags = OptionRows(flags),
                      .positionals = {FileRow(flags, "file to read; '-': stdin"), created}};
  Flag moved = ChosenNameRow(&flags->name);
  moved.help = "the session's name; none: all of yours";
  moved.placeholder = "NAME";
  flags::Command move{.name = "move",
                      .help = "Move sessions with their KV to another server or proxy.",
                      .flags = {},
                      .positionals = {{.name = "destination",
                                       .group = {},
                                       .help = "host:port or unix:PATH of the server or proxy",
                                       .target = &flags->destination,
                                       .placeholder = "DESTINATION",
                                       .required = true},
                                      moved}};
  return {.name = "session",
          .help = "List, fork, cut, move and save the server's sessions.",
          .flags = {},
          .positionals = {},
          .commands = {
              {.name = "create",
               .help = "Create an empty session.",
               .flags = OptionRows(flags),
               .positionals = {created}},
              Named(flags, "get", "Print a session."),
              {.name = "list", .help = "Print all of your sessions, by name.", .flags = {}},
              Fork(flags),
              Truncate(flags),
              touch,
              Named(flags, "offload", "Copy the KV to host memory and free the device."),
              Named(flags, "prefetch", "Bring the KV back to the device."),
              Named(flags, "pin", "Hold the KV on the device."),
              Named(flags, "unpin", "Release a pin."),
              Named(flags, "close", "Forget the session."),
              Named(flags, "watch", "Print a line for each change, until the session is closed."),
              save,
              load,
              move,
          }};
}

}  // namespace quire::cli
