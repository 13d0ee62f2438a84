// What commands write that say where a script lies: pwd, dirname, basename, readlink -f, realpath,
// behind `cd FOLDER &&`. Nothing is run and no link is followed: paths are put together as text.
// Internal to shell*.cc.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::recipes {

// A path as seen from a folder, without "." and "..", where these can go.
std::string PathFrom(std::string_view folder, std::string_view path);

// Where a `cd` with these words leads; nullopt: to where its words do not say.
std::optional<std::string> FolderAfter(const std::vector<std::string>& command,
                                       std::string_view folder);

// What the last of several commands writes, started in `folder`; nullopt: they are not of these.
std::optional<std::string> PathOutput(const std::vector<std::vector<std::string>>& commands,
                                      std::string folder);

}  // namespace orrery::recipes
