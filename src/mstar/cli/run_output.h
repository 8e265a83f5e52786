// What `mstar run` leaves behind: files and the JSON document.
#pragma once

#include <string>

#include "mstar/base/json.h"
#include "mstar/cli/run_sink.h"

namespace mstar {

// Where media go when --out names no file: output.png and the like, in the working directory; ""
// for text.
std::string default_out(Modality modality);

// The answer in the format that the file's name asks for. Throws Error(kUnavailable) naming the
// file when it cannot be written.
void write_file(const std::string& path, const RunResult& result, Modality modality);

Json result_json(const RunResult& result, const std::string& path);

}  // namespace mstar
