// Fuzz targets for the files of jobs: each takes any bytes as one of them and aborts if a reader
// breaks its contract. Checksums would refuse nearly every change, so a state is read a second time
// with its checksum made right.
#pragma once

#include <string_view>

namespace quire {

// The lines of a file are the same in whatever pieces it arrives.
void FuzzJobLines(std::string_view bytes);
// One line: a fault names a field, and whatever was read, its result is JSON with the line's
// number.
void FuzzJobLine(std::string_view bytes);
// A record that is read is the one that was written there.
void FuzzJobRecord(std::string_view bytes);
// A state that is read, is written as it is read.
void FuzzJobState(std::string_view bytes);

}  // namespace quire
