#pragma once

#include <string>
#include <vector>

// The commands of the `mstar` program. Each takes the words behind its name and gives the exit
// code; errors are thrown and shown by main.
namespace mstar {

int serve_command(const std::vector<std::string>& words);
int run_command(const std::vector<std::string>& words);
int inspect_command(const std::vector<std::string>& words);
int check_command(const std::vector<std::string>& words);
int bench_serve_command(const std::vector<std::string>& words);

std::string version_text();

}  // namespace mstar
