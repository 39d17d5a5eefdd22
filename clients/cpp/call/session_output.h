// Sessions as text: one as a page, several as a table, and the KV that a turn found.
#pragma once

#include <ostream>
#include <string>

#include "quire/v1/inference.pb.h"
#include "quire/v1/sessions.pb.h"

namespace quire::cli {

// "SESSION_STATE_RESIDENT_IDLE" as "resident_idle".
std::string StateName(v1::SessionState state);

// A page of labelled lines.
void PrintSession(const v1::Session& session, std::ostream& out);

// A table's head, and a row a session; the first column takes `name_width`.
void PrintSessionHead(int name_width, std::ostream& out);
void PrintSessionRow(const v1::Session& session, int name_width, std::ostream& out);

// "412 tokens from the device, 96 from the host in 3.1 ms, 0 computed again; session 'x' at 530".
std::string DescribeTurn(const v1::Finished& finished, const std::string& session);

}  // namespace quire::cli
