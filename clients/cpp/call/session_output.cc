// Prints sessions and turns. Durations carry a unit, counts do not; a state is the proto's name in
// lower case, without its prefix.
#include "clients/cpp/call/session_output.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "clients/cpp/flags/durations.h"

namespace quire::cli {
namespace {

const char* TokensWord(uint32_t count) { return count == 1 ? "token" : "tokens"; }

std::string ExpiresIn(const v1::Session& session) {
  return session.has_expires_in_seconds() ? FormatDuration(session.expires_in_seconds()) : "never";
}

}  // namespace

std::string StateName(v1::SessionState state) {
  std::string name = v1::SessionState_Name(state);
  const std::string prefix = "SESSION_STATE_";
  if (name.compare(0, prefix.size(), prefix) == 0) name = name.substr(prefix.size());
  return absl::AsciiStrToLower(name);
}

void PrintSession(const v1::Session& session, std::ostream& out) {
  out << absl::StrFormat("session  %s, %s%s\n", session.session_id(), StateName(session.state()),
                         session.pinned() ? ", pinned" : "");
  out << absl::StrFormat(
      "tokens   %d in %d turns: %d on the device, %d on the host, %d in neither\n",
      session.position(), session.turns(), session.device_tokens(), session.host_tokens(),
      session.absent_tokens());
  out << absl::StrFormat("lease    idle for %s, ends in %s unless used; %s old\n",
                         FormatDuration(session.idle_seconds()), ExpiresIn(session),
                         FormatDuration(session.age_seconds()));
  const v1::SessionOptions& options = session.options();
  out << absl::StrFormat("options  ttl %s, to the host after %s idle, retain priority %d\n",
                         FormatDuration(options.ttl_seconds()),
                         FormatDuration(options.idle_offload_after_seconds()),
                         options.retain_priority());
}

void PrintSessionHead(int name_width, std::ostream& out) {
  out << absl::StrFormat("%-*s  %-13s %8s %6s %8s %8s %8s %-6s %9s %9s\n", name_width, "NAME",
                         "STATE", "TOKENS", "TURNS", "DEVICE", "HOST", "NEITHER", "PINNED", "IDLE",
                         "EXPIRES");
}

void PrintSessionRow(const v1::Session& session, int name_width, std::ostream& out) {
  out << absl::StrFormat("%-*s  %-13s %8d %6d %8d %8d %8d %-6s %9s %9s\n", name_width,
                         session.session_id(), StateName(session.state()), session.position(),
                         session.turns(), session.device_tokens(), session.host_tokens(),
                         session.absent_tokens(), session.pinned() ? "yes" : "no",
                         FormatDuration(session.idle_seconds()), ExpiresIn(session));
}

std::string DescribeTurn(const v1::Finished& finished, const std::string& session) {
  const v1::Residency& residency = finished.residency();
  const std::string restore =
      residency.host_tokens() > 0 ? " in " + FormatDuration(residency.restore_seconds()) : "";
  return absl::StrFormat(
      "%d %s from the device, %d from the host%s, %d computed again; session '%s' at %d",
      residency.device_tokens(), TokensWord(residency.device_tokens()), residency.host_tokens(),
      restore, residency.recomputed_tokens(), session, finished.position());
}

}  // namespace quire::cli
