// For people a page of tables; with --watch a line a second, whose columns stay in place.
#include "clients/cpp/memory.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "clients/cpp/call/json_output.h"
#include "clients/cpp/call/report.h"

namespace quire::cli {
namespace {

// Lines between two heads of --watch.
constexpr int kLinesPerHead = 20;

// "12.3 MiB".
std::string Bytes(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1024;
  return absl::StrFormat(unit == 0 ? "%.0f %s" : "%.1f %s", bytes, kUnits[unit]);
}

double Percent(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

void PrintPlan(const v1::MemoryPlan& plan, std::ostream& out) {
  const std::string where =
      plan.ranks() > 1 ? absl::StrFormat(" on each of %d ranks", plan.ranks()) : "";
  out << absl::StrFormat("plan     %s%s\n", Bytes(static_cast<double>(plan.total_bytes())), where);
  for (const v1::MemoryPlan::Part& part : plan.parts()) {
    out << absl::StrFormat("  %-14s %10s\n", part.name(), Bytes(static_cast<double>(part.bytes())));
  }
}

void PrintTier(const v1::Memory& memory, const v1::Memory::Tier& tier, std::ostream& out) {
  const bool host = tier.name() == "host";
  out << absl::StrFormat("%-8s %d %s of %d tokens, %s each", tier.name(), tier.total_blocks(),
                         host ? "pages" : "blocks", memory.plan().block_size(),
                         Bytes(static_cast<double>(tier.block_bytes())));
  if (host) {
    out << absl::StrFormat("; %d are ready\n", memory.host_pages_ready());
  } else {
    out << absl::StrFormat("; %d are promised to requests\n", memory.reserved_blocks());
  }
  for (const v1::Memory::Owner& owner : tier.owners()) {
    out << absl::StrFormat("  %-14s %10d %12s %5.1f%%\n", owner.name(), owner.blocks(),
                           Bytes(static_cast<double>(owner.bytes())),
                           Percent(owner.blocks(), tier.total_blocks()));
  }
}

void PrintSeries(const v1::Memory& memory, std::ostream& out) {
  if (memory.series().empty()) return;
  out << absl::StrFormat("the last %d seconds\n", memory.seconds());
  out << absl::StrFormat("  %-24s %12s %12s %12s\n", "", "min", "mean", "max");
  for (const v1::Memory::Series& series : memory.series()) {
    const bool bytes = series.name().find("bytes") != std::string::npos;
    const auto text = [bytes](double value) {
      return bytes ? Bytes(value) : absl::StrFormat("%.0f", value);
    };
    out << absl::StrFormat("  %-24s %12s %12s %12s\n", series.name(), text(series.min()),
                           text(series.mean()), text(series.max()));
  }
}

void Print(const v1::Memory& memory, std::ostream& out) {
  PrintPlan(memory.plan(), out);
  for (const v1::Memory::Tier& tier : memory.tiers()) PrintTier(memory, tier, out);
  out << absl::StrFormat("process  %s resident\n",
                         Bytes(static_cast<double>(memory.resident_bytes())));
  PrintSeries(memory, out);
}

// 0 if there is none of that name.
uint64_t BlocksOf(const v1::Memory& memory, std::string_view tier, std::string_view owner) {
  for (const v1::Memory::Tier& one : memory.tiers()) {
    if (one.name() != tier) continue;
    for (const v1::Memory::Owner& its : one.owners()) {
      if (its.name() == owner) return its.blocks();
    }
  }
  return 0;
}

double LastOf(const v1::Memory& memory, std::string_view name) {
  const auto found = std::ranges::find(memory.series(), name, &v1::Memory::Series::name);
  return found == memory.series().end() ? 0 : found->last();
}

void PrintLine(const v1::Memory& memory, int number, std::ostream& out) {
  if (number % kLinesPerHead == 0) {
    out << "time      running  session   cached     free  copying | host used  session"
           "      to host    to device\n";
  }
  const auto device = [&memory](std::string_view owner) {
    return BlocksOf(memory, "device", owner);
  };
  uint64_t pages = 0;
  for (const char* owner : {"backed", "cached", "session", "copying"}) {
    pages += BlocksOf(memory, "host", owner);
  }
  out << absl::FormatTime("%H:%M:%S", absl::Now(), absl::LocalTimeZone())
      << absl::StrFormat(
             "%9d%9d%9d%9d%9d |%10d%9d%11s/s%11s/s\n", device("running") + device("restoring"),
             device("session"), device("cached"), device("free"), device("copying"), pages,
             BlocksOf(memory, "host", "session"), Bytes(LastOf(memory, "stored_bytes_per_second")),
             Bytes(LastOf(memory, "loaded_bytes_per_second")))
      << std::flush;
}

void WaitOneSecond() {
  std::mutex mutex;  // never notified
  std::condition_variable never;
  std::unique_lock lock(mutex);
  never.wait_for(lock, std::chrono::seconds(1));
}

}  // namespace

int RunMemory(const Invocation& line, Connection& connection, Terminal& terminal) {
  for (int number = 0;; ++number) {
    v1::Memory memory;
    const grpc::Status status = connection.Run([&](grpc::ClientContext* context) {
      return connection.control().GetMemory(context, {}, &memory);
    });
    if (!status.ok()) return Report(status, terminal.err);
    if (line.json) {
      PrintJson(memory, terminal.out);
    } else if (line.watch) {
      PrintLine(memory, number, terminal.out);
    } else {
      Print(memory, terminal.out);
    }
    if (!line.watch || !terminal.out) return kExitOk;
    WaitOneSecond();
  }
}

}  // namespace quire::cli
