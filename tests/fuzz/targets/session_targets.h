// Fuzz targets for the files of sessions: each takes any bytes as one of them and aborts if a
// reader breaks its contract. Checksums would refuse nearly every change, so each file is read a
// second time with its checksums made right.
#pragma once

#include <string_view>

namespace quire {

// An exported session: what is accepted fits the server, in whatever pieces it arrives.
void FuzzSessionFile(std::string_view bytes);
// A journal: what is accepted has its tokens, and is the same up to its last complete record.
void FuzzJournal(std::string_view bytes);
// A session directory with the bytes as a journal and as a KV file: it opens, and damage is set
// aside.
void FuzzSessionDirectory(std::string_view bytes);

}  // namespace quire
