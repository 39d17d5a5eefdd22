// The one place where the names and help texts of the verbs are written.
#include "clients/cpp/flags/session_flags.h"

#include <string>

#include "clients/cpp/flags/durations.h"

namespace quire::cli {
namespace {

CLI::App* AddVerb(CLI::App* session, const char* verb, SessionFlags* flags, const char* help) {
  CLI::App* app = session->add_subcommand(verb, help);
  app->callback([flags, verb] { flags->verb = verb; });
  return app;
}

// A verb of which the session's name is all.
CLI::App* AddNamed(CLI::App* session, const char* verb, SessionFlags* flags, const char* help) {
  CLI::App* app = AddVerb(session, verb, flags, help);
  app->add_option("name", flags->name, "The session")->required()->option_text("NAME");
  return app;
}

void AddDuration(CLI::App* app, const char* name, std::optional<double>* seconds,
                 const char* help) {
  app->add_option_function<std::string>(
         name, [seconds](const std::string& text) { *seconds = ParseDuration(text); }, help)
      ->check([](const std::string& text) -> std::string {
        return ParseDuration(text) ? ""
                                   : "wants a duration like 90s, 30m or 2h, not '" + text + "'";
      })
      ->type_name("DURATION");
}

void AddOptions(CLI::App* app, SessionFlags* flags) {
  const char* group = "Options (unset: the server's default, or as they are)";
  AddDuration(app, "--ttl", &flags->ttl_seconds, "The session ends when unused for so long");
  AddDuration(app, "--idle-offload-after", &flags->idle_offload_after_seconds,
              "Its KV is copied to the host when idle for so long; 0: at once");
  app->add_option("--retain-priority", flags->retain_priority,
                  "[-100, 100]; on a full host the lowest loses its copy first");
  for (const char* name : {"--ttl", "--idle-offload-after", "--retain-priority"}) {
    app->get_option(name)->group(group);
  }
}

void AddNewName(CLI::App* app, const char* option, std::optional<std::string>* name) {
  app->add_option(option, *name, "Its name; default: the server makes one")->option_text("NAME");
}

// The parse of a vector's or an optional's number takes -1 for a large one.
void AddPosition(CLI::App* app, const char* option, SessionFlags* flags, const char* help) {
  app->add_option_function<int64_t>(
         option, [flags](const int64_t& n) { flags->position = static_cast<uint32_t>(n); }, help)
      ->check(CLI::Range(int64_t{0}, int64_t{UINT32_MAX}))
      ->type_name("TOKENS");
}

void AddFiles(CLI::App* session, SessionFlags* flags) {
  CLI::App* save = AddNamed(session, "export", flags, "Write tokens and KV to a file");
  save->add_option("file", flags->file, "'-': stdout")->required()->option_text("FILE");
  CLI::App* load = AddVerb(session, "import", flags, "Make a session of an exported file");
  load->add_option("file", flags->file, "'-': stdin")->required()->option_text("FILE");
  AddNewName(load, "name", &flags->name);
  AddOptions(load, flags);
}

}  // namespace

void AddSession(CLI::App* app, SessionFlags* flags) {
  CLI::App* session =
      app->add_subcommand("session", "Conversations that the server keeps: see session --help");
  session->require_subcommand(0, 1);
  CLI::App* create = AddVerb(session, "create", flags, "Make an empty session");
  AddNewName(create, "name", &flags->name);
  AddOptions(create, flags);
  AddNamed(session, "get", flags, "Print a session");
  AddVerb(session, "list", flags, "Print all of your sessions, by name");
  CLI::App* fork = AddNamed(session, "fork", flags, "Make a session with the same beginning");
  AddNewName(fork, "new_name", &flags->new_name);
  AddPosition(fork, "--position", flags, "Tokens to take over; default: all");
  CLI::App* truncate = AddNamed(session, "truncate", flags, "Forget the tokens from a position on");
  AddPosition(truncate, "position", flags, "Tokens that stay");
  truncate->get_option("position")->required();
  AddOptions(AddNamed(session, "touch", flags, "Renew the lease; change options"), flags);
  AddNamed(session, "offload", flags, "Copy the KV to the host, and free the device");
  AddNamed(session, "prefetch", flags, "Bring the KV back to the device");
  AddNamed(session, "pin", flags, "Keep the KV on the device");
  AddNamed(session, "unpin", flags, "Let it go again");
  AddNamed(session, "close", flags, "Forget the session");
  AddNamed(session, "watch", flags, "A line for each change, until the session is closed");
  AddFiles(session, flags);
}

}  // namespace quire::cli
