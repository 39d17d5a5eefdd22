// One command for each verb.
#include "clients/cpp/flags/job_flags.h"

#include <string_view>

namespace quire::cli {
namespace {

constexpr std::string_view kFlags = "Flags";

flags::Flag NameRow(JobFlags* flags) {
  return {.name = "name",
          .group = {},
          .help = "the job's name",
          .target = &flags->name,
          .placeholder = "NAME",
          .required = true};
}

flags::Command Create(JobFlags* flags) {
  flags::Flag name = NameRow(flags);
  name.help = "its name; none: the server chooses one";
  name.required = false;
  return {.name = "create",
          .help = "Send a file of requests, one a line, which the server answers when it has room.",
          .flags = {{.name = "priority",
                     .group = kFlags,
                     .help = "run as requests of this priority; from -100 to 100",
                     .target = &flags->priority,
                     .unset = "below all requests"},
                    {.name = "expires-after",
                     .group = kFlags,
                     .help = "remove the job after this time, ended or not; at most 30d",
                     .target = &flags->expires_after_seconds,
                     .unit = flags::Unit::kSeconds,
                     .highest = 1e9,
                     .unset = "7d"},
                    {.name = "wait",
                     .group = kFlags,
                     .help = "print the results as they come, until the job ends",
                     .target = &flags->wait}},
          .positionals = {{.name = "file",
                           .group = {},
                           .help = "file to read; '-': stdin",
                           .target = &flags->file,
                           .placeholder = "FILE",
                           .required = true},
                          name}};
}

flags::Command Results(JobFlags* flags) {
  return {.name = "results",
          .help = "Print the results, a line each, and those that come, until the job ends.",
          .flags = {{.name = "offset",
                     .group = kFlags,
                     .help = "begin at this offset, which a lost stream printed",
                     .target = &flags->offset},
                    {.name = "no-wait",
                     .group = kFlags,
                     .help = "end behind the results that there are now",
                     .target = &flags->no_wait}},
          .positionals = {NameRow(flags)}};
}

flags::Command Named(JobFlags* flags, std::string_view verb, std::string_view help) {
  return {.name = verb, .help = help, .flags = {}, .positionals = {NameRow(flags)}};
}

}  // namespace

flags::Command JobCommand(JobFlags* flags) {
  flags::Command command{.name = "job",
                         .help = "Answer files of requests in the gaps that others leave.",
                         .flags = {}};
  command.commands = {Create(flags),
                      {.name = "list", .help = "Print your jobs, oldest first.", .flags = {}},
                      Named(flags, "get", "Print how a job stands."),
                      Results(flags),
                      Named(flags, "cancel", "End a job; its results so far stay."),
                      Named(flags, "delete", "Remove a job with its results.")};
  return command;
}

}  // namespace quire::cli
